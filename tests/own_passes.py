"""The passes of this project, for campaigns that run all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_passes.passes.framework.registry import pass_targets

#: The machine of campaigns: some passes ask for one.
TARGET: Final = "h100_sxm"


def own_passes() -> tuple[str, ...]:
    """Names of all passes that `hlo-passes list` shows, without others' distributions."""
    targets = pass_targets().items()
    return tuple(name for name, target in targets if target.startswith("hlo_passes."))


#: What runs before a pass that refuses a module without a schedule.
_BEFORE: Final = dict.fromkeys(
    ("schedule-checker", "schedule-improver", "scheduler-memory-fencing"),
    "hlo-memory-scheduler",
)


def pipeline_of(names: Iterable[str]) -> str:
    """The text of a pipeline of these passes, with what some need before them."""
    return ",".join(
        f"{_BEFORE[name]},{name}" if name in _BEFORE else name for name in names
    )
