"""Where two modules part: the first value that differs, step by step.

    INPUT                                    OTHER
    %a = f32[8] cosine(%p)         equal     %a = f32[8] cosine(%p)
    %b = f32[8] multiply(%a, %a)   parts     %b = f32[8] multiply(%a, %c)
    %d = f32[8] negate(%b)         (after)   %d = f32[8] negate(%b)

Values are matched by name, shape, computation, and the iterations around them. Both
modules run side by side, so that few values are kept at a time, and none that the other
module does not have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.runtime.comparison import Comparison, Tolerance, compare_outputs
from hlo_passes.runtime.stepping.stepper import Path, Stepper, Value

#: Element types and dimensions of all leaves.
_Leaves: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"
_Key: TypeAlias = "tuple[Path, str, _Leaves]"


@dataclass(frozen=True, slots=True)
class Parting:
    """A value that the two modules do not agree on.

    Attributes:
        value: of the first module.
        other: the instruction of the second module.
        comparison: of the two values.
        here: the first differing element, on both sides.
        operands: of `value`, by name: 'same', 'differs', '' if that is not known.
    """

    value: Value
    other: Instruction
    comparison: Comparison
    here: tuple[str, str]
    operands: dict[str, str]


@dataclass(slots=True)
class Partings:
    """What a comparison of all values found.

    Attributes:
        tolerance: None: every bit.
        values: of the first module.
        compared: how many of them the other module has too.
        different: how many of those differ beyond the tolerance.
        first: in the first module's order.
    """

    tolerance: Tolerance | None
    values: int = 0
    compared: int = 0
    different: int = 0
    first: Parting | None = None
    _first_place: int = -1

    def follow(
        self, mine: Stepper, theirs: Stepper, inputs: Sequence[np.ndarray]
    ) -> Iterator[Value]:
        """Run both side by side; yields the values of the first.

        The value of an instruction that both have is dropped as soon as both ran.

        Args:
            mine: the first module.
            theirs: the other one.
            inputs: as for `Stepper.run`, of both.
        """
        shared = _forms(mine.module) & _forms(theirs.module)
        other = theirs.run(inputs)
        waiting: dict[_Key, tuple[int, Value]] = {}
        early: dict[_Key, Value] = {}
        for place, value in enumerate(mine.run(inputs)):
            self.values += 1
            key = _key(value)
            if key in early:
                self._compare(place, value, early.pop(key))
            elif key[1:] in shared:
                waiting[key] = (place, value)
            yield value
            one = next(other, None)
            if one is None:
                shared = frozenset()  # nothing is to come
            else:
                self._meet(one, shared, waiting, early)
        for one in other:
            self._meet(one, frozenset(), waiting, early)

    def _meet(
        self,
        theirs: Value,
        shared: AbstractSet[tuple[str, _Leaves]],
        waiting: dict[_Key, tuple[int, Value]],
        early: dict[_Key, Value],
    ) -> None:
        """Compare a value of the other module, or keep it if this one is to come."""
        key = _key(theirs)
        if (found := waiting.pop(key, None)) is not None:
            self._compare(*found, theirs)
        elif key[1:] in shared:
            early[key] = theirs

    def _compare(self, place: int, value: Value, theirs: Value) -> None:
        self.compared += 1
        found = compare_outputs(value.arrays, theirs.arrays, self.tolerance)
        if found.matches:
            return
        self.different += 1
        if self.first is not None and self._first_place < place:
            return
        self._first_place = place
        self.first = Parting(
            value=value,
            other=theirs.instruction,
            comparison=found,
            here=_elements(value, theirs, found),
            operands=self._operands(value, theirs),
        )

    def _operands(self, value: Value, theirs: Value) -> dict[str, str]:
        """Whether the operands are the same, place by place."""
        verdicts: dict[str, str] = {}
        mine = value.instruction.operands
        for k, operand in enumerate(mine):
            verdicts[operand.name] = ""
            if len(theirs.operands) != len(mine):
                continue
            here, there = value.operands[k], theirs.operands[k]
            if here is None or there is None or _kinds(here) != _kinds(there):
                continue
            found = compare_outputs(here, there, self.tolerance)
            verdicts[operand.name] = "same" if found.matches else "differs"
        return verdicts


def _key(value: Value) -> _Key:
    return (value.path, *_form(value.instruction))


def _form(instruction: Instruction) -> tuple[str, _Leaves]:
    leaves = tuple(
        (leaf.element_type, leaf.dimensions) for _, leaf in instruction.shape.leaves()
    )
    return instruction.name, leaves


def _forms(module: Module) -> frozenset[tuple[str, _Leaves]]:
    return frozenset(_form(i) for c in module.computations for i in c.instructions)


def _elements(value: Value, theirs: Value, found: Comparison) -> tuple[str, str]:
    """The first differing element on both sides, as text."""
    if found.first_difference is None:
        return "", ""
    leaf, index = found.first_difference
    return _text(value.arrays[leaf][index]), _text(theirs.arrays[leaf][index])


def _text(element: np.generic) -> str:
    return f"{element!s}"


def _kinds(arrays: Sequence[np.ndarray]) -> list[tuple[tuple[int, ...], np.dtype]]:
    return [(array.shape, array.dtype) for array in arrays]
