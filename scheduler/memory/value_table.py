"""Which value is at which position, while the analysis runs.

    t = (f32[4], s32[]) tuple(a, i)        positions 7 8 9 hold values 7 a i

A position is a number: `start[n] + k` is part k (pre-order) of instruction n. A value
is the number of the position that defines it. Parameters of called computations hold
stand-ins (their own positions) until a caller binds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.buffer_sizes import parts_of
from hlo_passes.scheduler.memory.reached import Reached

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

#: The value of positions where XLA has none.
NO_VALUE: Final = -1


class ValueTable:
    """Positions filled so far, and what is known about their values.

    Attributes:
        reached: the computations and the numbers of their instructions.
        start: number -> first position.
        value: position -> value.
        merged: pairs of values that must share memory.
        phis: values that loops and branches define.
        joined: stand-in -> values bound to it, if there are several callers.
        passed_on: values that a loop or a branch passes on: if they turn out to
            represent several, these must share memory.
    """

    def __init__(self, reached: Reached) -> None:
        """Start with nothing visited."""
        self.reached = reached
        self.start: list[int] = []
        self.value: list[int] = []
        self.merged: list[tuple[int, int]] = []
        self.phis: set[int] = set()
        self.joined: dict[int, list[int]] = {}
        self.passed_on: list[int] = []
        self._bound: dict[int, int] = {}

    def of(self, instruction: Instruction) -> list[int]:
        """Values of all parts of an instruction."""
        first = self.first(instruction)
        return self.value[first : first + parts_of(instruction.shape).count]

    def below(self, instruction: Instruction, path: tuple[int, ...]) -> list[int]:
        """Values of the part at `path` and of all parts of it; [] if there is none."""
        parts = parts_of(instruction.shape)
        if path not in parts.offsets:
            return []
        low, high = parts.span(path)
        first = self.first(instruction)
        return self.value[first + low : first + high]

    def first(self, instruction: Instruction) -> int:
        """The position of the whole of an instruction."""
        return self.start[self.reached.number[instruction]]

    def has_one_caller(self, computation: Computation) -> bool:
        """Whether exactly one instruction calls it."""
        return len(self.reached.call_sites[computation]) == 1

    # -- stand-ins ----------------------------------------------------------

    def bind(self, parameter: Instruction, values: Sequence[int]) -> None:
        """Set what a caller passes for a parameter, part by part."""
        first = self.first(parameter)
        if self.has_one_caller(parameter.computation):
            self._bound |= dict(
                zip(range(first, first + len(values)), values, strict=True)
            )
        else:
            for k, value in enumerate(values):
                self.joined.setdefault(first + k, []).append(value)

    def bind_value(self, stand_in: int, value: int) -> None:
        """Set what one stand-in represents."""
        self._bound[stand_in] = value

    def resolve(self, value: int) -> int:
        """What a value represents, as far as callers have been visited."""
        bound = self._bound
        path = []
        while value in bound:
            path.append(value)
            value = bound[value]
        for stand_in in path[:-1]:
            bound[stand_in] = value
        return value

    def merge(self, one: int, other: int) -> None:
        """Record that two values must share memory."""
        if one != other:
            self.merged.append((one, other))

    def settle(self) -> None:
        """Replace all bound stand-ins by their values."""
        if self._bound:
            final = {stand_in: self.resolve(stand_in) for stand_in in [*self._bound]}
            get = final.get
            self.value = [get(v, v) for v in self.value]
            self.merged = [(get(a, a), get(b, b)) for a, b in self.merged]
            self.joined = {
                stand_in: [get(v, v) for v in values]
                for stand_in, values in self.joined.items()
            }
            self.passed_on = [get(v, v) for v in self.passed_on]
        self.merged += [
            (v, self.joined[v][0]) for v in self.passed_on if v in self.joined
        ]
