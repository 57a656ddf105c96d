"""Loops that count from a constant to a constant, as XLA's pipeliner reads them.

    %start = s32[] constant(3)                        start 3
    %next = s32[] add(%i, s32[] constant(2))          step 2
    %goes_on = pred[] compare(%i, s32[] constant(9)), direction=LT        bound 9

    CountedLoop(index=0, type='s32', start=3, step=2, bound=9, direction='LT')
        .iterations 3      .xla_iterations 3

The counter is one element of the state, as the condition reads it. This knows what a
pass needs that starts a loop an iteration later or ends it an iteration earlier. How
often a loop really runs, `trip_counts.py` finds for many more loops. How XLA counts to
annotate, which takes other loops and rounds otherwise, is in `while_loop_patterns.py`.

Source: openxla/xla `xla/hlo/evaluator/hlo_evaluator.cc` (`PatternMatchParseWhileLoop`),
`xla/service/collective_pipeliner.cc` (`ComputeLoopStatistics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.scalar_expressions import (
    Evaluation,
    Expression,
    NotKnownError,
    Path,
    Scope,
    in_range,
    scalar_type,
    wrapped,
)
from hlo_passes.ir.instruction import Instruction

#: The direction of a comparison whose operands change places.
_MIRRORED: Final = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
#: Directions with which a counter of this sign comes to its bound.
_UPWARD: Final = ("LT", "LE")
_DOWNWARD: Final = ("GT", "GE")
_INTEGERS: Final = frozenset(
    f"{sign}{bits}" for sign in "su" for bits in (8, 16, 32, 64)
)
_UNSIGNED_64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """How a loop counts.

    Attributes:
        index: the element of the state that counts.
        type: its element type.
        start: its first value.
        step: what each iteration adds; never 0.
        bound: the constant that the condition compares with, as it is written.
        direction: of the comparison, with the counter on the left.
    """

    index: int
    type: str
    start: int
    step: int
    bound: int
    direction: str

    @property
    def xla_iterations(self) -> int:
        """The iterations that XLA's pipeliner counts.

        It divides toward zero in the counter's type and takes LE for LT and GE for GT,
        so that the last iteration is often missing. A loop that runs backward from its
        bound has a huge number.
        """
        distance = wrapped(self.type, self.bound - self.start)
        count = abs(distance) // abs(self.step)
        count = count if (distance < 0) == (self.step < 0) else -count
        if distance - count * self.step > 0:
            count = wrapped(self.type, count + 1)
        return count & _UNSIGNED_64

    @property
    def iterations(self) -> int | None:
        """How often the body runs; None if the counter leaves its type first."""
        bound = self.bound
        if self.direction in ("LE", "GE"):
            bound += 1 if self.step > 0 else -1
        count = max(0, -((self.start - bound) // self.step))
        return count if in_range(self.type, self.start + count * self.step) else None


def counted_loop(loop: Instruction) -> CountedLoop | None:
    """How a `while` counts; None if no constants say it."""
    callees = loop.called_computations
    state = loop.operands[0]
    if len(callees) != 2 or state.opcode != "tuple":
        return None
    body, condition = callees
    # Find the comparison, and the element on one side of it.
    compared = _past_copies(condition.root)
    while compared.opcode == "get-tuple-element":
        source = compared.operands[0]
        if source.opcode != "tuple":
            return None
        compared = _past_copies(source.operands[compared.tuple_index])
    if compared.opcode != "compare":
        return None
    direction = compared.attributes.get("direction", "").strip()
    left, right = (_past_copies(operand) for operand in compared.operands)
    if direction not in _MIRRORED:
        return None
    index, other = _element(left), right
    if index is None:
        index, other, direction = _element(right), left, _MIRRORED[direction]
    if index is None or index >= len(state.operands):
        return None
    # Evaluate its bound, its start, and what the body adds to it.
    bound, start = known_integer(other), known_integer(state.operands[index])
    if bound is None or start is None or body.root.opcode != "tuple":
        return None
    step = _step(body.root.operands[index], index)
    kind = state.operands[index].shape.element_type
    if not step or kind not in _INTEGERS:
        return None
    if direction not in (_UPWARD if step > 0 else _DOWNWARD):
        return None
    return CountedLoop(index, kind, start, step, bound, direction)


def known_integer(instruction: Instruction) -> int | None:
    """The value of a scalar integer that depends on no parameter; None otherwise."""
    if scalar_type(instruction.shape) not in _INTEGERS or instruction.shape.rank:
        return None
    scope = Scope(instruction.computation, _unknown_parameter)
    try:
        expression = scope.of(instruction, ())
        evaluation = Evaluation([expression])
        return evaluation.run({})[evaluation.places[id(expression)]]
    except NotKnownError:
        return None


def _unknown_parameter(parameter: Instruction, path: Path) -> Expression:
    raise NotKnownError(f"%{parameter.name}{path} (parameter)")


def _past_copies(instruction: Instruction) -> Instruction:
    while instruction.opcode in ("copy", "copy-start", "copy-done"):
        instruction = instruction.operands[0]
    return instruction


def _element(instruction: Instruction) -> int | None:
    """The index of an element of the state, None for anything else."""
    if instruction.opcode != "get-tuple-element":
        return None
    source = instruction.operands[0]
    return instruction.tuple_index if source.opcode == "parameter" else None


def _step(update: Instruction, index: int) -> int | None:
    """What is added to element `index`; None if that is no constant."""
    update = _past_copies(update)
    if update.opcode not in ("add", "subtract"):
        return None
    left, right = (_past_copies(operand) for operand in update.operands)
    if _element(left) == index:
        step = known_integer(right)
        return -step if step is not None and update.opcode == "subtract" else step
    if _element(right) == index and update.opcode == "add":
        return known_integer(left)
    return None
