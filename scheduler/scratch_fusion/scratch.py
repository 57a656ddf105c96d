"""How much scratch a fusion needs, in the order of evaluation that needs least.

    order        in scratch while it is computed                       f32, per element
    %a = x + y   x, y, a                                               12 bytes
    %b = a * x   a, x, b             x stays, since it is read here    12 bytes
    %c = b * a   b, a, c                                               12 bytes

A value that is read comes into scratch where it is read first and leaves after it was
read last; a value that is computed leaves after it was read last in the fusion, at once
if nothing there reads it. Operands and result of an instruction are there together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hlo_passes.scheduler.scratch_fusion.parts import Part

#: Where few orders are followed, they run ahead of the first instruction that is left
#: by at most so many.
_MOST_AHEAD: Final = 128

#: What has been computed: all instructions before the first that is left, and a bit for
#: each from there on.
_Done: TypeAlias = "tuple[int, int]"
#: Bits at the widest point, bits that stay, the place of the state that it follows, the
#: instruction that follows, and what is done then.
_Step: TypeAlias = "tuple[int, int, int, int, _Done]"


def narrowest_order(
    part: Part, nodes: Collection[int], most_states: int | None = None
) -> tuple[int, tuple[int, ...]]:
    """Bits of scratch per element at the widest point, and the order of evaluation.

    Args:
        part: whose instructions they are.
        nodes: instructions of one fusion.
        most_states: sets of instructions computed first that are followed at a time;
            None for all, so that no order needs less.
    """
    wanted = sorted(nodes)
    ahead = len(wanted) if most_states is None else _MOST_AHEAD
    graph = _Graph.of(part, wanted, ahead)
    # The states, those whose order comes first in front.
    front = [_State(0, 0, (0, 0), graph.ready_at_first(), None)]
    for _ in wanted:
        best: dict[_Done, _Step] = {}
        for place, state in enumerate(front):
            for node in state.ready:
                step = graph.step(state, place, node)
                known = best.get(step[-1])
                if known is None or step < known:
                    best[step[-1]] = step
        steps = list(best.values())
        if most_states is not None and len(steps) > most_states:
            steps = sorted(steps)[:most_states]
        steps.sort(key=lambda step: step[2:4])
        front = [graph.after(front[step[2]], step) for step in steps]
    (end,) = front
    order = [wanted[node] for node in end.order()]
    return end.widest, tuple(reversed(order))


@dataclass(slots=True)
class _State:
    """Some instructions, computed in the best order that is known.

    Attributes:
        widest: bits so far.
        staying: bits of what is in scratch before the next instruction.
        done: the instructions.
        ready: those that can be next, the first in front.
        last: the state before the last one of them, and that one.
    """

    widest: int
    staying: int
    done: _Done
    ready: list[int]
    last: tuple[_State, int] | None

    def order(self) -> Iterator[int]:
        """The instructions, from the last one on."""
        last = self.last
        while last is not None:
            state, node = last
            yield node
            last = state.last


@dataclass(frozen=True, slots=True)
class _Graph:
    """Instructions of a fusion, numbered anew, and the inputs behind them.

    Attributes:
        count: of instructions.
        reads: values that each instruction reads.
        readers: instructions that read each value, from the smallest number on.
        bits: of each value.
        ahead: how far an order may run ahead.
    """

    count: int
    reads: Sequence[Sequence[int]]
    readers: Sequence[Sequence[int]]
    bits: Sequence[int]
    ahead: int

    @classmethod
    def of(cls, part: Part, nodes: Sequence[int], ahead: int) -> _Graph:
        """Number some instructions of a part."""
        number = {node: k for k, node in enumerate(nodes)}
        for node in nodes:
            for value in part.reads[node]:
                number.setdefault(value, len(number))
        reads = [[number[value] for value in part.reads[node]] for node in nodes]
        readers: list[list[int]] = [[] for _ in number]
        for node, values in enumerate(reads):
            for value in values:
                readers[value].append(node)
        return cls(len(nodes), reads, readers, [part.bits[v] for v in number], ahead)

    def ready_at_first(self) -> list[int]:
        """Instructions that read no other one."""
        return [
            n for n in range(min(self.ahead, self.count)) if self._is_ready(n, (0, 0))
        ]

    def step(self, state: _State, place: int, node: int) -> _Step:
        """What follows if an instruction is next."""
        done, bits, count = state.done, self.bits, self.count
        staying = state.staying
        live = staying + bits[node]
        if self.readers[node]:
            staying += bits[node]
        for value in self.reads[node]:
            if value >= count and not self._was_read(value, done):
                live += bits[value]
                staying += bits[value]
            if not self._is_read_later(value, done, node):
                staying -= bits[value]
        return max(state.widest, live), staying, place, node, _with(done, node)

    def after(self, state: _State, step: _Step) -> _State:
        """The state after a step."""
        widest, staying, _, node, done = step
        ready = [n for n in state.ready if n != node]
        seen = min(state.done[0] + self.ahead, self.count)
        found: list[int] = []
        for reader in self.readers[node]:
            if reader >= seen:
                break
            if self._is_ready(reader, done):
                found.append(reader)
        end = min(done[0] + self.ahead, self.count)
        found += [n for n in range(seen, end) if self._is_ready(n, done)]
        if found:
            ready = sorted(ready + found)
        return _State(widest, staying, done, ready, (state, node))

    def _is_ready(self, node: int, done: _Done) -> bool:
        """Whether an instruction that is left waits for none."""
        first, mask = done
        for value in self.reads[node]:
            if first <= value < self.count and not mask >> (value - first) & 1:
                return False
        return True

    def _was_read(self, value: int, done: _Done) -> bool:
        first, mask = done
        for reader in self.readers[value]:
            if reader < first or mask >> (reader - first) & 1:
                return True
            if reader >= first + self.ahead:
                return False
        return False

    def _is_read_later(self, value: int, done: _Done, node: int) -> bool:
        first, mask = done
        for reader in reversed(self.readers[value]):
            if reader < first:
                return False
            if reader != node and not mask >> (reader - first) & 1:
                return True
        return False


def _with(done: _Done, node: int) -> _Done:
    first, mask = done
    mask |= 1 << (node - first)
    if mask & 1:
        ones = (~mask & (mask + 1)).bit_length() - 1
        return first + ones, mask >> ones
    return first, mask


def bits_in_order(part: Part, order: Sequence[int]) -> int:
    """Bits of scratch per element at the widest point of one order of evaluation."""
    inside = set(order)
    last = {value: k for k, node in enumerate(order) for value in part.reads[node]}
    there: set[int] = set()
    widest = staying = 0
    for k, node in enumerate(order):
        came = [v for v in part.reads[node] if v not in there and v not in inside]
        there.update(came)
        staying += bits_of(part, came) + part.bits[node]
        widest = max(widest, staying)
        if node not in last:
            staying -= part.bits[node]
        staying -= bits_of(part, (v for v in part.reads[node] if last[v] == k))
    return widest


def bits_of(part: Part, values: Iterable[int]) -> int:
    """Of all these values together, per element."""
    return sum(part.bits[value] for value in values)
