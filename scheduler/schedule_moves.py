"""Two schedules of one module compared: what moved, and what that bought.

    %all-gather-start.3  48 -> 36, starts 85.2 us earlier; exposed 90.1 -> 4.9 us
    %fusion.7            40 -> 44, starts 2.1 us later; now overlaps %all-gather-start.3

Positions count from 0 among the instructions that both schedules have, so that an
added or removed instruction does not count as a move. Many sets of moves explain a
new order; the smallest one is reported (see `hlo_passes.analysis.module_diff`), and
with it every collective whose exposure changed, wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from hlo_passes.analysis.module_diff import diff_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.simulation.timeline_data import (
    COMPUTE_LANE,
    CollectiveRow,
    TimelineData,
)

#: Times that differ by less count as the same: a reader would see 0.0 us.
SAME_US: Final = 0.05
#: The text for a move that cannot save time by itself.
TAKES_NO_TIME: Final = "takes no time"
#: Neighbors that a sentence lists before it counts the rest.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Simulated:
    """A scheduled module and the step that it makes."""

    module: Module
    timeline: TimelineData


@dataclass(frozen=True, slots=True)
class Move:
    """One instruction, or one collective from start to done, in both schedules.

    Attributes:
        computation: its name in the later module.
        name: of the instruction; of an asynchronous collective its start.
        opcode: as printed; for a collective, the operation.
        position_before: its place; for a collective, that of its start.
        position_after: the same in the later schedule.
        start_before_us: when it begins, on its computation's clock.
        start_after_us: the same in the later schedule.
        done_before: place of the done, None for what has none.
        done_after: the same in the later schedule.
        exposed_before_us: exposure in a whole step, None for anything but a collective.
        exposed_after_us: the same in the later schedule.
        bought: what the move gained or lost, as a clause.
    """

    computation: str
    name: str
    opcode: str
    position_before: int
    position_after: int
    start_before_us: float
    start_after_us: float
    done_before: int | None
    done_after: int | None
    exposed_before_us: float | None
    exposed_after_us: float | None
    bought: str

    @property
    def positions_earlier(self) -> int:
        """By how many places it moved up; negative if it moved down."""
        return self.position_before - self.position_after

    @property
    def starts_earlier_us(self) -> float:
        """How much earlier it begins; negative: later."""
        return self.start_before_us - self.start_after_us

    @property
    def saved_us(self) -> float:
        """Exposure of a step that it saves; negative if it adds some."""
        return (self.exposed_before_us or 0.0) - (self.exposed_after_us or 0.0)

    def to_json(self) -> dict[str, Any]:
        """All attributes, and the differences."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {
            **{
                n: round(v, 3) if isinstance(v, float) else v for n, v in fields.items()
            },
            "positions_earlier": self.positions_earlier,
            "starts_earlier_us": round(self.starts_earlier_us, 3),
            "exposed_saved_us": round(self.saved_us, 3),
        }


def schedule_moves(before: Simulated, after: Simulated) -> tuple[Move, ...]:
    """All moves between two schedules, what matters most to the step first.

    Computations correspond as in `hlo_passes.analysis.module_diff.diff_modules`.
    """
    moves = [
        move
        for old, new in _common_computations(before.module, after.module)
        if new.name in after.timeline.computations
        and old.name in before.timeline.computations
        for move in _Comparison(_State(before, old), _State(after, new)).moves()
    ]
    return tuple(
        sorted(moves, key=lambda m: (-abs(m.saved_us), -abs(m.starts_earlier_us)))
    )


def _common_computations(
    before: Module, after: Module
) -> Iterator[tuple[Computation, Computation]]:
    for new in after.computations:
        old = before.entry if new.is_entry else before.computation(new.name)
        if old is not None and old.is_entry == new.is_entry:
            yield old, new


def _names_in(one: Computation, other: Computation) -> list[str]:
    """Names in one computation that the other has too."""
    known = {i.name for i in other.instructions}
    return [i.name for i in one.instructions if i.name in known]


class _State:
    """One computation of one side, with the facts that the comparison needs."""

    def __init__(self, side: Simulated, computation: Computation) -> None:
        spans = side.timeline.spans_of(computation.name)
        self.computation = computation
        self.opcodes = {i.name: i.opcode for i in computation.instructions}
        self.spans = {span.name: span for span in spans if span.kind != "wait"}
        self.waits = {span.name: span for span in spans if span.kind == "wait"}
        rows = side.timeline.collectives_of(computation.name)
        self.rows = {row.name: row for row in rows}

    @cached_property
    def issue_us(self) -> Mapping[str, float]:
        """When the compute lane reaches each instruction, even if it takes no time."""
        clock = 0.0
        found: dict[str, float] = {}
        for instruction in self.computation.instructions:
            name = instruction.name
            span = self.spans.get(name)
            row = self.rows.get(name)
            if row is not None:
                clock = max(clock, row.start_us)
            elif span is not None and span.lane == COMPUTE_LANE:
                clock = span.start_us
            found[name] = clock
            for passed in (span, self.waits.get(name)):
                if passed is not None and passed.lane == COMPUTE_LANE:
                    clock = max(clock, passed.end_us)
        return found

    def length_us(self, name: str) -> float:
        """How long an instruction holds the compute lane."""
        span = self.spans.get(name)
        if span is None or span.lane != COMPUTE_LANE:
            return 0.0
        return span.end_us - span.start_us


class _Comparison:
    """Two states of one computation."""

    def __init__(self, old: _State, new: _State) -> None:
        self.old = old
        self.new = new
        self.old_order = _names_in(old.computation, new.computation)
        self.new_order = _names_in(new.computation, old.computation)
        self.old_place = {name: k for k, name in enumerate(self.old_order)}
        self.new_place = {name: k for k, name in enumerate(self.new_order)}

    def moves(self) -> Iterator[Move]:
        """Collectives that moved or changed, then everything else that moved."""
        found = diff_computations(self.old.computation, self.new.computation)
        moved = dict.fromkeys(m.name for m in found.moved)
        pairs: dict[str, CollectiveRow] = {}
        for name, row in self.new.rows.items():
            was = self.old.rows.get(name)
            if was is None or name not in self.old_place or row.done != was.done:
                continue
            pairs[name] = row
            if row.done:
                pairs[row.done] = row
            changed = abs(row.total_exposed_us - was.total_exposed_us) >= SAME_US
            if changed or name in moved or row.done in moved:
                yield self._collective(was, row)
        beside_old = self._open_windows(pairs, self.old_place)
        beside_new = self._open_windows(pairs, self.new_place)
        for name in moved:
            if name not in pairs:
                old = beside_old[self.old_place[name]]
                yield self._instruction(name, old, beside_new[self.new_place[name]])

    def _collective(self, was: CollectiveRow, row: CollectiveRow) -> Move:
        done = row.done if row.done in self.old_place else ""
        return Move(
            row.computation,
            row.name,
            row.opcode,
            self.old_place[row.name],
            self.new_place[row.name],
            was.start_us,
            row.start_us,
            self.old_place[done] if done else None,
            self.new_place[done] if done else None,
            was.total_exposed_us,
            row.total_exposed_us,
            self._bought(was, row, done),
        )

    def _bought(self, was: CollectiveRow, row: CollectiveRow, done: str) -> str:
        saved = was.total_exposed_us - row.total_exposed_us
        if saved >= SAME_US:
            text = f"{saved:.1f} us less exposed"
        elif saved <= -SAME_US:
            text = f"{-saved:.1f} us more exposed"
        elif row.total_exposed_us < SAME_US:
            return "nothing: hidden before and after"
        else:
            return f"exposed as before: {row.cause}"
        if not done:
            return text
        came, went = self._beside(row.name, done)
        if saved > 0 and came:
            return f"{text}: now overlaps {_listed(came)}"
        if saved < 0 and went:
            return f"{text}: no longer overlaps {_listed(went)}"
        return f"{text}: {row.cause}"

    def _beside(self, start: str, done: str) -> tuple[list[str], list[str]]:
        """What moved between start and done, and what left, the longest first."""
        old = self.old_order[self.old_place[start] + 1 : self.old_place[done]]
        new = self.new_order[self.new_place[start] + 1 : self.new_place[done]]
        return (
            _longest(self.new, set(old), new),
            _longest(self.old, set(new), old),
        )

    def _open_windows(
        self, pairs: Mapping[str, CollectiveRow], place: Mapping[str, int]
    ) -> list[tuple[str, ...]]:
        """The collectives in flight at each place."""
        begins: dict[int, list[str]] = {}
        ends: dict[int, list[str]] = {}
        for name, row in pairs.items():
            if name == row.name and row.done in place:
                begins.setdefault(place[name] + 1, []).append(name)
                ends.setdefault(place[row.done], []).append(name)
        in_flight: dict[str, None] = {}
        found: list[tuple[str, ...]] = []
        for k in range(len(place)):
            for name in begins.get(k, ()):
                in_flight[name] = None
            for name in ends.get(k, ()):
                in_flight.pop(name, None)
            found.append(tuple(in_flight))
        return found

    def _instruction(self, name: str, old: Sequence[str], new: Sequence[str]) -> Move:
        return Move(
            self.new.computation.name,
            name,
            self.new.opcodes[name],
            self.old_place[name],
            self.new_place[name],
            self.old.issue_us[name],
            self.new.issue_us[name],
            None,
            None,
            None,
            None,
            self._cover(name, old, new),
        )

    def _cover(self, name: str, old: Sequence[str], new: Sequence[str]) -> str:
        """What an instruction now overlaps, and what it no longer overlaps."""
        if self.new.length_us(name) <= 0.0:
            return TAKES_NO_TIME
        came = [each for each in new if each not in old]
        went = [each for each in old if each not in new]
        parts: list[str] = []
        if came:
            parts.append(f"now overlaps {_listed(came)}")
        if went:
            parts.append(f"no longer overlaps {_listed(went)}")
        return "; ".join(parts) or "overlaps the same collectives"


def _longest(state: _State, known: set[str], names: Sequence[str]) -> list[str]:
    fresh = [n for n in names if n not in known and state.length_us(n) > 0.0]
    return sorted(fresh, key=lambda n: -state.length_us(n))


def _listed(names: Sequence[str]) -> str:
    """'%a, %b, %c and 4 more'."""
    text = ", ".join(f"%{name}" for name in names[:_NAMED])
    more = len(names) - _NAMED
    return f"{text} and {more} more" if more > 0 else text
