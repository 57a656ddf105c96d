"""Conditions under which a simulated step fails a check: `simulate --fail-if=...`.

    step>5ms            longer than that
    step>+2%            more than 2% longer than the base, the file of --against
    exposed>10%         more than 10% of the step is exposed
    memory>target       the report says that it does not fit: more than XLA's pool, or
                        than all that a TPU has
    all-gather>+0       a step runs more of them than the base's
    collectives>64MiB   all of them together move more

`parse_conditions` reads the text, `judge` compares.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from hlo_passes.errors import UsageError, nearest
from hlo_passes.exit_codes import ExitCode
from hlo_passes.ir import opcodes
from hlo_passes.progress import say, tell
from hlo_passes.scheduler.schedule_moves import Simulated
from hlo_passes.scheduler.simulation.ranges import Outcome
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, TimelineData
from hlo_passes.scheduler.simulation.units import bytes_text, share_text, time_text
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.source import SourceText

#: What a quantity is measured in.
Measure = Literal["time", "bytes", "count"]

_OPTION: Final = "--fail-if"
_STEP: Final = "step"
_EXPOSED: Final = "exposed"
_MEMORY: Final = "memory"
_COLLECTIVES: Final = "collectives"
_KINDS: Final = (*sorted(opcodes.SYNC_COLLECTIVES), *sorted(opcodes.TRANSFERS))
#: The names before `>`, and what they are measured in where the limit does not say.
QUANTITIES: Final[Mapping[str, Measure]] = {
    _STEP: "time",
    _EXPOSED: "time",
    "compute": "time",
    "communication": "time",
    _MEMORY: "bytes",
    _COLLECTIVES: "count",
    **dict.fromkeys(_KINDS, "count"),
}
_UNITS: Final[Mapping[str, tuple[Measure, float]]] = {
    "ns": ("time", 1e-3),
    "us": ("time", 1.0),
    "ms": ("time", 1e3),
    "s": ("time", 1e6),
    "B": ("bytes", 1.0),
    "KiB": ("bytes", float(1 << 10)),
    "MiB": ("bytes", float(1 << 20)),
    "GiB": ("bytes", float(1 << 30)),
    "TiB": ("bytes", float(1 << 40)),
}
_PERCENT: Final = "%"
_TARGET: Final = "target"
#: Of a TPU: a step above its whole memory does not fit, one below it may not either.
_NOT_COUNTED: Final = "tiles and what the compiler keeps for itself are not counted"
#: Times, bytes and counts that differ by this share differ by rounding only.
_ROUNDING: Final = 1e-9
#: Letters of a condition that an error repeats.
_MOST_SHOWN: Final = 60

_WORD: Final = re.compile(r"\s*([A-Za-z][A-Za-z-]*)?\s*")
_SIGN: Final = re.compile(r"\s*([+-]?)\s*")
_NUMBER: Final = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?(?![0-9.])")
_UNIT: Final = re.compile(r"\s*([A-Za-z%]*)")
_REST: Final = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; where it holds, the check fails.

    Attributes:
        text: as written.
        quantity: a name of `QUANTITIES`.
        measure: what is measured of it.
        relation: to what the limit is relative: nothing, the base, the step (a share
            of it), or the target's memory.
        amount: us, bytes, a number, or a share where `is_share`.
        is_share: whether the amount is a share, as 0.02 for 2%.
    """

    text: str
    quantity: str
    measure: Measure
    relation: Literal["absolute", "base", "step", "target"]
    amount: float
    is_share: bool


@dataclass(frozen=True, slots=True)
class Judgment:
    """A condition and the figures that decide it.

    Attributes:
        condition: what was asked.
        value: of the module.
        limit: the most that does not fail.
        base: value of the base, None where the condition does not ask for one.
        of_step: whether value and limit are shown as shares of this step, us.
        agree: by setting of the simulation's range, whether it fails there, too; () if
            nobody asked for a range, or it does not tell.
        besides: what neither value nor limit counts; '' for nothing.
    """

    condition: Condition
    value: float
    limit: float
    base: float | None = None
    of_step: float | None = None
    agree: tuple[bool, ...] = ()
    besides: str = ""

    @property
    def fails(self) -> bool:
        """Whether the value is more than the limit, by more than rounding."""
        return _exceeds(self.value, self.limit)

    def to_text(self) -> str:
        """'step>+2%: fails: 1.63 ms is more than 1.44 ms; the base has 1.41 ms'."""
        show = _SHOWN[self.condition.measure]
        value, limit = show(self.value), show(self.limit)
        if value == limit and self.value != self.limit:
            unit = _JSON_UNITS[self.condition.measure]
            value, limit = (f"{v:.12g} {unit}" for v in (self.value, self.limit))
        how = "fails" if self.fails else "passes"
        compared = "more than" if self.fails else "not more than"
        told = f"{self.condition.text}: {how}: {value} is {compared} {limit}"
        if self.of_step is not None:
            share = share_text(self.value, self.of_step)
            told += f"; {share} of the step of {show(self.of_step)}"
        if self.base is not None:
            told += f"; the base has {show(self.base)} ({self._change()})"
        if self.agree:
            told += f"; so in {sum(self.agree)} of {len(self.agree)} settings"
        return f"{told}; {self.besides}" if self.besides else told

    def _change(self) -> str:
        """By how much the value differs from that of the base."""
        assert self.base is not None, "there is nothing to compare with"
        if self.base > 0.0:
            return f"{100.0 * (self.value / self.base - 1.0):+.1f}%"
        return "as here" if self.value == self.base else "there was none"

    def to_json(self) -> dict[str, Any]:
        """The row of the key 'fail_if' in `simulate --json`."""
        condition = self.condition
        return {
            "condition": condition.text,
            "quantity": condition.quantity,
            "unit": _JSON_UNITS[condition.measure],
            "value": self.value,
            "base": self.base,
            "limit": self.limit,
            "fails": self.fails,
            "settings": len(self.agree),
            "holds": sum(self.agree),
        }


def _exceeds(value: float, limit: float) -> bool:
    """Whether a value is more, by more than rounding."""
    return value > limit and not math.isclose(value, limit, rel_tol=_ROUNDING)


#: The field of a step's times by quantity.
_TIMES: Final = {
    _STEP: "step_time_us",
    _EXPOSED: "exposed_us",
    "compute": "compute_us",
    "communication": "communication_us",
}
#: The quantities of which a range tells.
_RANGED: Final[Mapping[str, Callable[[Outcome], float]]] = {
    _STEP: lambda outcome: outcome.step_us,
    _EXPOSED: lambda outcome: outcome.exposed_us,
}
#: What one execution of a collective counts.
_WEIGHTS: Final[Mapping[Measure, Callable[[CollectiveRow], float]]] = {
    "count": lambda _: 1.0,
    "bytes": lambda row: row.bytes,
    "time": lambda row: row.latency_us,
}
_JSON_UNITS: Final[Mapping[Measure, str]] = {
    "time": "us", "bytes": "bytes", "count": "count",
}  # fmt: skip
_SHOWN: Final[Mapping[Measure, Callable[[float], str]]] = {
    "time": time_text,
    "bytes": lambda value: bytes_text(round(value)),
    "count": lambda value: f"{value:g}",
}


def add_fail_if_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument whose texts `parse_conditions` reads."""
    parser.add_argument(
        "--fail-if", action="append", default=[], metavar="CONDITION,...",
        help="exit with 6 if one of them holds: 'step>5ms', 'exposed>10%%' (of the "
        "step), 'memory>target', 'all-gather>64MiB', or compared with the base that "
        "--against names 'step>+2%%', 'all-gather>+0'; repeatable",
    )  # fmt: skip


# -- reading ---------------------------------------------------------------------


def parse_conditions(
    texts: Iterable[str], *, has_base: bool = True
) -> tuple[Condition, ...]:
    """The conditions of all texts; each text holds one or several, with commas.

    Args:
        texts: as typed.
        has_base: whether there is something to compare with.

    Raises UsageError U227 at the place of what is wrong.
    """
    return tuple(
        condition
        for text in texts
        for condition in _conditions(SourceText(text, _OPTION), has_base=has_base)
    )


def _conditions(source: SourceText, *, has_base: bool) -> Iterable[Condition]:
    begin = 0
    for part in source.text.split(","):
        yield _Reader(source, begin, begin + len(part)).condition(has_base=has_base)
        begin += len(part) + 1


@dataclass(slots=True)
class _Reader:
    """Reads the condition between two offsets of a text."""

    source: SourceText
    at: int
    end: int

    def condition(self, *, has_base: bool) -> Condition:
        text = self.source.text[self.at : self.end].strip()
        # The name, then `>`.
        name = self._name()
        if self.source.text[self.at : self.at + 1] != ">" or self.at >= self.end:
            raise self._error(
                f"{_short(text)} has no '>' after {name}",
                self.at,
                "as in --fail-if='step>+2%', in quotes: a shell takes '>' for itself",
            )
        self.at += 1
        # A sign makes the limit relative to the base.
        if self._match(_REST) and self.source.text.startswith(_TARGET, self.at):
            self._only(name, (_MEMORY,), "target", self.at)
            found = Condition(text, name, "bytes", "target", 0.0, is_share=False)
            self.at += len(_TARGET)
            self._nothing_more()
            return found
        sign_at = self.at
        sign = self._match(_SIGN)[1]
        if sign and not has_base:
            raise self._error(
                f"{_short(text)} compares with a base, and there is none",
                sign_at,
                "name it: --against=base.hlo",
            )
        # The number and its unit.
        number_at = self.at
        number = _NUMBER.match(self.source.text, self.at, self.end)
        if number is None:
            raise self._error(
                f"{_short(text)} has no number after '>' that can be read", number_at,
                f"as in {name}>{_EXAMPLES[QUANTITIES[name]]}",
            )  # fmt: skip
        self.at = number.end()
        unit_at = self.at
        unit = self._match(_UNIT)[1]
        amount = float(number[0]) * (-1.0 if sign == "-" else 1.0)
        if unit == _PERCENT:
            if not sign:
                self._only(name, (_EXPOSED,), "a share of the step", unit_at)
            relation = "base" if sign else "step"
            share = amount / 100.0
            self._nothing_more()
            return Condition(
                text, name, QUANTITIES[name], relation, share, is_share=True
            )
        measure, factor = self._measure(name, unit, amount, unit_at)
        relation = "base" if sign else "absolute"
        self._nothing_more()
        return Condition(text, name, measure, relation, amount * factor, is_share=False)

    def _name(self) -> str:
        found = self._match(_WORD)
        name = found[1] or ""
        name_at = found.start(1) if name else self.at
        if name not in QUANTITIES:
            what = f"{_short(name)} is not a quantity" if name else "no quantity"
            raise self._error(
                what, name_at, nearest(name, QUANTITIES) or ", ".join(QUANTITIES)
            )
        return name

    def _measure(
        self, name: str, unit: str, amount: float, at: int
    ) -> tuple[Measure, float]:
        own = QUANTITIES[name]
        if not unit:
            if own == "count" or amount == 0.0:
                return own, 1.0
            raise self._error(
                f"a limit of {name} needs a unit", at,
                f"as in {name}>{_EXAMPLES[own]}",
            )  # fmt: skip
        measure, factor = _UNITS.get(unit, (None, 1.0))
        if measure is None:
            units = ", ".join(_UNITS)
            raise self._error(
                f"{_short(unit)} is not a unit", at, nearest(unit, _UNITS) or units
            )
        if measure != own and own != "count":
            raise self._error(
                f"{unit} does not measure {name}", at, f"as in {name}>{_EXAMPLES[own]}"
            )
        return measure, factor

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self.source.text, self.at, self.end)
        assert found is not None, "these patterns also match nothing"
        self.at = found.end()
        return found

    def _only(self, name: str, names: Sequence[str], what: str, at: int) -> None:
        if name not in names:
            raise self._error(
                f"{what} is a limit of {', '.join(names)}, not of {name}", at,
                f"as in {name}>{_EXAMPLES[QUANTITIES[name]]}; a sign compares with the "
                "base",
            )  # fmt: skip

    def _nothing_more(self) -> None:
        self._match(_REST)
        if self.at < self.end:
            more = self.source.text[self.at : self.end].rstrip()
            raise self._error(
                f"{_short(more)} is too much", self.at,
                "put a comma between two conditions",
            )  # fmt: skip

    def _error(self, what: str, at: int, hint: str) -> UsageError:
        return UsageError(
            what, code="U227", location=self.source.location(at), hint=hint
        )


_EXAMPLES: Final[Mapping[Measure, str]] = {
    "time": "5ms", "bytes": "72GiB", "count": "100",
}  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


# -- judging ---------------------------------------------------------------------


def _value(condition: Condition, of: Simulated) -> float:
    """What a condition is about: us, bytes, or how many a step runs."""
    times = of.timeline.times
    quantity = condition.quantity
    if quantity == _MEMORY:
        return float(of.timeline.footprint.needed_bytes)
    if quantity in _TIMES:
        return getattr(times, _TIMES[quantity])
    rows = [r for r in of.timeline.collectives if quantity in (r.opcode, _COLLECTIVES)]
    weight = _WEIGHTS[condition.measure]
    return sequential_sum(row.executions * weight(row) for row in rows)


def judge(
    conditions: Iterable[Condition], judged: Simulated, base: Simulated | None = None
) -> tuple[Judgment, ...]:
    """Compare a simulated module with its limits.

    Args:
        conditions: as `parse_conditions` reads them.
        judged: what is judged.
        base: what relative conditions compare with.

    Raises UsageError U227 for a target whose memory is not known.
    """
    found = [_judgment(condition, judged, base) for condition in conditions]
    return tuple(
        replace(each, agree=_agreeing(each, judged.timeline, base and base.timeline))
        for each in found
    )


def _agreeing(
    judgment: Judgment, judged: TimelineData, base: TimelineData | None
) -> tuple[bool, ...]:
    """By setting, whether the judgment is the same there."""
    condition = judgment.condition
    ranges, before = judged.sensitivity, base.sensitivity if base else None
    if ranges is None or condition.quantity not in _RANGED:
        return ()
    values = [_RANGED[condition.quantity](o) for o in ranges.outcomes]
    limits = [condition.amount] * len(values)
    if condition.relation == "step":
        limits = [o.step_us * condition.amount for o in ranges.outcomes]
    elif condition.relation == "base":
        if before is None or len(before.outcomes) != len(values):
            return ()
        had = [_RANGED[condition.quantity](o) for o in before.outcomes]
        limits = [_added(condition, value) for value in had]
    return tuple(
        _exceeds(value, limit) == judgment.fails
        for value, limit in zip(values, limits, strict=True)
    )


def _added(condition: Condition, base: float) -> float:
    """The limit that a condition sets to a base."""
    share = base * condition.amount if condition.is_share else condition.amount
    return base + share


def _judgment(
    condition: Condition, judged: Simulated, base: Simulated | None
) -> Judgment:
    value = _value(condition, judged)
    if condition.relation == "base":
        assert base is not None, "parse_conditions refuses it"
        had = _value(condition, base)
        return Judgment(condition, value, _added(condition, had), had)
    if condition.relation == "step":
        step = judged.timeline.step_time_us
        return Judgment(condition, value, step * condition.amount, of_step=step)
    if condition.relation == "target":
        limit = _memory_of(judged.timeline, condition)
        besides = _NOT_COUNTED if judged.timeline.is_of_tpu else ""
        return Judgment(condition, value, limit, besides=besides)
    return Judgment(condition, value, condition.amount)


def _memory_of(timeline: TimelineData, condition: Condition) -> float:
    """Bytes of a target's memory that a step may take, as the line `memory` judges."""
    memory = timeline.footprint
    # A TPU has no pool whose size is known.
    found = memory.device_bytes if timeline.is_of_tpu else memory.available_bytes
    if found > 0:
        return float(found)
    raise UsageError(
        f"{condition.text}: the description of {timeline.target} lacks its memory",
        code="U227",
        hint="device_memory_size in the description, or a limit as in memory>72GiB",
    )


def judgments_text(judgments: Iterable[Judgment]) -> str:
    """A line for each condition; those that fail come first."""
    ranked = sorted(judgments, key=lambda each: not each.fails)
    return "".join(f"fail-if  {each.to_text()}\n" for each in ranked)


def report_judgments(judgments: Sequence[Judgment], *, as_json: bool) -> ExitCode:
    """Print what was judged, after the report; the exit code of the command.

    Beside JSON, which holds all of it, those that fail are told on stderr.
    """
    failing = [each for each in judgments if each.fails]
    if as_json:
        tell(judgments_text(failing))
    else:
        say(judgments_text(judgments))
    return ExitCode.LIMIT_EXCEEDED if failing else ExitCode.DONE
