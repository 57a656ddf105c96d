"""Options of the test suite.

pytest tests/passes tests/scheduler/passes --update-cases     rewrite case files
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from hlo_passes.analysis import followed_release
from hlo_passes.xla_release import OLDEST

# Every test is deterministic: a failure in CI is a failure here. A thousand examples
# and new ones each time: --hypothesis-profile=campaign
settings.register_profile(
    "suite",
    deadline=None,
    max_examples=25,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "campaign", settings.get_profile("suite"), max_examples=1000, derandomize=False
)
#: How the processes of a test on several hosts learn the profile.
_PROFILE = "HLO_PASSES_HYPOTHESIS_PROFILE"
settings.load_profile(os.environ.get(_PROFILE, "suite"))


#: Whichever test starts JAX first, those that ask for devices find enough of them.
_DEVICES = "--xla_force_host_platform_device_count"
#: Small programs take longer to compile than to run: LLVM optimizes nothing here, which
#: takes a third off. Campaigns compile as users do.
_OPTIMIZATION = "--xla_backend_optimization_level"


#: The release of XLA that every test follows that does not say which: what is expected
#: is then the same beside every jaxlib.
RELEASE = OLDEST


def pytest_configure(config: pytest.Config) -> None:
    """Give this process eight devices, and compile fast; hand the profile on."""
    followed_release.installed_release = lambda: RELEASE
    flags = os.environ.get("XLA_FLAGS", "")
    for name, value in ((_DEVICES, 8), (_OPTIMIZATION, 0)):
        if name not in flags:
            flags = f"{flags} {name}={value}".strip()
    os.environ["XLA_FLAGS"] = flags
    chosen = config.getoption("--hypothesis-profile", None)
    if chosen:
        os.environ[_PROFILE] = str(chosen)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--update-cases`."""
    parser.addoption(
        "--update-cases",
        action="store_true",
        help="write what the pipelines give into the case files",
    )
