"""How random tests run where only the verdict counts."""

from __future__ import annotations

import pytest


class QuickSettings:
    """A plug-in of pytest: the examples of the suite; a failure is not made smaller."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """After `conftest.py` has loaded its profile, before tests are imported."""
        from hypothesis import Phase, settings  # after pytest, which rewrites it

        suite = settings.get_current_profile_name()
        settings.register_profile(
            "quick",
            settings.get_profile(suite),
            phases=[Phase.explicit, Phase.generate],
            report_multiple_bugs=False,
        )
        settings.load_profile("quick")
