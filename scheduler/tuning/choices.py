"""Which settings of which levers a search tries, and why it leaves out the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlo_passes.scheduler.tuning.facts import ProgramFacts
from hlo_passes.scheduler.tuning.lever import Candidate
from hlo_passes.scheduler.tuning.levers import LEVERS, MEASURED_ONLY
from hlo_passes.xla_release import XlaRelease


@dataclass(frozen=True, slots=True)
class Choices:
    """What a search tries.

    Attributes:
        settings: to try, by lever, in the order of the table.
        dropped: why a lever is not tried, by lever.
    """

    settings: dict[str, tuple[str, ...]]
    dropped: dict[str, str]


def choices_for(
    facts: ProgramFacts,
    release: XlaRelease,
    *,
    is_ordered: bool,
    has: Callable[[Candidate], bool] = lambda candidate: True,
) -> Choices:
    """The levers that may matter for a program.

    Args:
        facts: of the program.
        release: of XLA.
        is_ordered: whether the latency-hiding scheduler runs without being asked to.
        has: whether a setting can be tried at all.
    """
    settings: dict[str, tuple[str, ...]] = {}
    dropped = facts.dropped() | dict(MEASURED_ONLY)
    for name, lever in LEVERS.items():
        if name in dropped:
            continue
        known = lever.candidates(release)
        able = tuple(c.setting for c in known if has(c))
        if name == _SCHEDULER:
            able = tuple(s for s in able if is_ordered == (s == _OFF))
        if able:
            settings[name] = able
        elif known:
            dropped[name] = "our own passes do not have it"
        else:
            dropped[name] = f"XLA {release} does not have it"
    return Choices(settings, dropped)


_SCHEDULER = "scheduler"
_OFF = "off"
