"""The arrays of a program, as a partitioner sees them once calls are inlined.

    %w = (s32[], f32[8]) while(%init), body=%b    one array for each leaf of %w, of the
                                                  body's parameter and of its root
    %c = f32[8] call(%x), to_apply=%f             the body of %f, anew for each call

A tie is a rule between arrays: of an instruction, or of what hands arrays on. Ties come
in the order in which a program runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.analysis.partitioning import custom_call_target
from hlo_passes.analysis.sharding_rules import Rule, identity, rule_of
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.sharding import for_shape, parse_sharding
from hlo_passes.ir.sharding_splits import Splits, leaf_splits
from hlo_passes.whole_numbers import integer_of

#: Arrays that calls, loops and branches may add, beside some for each instruction;
#: what is called beyond that is left alone. Nested calls may double at each level.
_MOST_ARRAYS: Final = 20_000
_FOR_EACH_INSTRUCTION: Final = 4


@dataclass(slots=True)
class Array:
    """An array of the program.

    Attributes:
        shape: its shape.
        splits: how it is divided, as far as that is known.
        is_fixed: whether somebody wrote that, so that it stays.
        open_dims: dimensions of a fixed one that may be divided more.
        is_opaque: whether nothing may be said about it.
        maker: the instruction that has it first.
    """

    shape: Shape
    splits: Splits
    maker: Instruction
    is_fixed: bool = False
    open_dims: frozenset[int] = frozenset()
    is_opaque: bool = False

    @property
    def is_unknown(self) -> bool:
        """Whether nothing says how an array that can be divided is divided."""
        return bool(self.shape.rank and self.splits.is_replicated and not self.is_fixed)

    @property
    def byte_size(self) -> int:
        """Bytes of the whole array; 0 for what is none."""
        return self.shape.byte_size if self.shape.is_array else 0

    def may_divide(self, dim: int) -> bool:
        """Whether a dimension may be divided more."""
        return not self.is_opaque and (not self.is_fixed or dim in self.open_dims)


@dataclass(frozen=True, slots=True)
class Tie:
    """A rule between arrays.

    Attributes:
        operands: what it reads.
        results: what it makes.
        rule: which dimensions belong together.
        at: the instruction whose rule it is.
        enters_loop: whether it hands the state to a loop.
    """

    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    rule: Rule
    at: Instruction
    enters_loop: bool = False


@dataclass(slots=True)
class Program:
    """A module's arrays and ties.

    Attributes:
        devices: of the module.
        arrays: all of them.
        ties: in the order in which the program runs.
        leaves: for each instruction its arrays, one list for each time that its
            computation is inlined.
        left_alone: instructions that tie nothing, and why.
    """

    devices: int
    arrays: list[Array] = field(default_factory=list)
    ties: list[Tie] = field(default_factory=list)
    leaves: dict[Instruction, list[list[Array]]] = field(default_factory=dict)
    left_alone: dict[Instruction, str] = field(default_factory=dict)


def program_of(module: Module) -> Program:
    """The arrays of a module and what ties them."""
    program = Program(module.num_partitions)
    instructions = sum(len(c.instructions) for c in module.computations)
    most = _MOST_ARRAYS + _FOR_EACH_INSTRUCTION * instructions
    _Reader(program, most).read(module.entry, {}, None)
    return program


class _Reader:
    """Walks computations as they run, once for each call."""

    def __init__(self, program: Program, most_arrays: int) -> None:
        self.program = program
        self.most_arrays = most_arrays
        #: For each tuple, the number of its first array at each element.
        self.starts: dict[Instruction, list[int]] = {}

    def read(
        self,
        computation: Computation,
        given: dict[int, list[Array]],
        root: list[Array] | None,
    ) -> list[Array]:
        """The arrays of the root.

        Args:
            computation: to walk.
            given: the arrays that a parameter is, by its number.
            root: the arrays that the root is; None for its own.
        """
        here: dict[Instruction, list[Array]] = {}
        for instruction in computation.instructions:
            own: list[Array] | None = None
            if instruction.opcode == "parameter":
                own = given.get(instruction.parameter_number)
            if root is not None and instruction.is_root:
                if own is not None:
                    self._same(own, root, instruction)
                own = root
            if own is None:
                own = [
                    Array(
                        leaf,
                        Splits.replicated(leaf.rank, self.program.devices),
                        instruction,
                        is_opaque=not leaf.is_array,
                    )
                    for _, leaf in instruction.shape.leaves()
                ]
                self.program.arrays += own
            self._annotate(instruction, own)
            here[instruction] = own
            self.program.leaves.setdefault(instruction, []).append(own)
            self._tie(instruction, own, here)
        return here[computation.root]

    def _annotate(self, instruction: Instruction, own: list[Array]) -> None:
        """Take over what is written at an instruction."""
        text = instruction.attributes.get("sharding")
        if text is None:
            return
        sharding = for_shape(parse_sharding(text), instruction.shape)
        unspecified = _unspecified_dims(instruction)
        for k, array in enumerate(own):
            if array.is_opaque or array.is_fixed:
                continue
            splits = leaf_splits(sharding, k, array.shape.rank, self.program.devices)
            if splits is None:
                array.is_opaque = True
                why = f"its sharding {text} says more than where elements are"
                self.program.left_alone.setdefault(instruction, why)
                continue
            array.splits = splits
            array.is_fixed = True
            array.open_dims = unspecified

    def _same(
        self, sources: Sequence[Array], targets: Sequence[Array], at: Instruction
    ) -> None:
        """Tie arrays that are handed on unchanged, one by one."""
        for source, target in zip(sources, targets, strict=True):
            if source is target or not source.shape.rank:
                continue
            rule = identity(source.shape.dimensions)
            enters_loop = at.opcode == "while"
            self.program.ties.append(Tie((source,), (target,), rule, at, enters_loop))

    def _tie(
        self,
        instruction: Instruction,
        own: list[Array],
        here: dict[Instruction, list[Array]],
    ) -> None:
        operands = [here[operand] for operand in instruction.operands]
        opcode = instruction.opcode
        if opcode == "tuple":
            self._same([a for each in operands for a in each], own, instruction)
        elif opcode == "get-tuple-element":
            start = self._starts_of(instruction.operands[0])[instruction.tuple_index]
            self._same(operands[0][start : start + len(own)], own, instruction)
        elif opcode == "opt-barrier" or _is_annotation(instruction):
            self._same(operands[0], own, instruction)
        elif runs_callees(instruction) and len(self.program.arrays) > self.most_arrays:
            why = f"more than {self.most_arrays} arrays once calls are inlined"
            self.program.left_alone[instruction] = why
        elif opcode == "while":
            body, condition = instruction.called_computations
            self._same(operands[0], own, instruction)
            self.read(body, {0: own}, own)
            self.read(condition, {0: own}, None)
        elif opcode == "conditional":
            for branch, passed in zip(
                instruction.called_computations, operands[1:], strict=True
            ):
                (parameter,) = branch.parameters
                inner = self._fresh(parameter, passed)
                self.read(branch, {0: inner}, own)
        elif opcode == "call":
            (body,) = instruction.called_computations
            given = {
                k: self._fresh(parameter, passed)
                for k, (parameter, passed) in enumerate(
                    zip(body.parameters, operands, strict=True)
                )
            }
            self._same(self.read(body, given, None), own, instruction)
        elif instruction.operands:
            self._compute(instruction, own, operands)

    def _starts_of(self, made: Instruction) -> list[int]:
        if made not in self.starts:
            counts = map(_leaf_count, made.shape.elements)
            self.starts[made] = list(itertools.accumulate(counts, initial=0))
        return self.starts[made]

    def _fresh(self, parameter: Instruction, passed: list[Array]) -> list[Array]:
        """The arrays of a callee's parameter, tied to what is passed."""
        made = [
            Array(a.shape, Splits.replicated(a.shape.rank, self.program.devices),
                  parameter, is_opaque=not a.shape.is_array)
            for a in passed
        ]  # fmt: skip
        self.program.arrays += made
        self._same(passed, made, parameter)
        return made

    def _compute(
        self, instruction: Instruction, own: list[Array], operands: list[list[Array]]
    ) -> None:
        rule = rule_of(instruction)
        if rule is None:
            if any(a.shape.rank for a in own):
                self.program.left_alone[instruction] = "no rule for its opcode"
            return
        arrays = tuple(each[0] for each in operands)
        self.program.ties.append(Tie(arrays, tuple(own), rule, instruction))


def _leaf_count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())


def _is_annotation(instruction: Instruction) -> bool:
    return (
        custom_call_target(instruction) == "Sharding"
        and len(instruction.operands) == 1
        and _sizes(instruction.operands[0].shape) == _sizes(instruction.shape)
    )


def _sizes(shape: Shape) -> list[tuple[int, ...] | None]:
    return [s.dimensions if s.is_array else None for _, s in shape.leaves()]


def _unspecified_dims(instruction: Instruction) -> frozenset[int]:
    """Dimensions of an annotation that it leaves to the partitioner."""
    if not _is_annotation(instruction):
        return frozenset()
    config = instruction.backend_config
    text = "" if config is None else config.value
    _, found, rest = text.partition("unspecified_dims=[")
    if not found:
        return frozenset()
    numbers = map(integer_of, rest.partition("]")[0].split(","))
    return frozenset(number for number in numbers if number is not None)
