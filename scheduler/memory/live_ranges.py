"""When each value of a program lives, in one flat sequence of all that runs.

    w = while(t), body=%b, condition=%c       times: t, all of c, all of b, w

A value lives from its definition to its last use or holder; at the root of a
computation, to the end of that computation; as a parameter of the entry that nothing
reuses, all the time. Values of one buffer follow one another: each ends where the next
begins.

Source: openxla/xla `hlo/utils/hlo_live_range.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from hlo_passes.ir.async_form import done_of
from hlo_passes.scheduler.memory.buffer_sizes import parts_of
from hlo_passes.scheduler.memory.buffers import Buffers

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation

_NEVER: Final = -1
#: The first read only the top of their operand; the others read nothing of it.
_READ_TOP: Final = frozenset({"get-tuple-element", "copy"})
_READ_NOTHING: Final = frozenset({"tuple", "domain"})


@dataclass(frozen=True, slots=True)
class LiveRanges:
    """Live ranges of all values of a program, by value.

    Attributes:
        start: time of the definition, -1 if it does not run.
        end: last time at which it lives.
        last_time: one after the last instruction.
    """

    start: dict[int, int]
    end: dict[int, int]
    last_time: int


def live_ranges(
    buffers: Buffers, blocks: Mapping[Computation, Sequence[int]]
) -> LiveRanges:
    """Live ranges under the orders of `blocks` (numbers, see `reached`)."""
    clock = _Clock(buffers, blocks)
    clock.flatten(buffers.flow.reached.module.entry, _NEVER)
    start, end = _definitions(buffers, clock)
    _extend(buffers, clock, end)
    for value in _read_only_parameters(buffers):
        end[value] = clock.now
    _follow_one_another(buffers, start, end)
    return LiveRanges(start, end, clock.now)


class _Clock:
    """The time of every instruction, and the span of every computation."""

    def __init__(
        self, buffers: Buffers, blocks: Mapping[Computation, Sequence[int]]
    ) -> None:
        self.reached = buffers.flow.reached
        self.blocks = blocks
        self.time: dict[int, int] = {}
        self.span: dict[Computation, tuple[int, int]] = {}
        #: Number of the done that ends a computation, if it is asynchronous.
        self.until: dict[Computation, int] = {}
        self.now = 0

    def flatten(self, computation: Computation, done: int) -> None:
        """Give times to a computation and to what it runs, callees first."""
        if computation in self.span or not self.reached.runs_on(computation):
            return
        if done != _NEVER:
            self.until[computation] = done
        begin = self.now
        self.span[computation] = (begin, begin)
        for n in self.blocks[computation]:
            if n in self.reached.callees:
                self._flatten_callees(n, done)
            self.time[n] = self.now
            self.now += 1
        self.span[computation] = (begin, self.now)

    def _flatten_callees(self, n: int, done: int) -> None:
        instruction = self.reached.instructions[n]
        callees = self.reached.callees[n]
        if instruction.opcode in ("call", "conditional"):
            for callee in callees:
                self.flatten(callee, done)
        elif instruction.opcode == "async-start":
            own_done = self.reached.number[done_of(instruction) or instruction]
            for callee in callees:
                self.flatten(callee, own_done)
        elif instruction.opcode == "while":
            body, condition = callees
            self.flatten(condition, done)
            self.flatten(body, done)


def _definitions(
    buffers: Buffers, clock: _Clock
) -> tuple[dict[int, int], dict[int, int]]:
    """Start of each value, and its end as far as the definition determines it."""
    flow = buffers.flow
    value, first = flow.value, flow.start
    instructions = flow.reached.instructions
    start: dict[int, int] = {}
    end: dict[int, int] = {}
    for computation, (begin, after) in clock.span.items():
        root = flow.reached.number[computation.root]
        done = clock.until.get(computation)
        until = clock.time[done] if done is not None else _NEVER
        for n in clock.blocks[computation]:
            is_parameter = instructions[n].opcode == "parameter"
            defined_at = begin if is_parameter else clock.time[n]
            lives_to = max(after if n == root else clock.time[n], until)
            for position in range(first[n], first[n + 1]):
                if value[position] == position and position not in flow.joined:
                    start[position] = defined_at
                    end[position] = lives_to
    return start, end


def _extend(buffers: Buffers, clock: _Clock, end: dict[int, int]) -> None:
    """Let values live while anything holds or uses them."""
    flow = buffers.flow
    value, first = flow.value, flow.start
    time, number = clock.time, flow.reached.number
    instructions = flow.reached.instructions
    for computation, (_, after) in clock.span.items():
        root = number[computation.root]
        for n in clock.blocks[computation]:
            held = after if n == root else time[n]
            top, nested = held, held
            for user in instructions[n]._users:
                opcode = user.opcode
                if opcode in _READ_NOTHING or opcode == "call":
                    continue
                at = number[user]
                if opcode == "while":
                    # The input is no longer needed once the body has taken it over.
                    body = user.called_computations[0]
                    at = number[body.parameters[0]]
                used = time[at]
                top = max(top, used)
                if opcode not in _READ_TOP:
                    nested = max(nested, used)
            low = first[n]
            for position in range(low, first[n + 1]):
                last = top if position == low else nested
                for v in _values_at(flow.joined, value[position]):
                    if v in end and last > end[v]:
                        # A value's own position adds nothing, but its uses do.
                        end[v] = last


def _values_at(joined: dict[int, list[int]], value: int) -> tuple[int, ...]:
    if value not in joined:
        return (value,)
    found = {value: None}
    queue = [value]
    for v in queue:
        for w in joined.get(v, ()):
            if w not in found:
                found[w] = None
                queue.append(w)
    return tuple(found)


def _read_only_parameters(buffers: Buffers) -> list[int]:
    """Values of the entry's parameters whose memory no result reuses."""
    flow = buffers.flow
    module = flow.reached.module
    aliased = {(alias.parameter, alias.path) for alias in module.input_output_aliases}
    return [
        flow.start[flow.reached.number[parameter]] + k
        for parameter in module.entry.parameters
        for k, path in enumerate(parts_of(parameter.shape).paths)
        if (parameter.parameter_number, path) not in aliased
    ]


def _follow_one_another(
    buffers: Buffers, start: dict[int, int], end: dict[int, int]
) -> None:
    """Cut the ranges of values in one buffer: each ends where the next begins."""
    shared: dict[int, list[int]] = {}
    for v in start:
        shared.setdefault(buffers.of_value[v], []).append(v)
    for values in shared.values():
        if len(values) == 1:
            continue
        values.sort(key=lambda v: (start[v], end[v], v))
        for one, following in pairwise(values):
            end[following] = max(end[one], end[following])
            end[one] = min(end[one], start[following])
