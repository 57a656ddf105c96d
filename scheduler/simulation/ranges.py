"""How sure a simulated time is: the same step in other settings.

    ranges.exposed_us           (391.0, 1204.0)
    ranges.holds                25     settings of 27 with the same verdict
    Change(before, after).holds 20     settings of 27 in which the step changes that way

The verdict on one step is whether more than 10% of it is exposed, xprof's border of
what counts as hidden; that on two is which of them is faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.scheduler.simulation.setting import FACTORS, Setting
from hlo_passes.scheduler.simulation.units import time_text

#: The share of a step that may be exposed before it counts.
HIDDEN_SHARE: Final = 0.1
#: Relative difference up to which two steps take the same time: rounding.
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step in one setting.

    Attributes:
        setting: what was assumed.
        step_us: how long it takes.
        exposed_us: of that, how long the compute lane does not compute.
    """

    setting: Setting
    step_us: float
    exposed_us: float

    @property
    def exposed_share(self) -> float:
        """Of the step; 0 where it takes no time."""
        return self.exposed_us / self.step_us if self.step_us > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A step in all settings; `plain` is the one of the report."""

    plain: Outcome
    outcomes: tuple[Outcome, ...]

    @property
    def step_us(self) -> tuple[float, float]:
        """The shortest and the longest step."""
        return _range([o.step_us for o in self.outcomes])

    @property
    def exposed_us(self) -> tuple[float, float]:
        """The least and the most that is exposed."""
        return _range([o.exposed_us for o in self.outcomes])

    @property
    def exposed_share(self) -> tuple[float, float]:
        """The same as shares of their steps."""
        return _range([o.exposed_share for o in self.outcomes])

    @property
    def is_exposed(self) -> bool:
        """The verdict: whether more of the step is exposed than counts as hidden."""
        return self.plain.exposed_share > HIDDEN_SHARE

    @property
    def holds(self) -> int:
        """Settings with the same verdict."""
        return sum(
            (o.exposed_share > HIDDEN_SHARE) == self.is_exposed for o in self.outcomes
        )

    def to_text(self) -> str:
        """'exposed 26.8% to 61.3% (...); more than 10% holds in 27 of 27 settings'."""
        low, high = self.exposed_share
        held = f"{self.holds} of {len(self.outcomes)} settings"
        way = "more" if self.is_exposed else "no more"
        steps = " to ".join(map(time_text, self.step_us))
        if high == 0.0:
            told = f"step {steps}; nothing is exposed in {held}"
        else:
            told = (
                f"exposed {100 * low:.1f}% to {100 * high:.1f}% "
                f"({' to '.join(map(time_text, self.exposed_us))}) of a step of {steps}"
            )
            if self.is_sure:
                told += f"; {way} than {HIDDEN_SHARE:.0%} holds in {held}"
            else:
                told = (
                    f"not sure that {way} than {HIDDEN_SHARE:.0%} is exposed, it holds "
                    f"in {held}: {told}"
                )
        return told

    @property
    def is_sure(self) -> bool:
        """Whether the verdict is the same in all settings."""
        return self.holds == len(self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """The key 'sensitivity' of `simulate --json`."""
        return {
            "settings": [_setting_json(o) for o in self.outcomes],
            "step_us": list(self.step_us),
            "exposed_us": list(self.exposed_us),
            "exposed_share": list(self.exposed_share),
            "verdict": "exposed" if self.is_exposed else "hidden",
            "holds": self.holds,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """The same change in all settings: which of two steps is faster."""

    before: Sensitivity
    after: Sensitivity

    @property
    def changes_us(self) -> tuple[float, ...]:
        """By setting, how much longer the later step takes."""
        pairs = zip(self.before.outcomes, self.after.outcomes, strict=True)
        return tuple(_difference(b, a) for b, a in pairs)

    @property
    def shares(self) -> tuple[float, ...]:
        """The same as shares of the earlier step."""
        pairs = zip(self.changes_us, self.before.outcomes, strict=True)
        return tuple(c / b.step_us if b.step_us > 0.0 else 0.0 for c, b in pairs)

    @property
    def plain_us(self) -> float:
        """By how much the report says that the later step is longer."""
        return _difference(self.before.plain, self.after.plain)

    @property
    def holds(self) -> int:
        """Settings in which the later step is faster, slower, or equal, as reported."""
        return sum(_sign(c) == _sign(self.plain_us) for c in self.changes_us)

    @property
    def flips(self) -> bool:
        """Whether it is faster in some settings and slower in others."""
        return len({_sign(c) for c in self.changes_us} - {0}) > 1

    def to_text(self) -> str:
        """'faster holds in 24 of 27 settings, slower in 3; 9.1% shorter to ...'."""
        words = {-1: "faster", 0: "as fast", 1: "slower"}
        signs = [_sign(change) for change in self.changes_us]
        own = _sign(self.plain_us)
        told = f"{words[own]} holds in {self.holds} of {len(signs)} settings"
        told += "".join(
            f", {words[sign]} in {signs.count(sign)}"
            for sign in words
            if sign != own and sign in signs
        )
        if any(signs):
            told += f"; the step is {_shares_text(self.shares)}"
        return f"not sure: {told}" if self.flips else told

    def to_json(self) -> dict[str, Any]:
        """The value of the key 'change' of a comparison."""
        return {
            "change_us": list(_range(self.changes_us)),
            "change_share": list(_range(self.shares)),
            "settings": len(self.changes_us),
            "holds": self.holds,
            "flips": self.flips,
        }


def change_of(before: Sensitivity | None, after: Sensitivity | None) -> Change | None:
    """The change of two steps; None unless both were simulated in the same settings."""
    if before is None or after is None:
        return None
    if [o.setting for o in before.outcomes] != [o.setting for o in after.outcomes]:
        return None
    return Change(before, after)


def change_json(change: Change | None) -> dict[str, Any]:
    """The key 'change' of a comparison; {} without one."""
    return {} if change is None else {"change": change.to_json()}


def settings_note(found: Sensitivity) -> str:
    """What the settings are, for the notes of a report."""
    low, high = FACTORS[0], FACTORS[-1]
    told = (
        f"settings of the range: latencies and kernels each times {low:g} to {high:g}"
    )
    taken = sorted({o.setting.contention for o in found.outcomes})
    if len(taken) > 1:
        told += (
            f", compute {taken[0]:.0%} to {taken[-1]:.0%} slower beside a collective"
        )
    return told


def _shares_text(shares: Sequence[float]) -> str:
    low, high = (100.0 * share for share in _range(shares))
    if low < 0.0 < high:
        return f"{-low:.1f}% shorter to {high:.1f}% longer"
    least, most = sorted((abs(low), abs(high)))
    return f"{least:.1f}% to {most:.1f}% {'longer' if high > 0.0 else 'shorter'}"


def _difference(before: Outcome, after: Outcome) -> float:
    change = after.step_us - before.step_us
    return 0.0 if abs(change) <= _SAME * max(before.step_us, after.step_us) else change


def _sign(number: float) -> int:
    return (number > 0.0) - (number < 0.0)


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _setting_json(outcome: Outcome) -> dict[str, float]:
    return {
        "latency": outcome.setting.latency,
        "compute": outcome.setting.compute,
        "contention": outcome.setting.contention,
        "step_us": outcome.step_us,
        "exposed_us": outcome.exposed_us,
    }
