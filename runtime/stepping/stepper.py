"""Runs the steps of a module on the emulated devices, and shows every value.

    stepper = Stepper(module, (1, 8), each=True)
    for value in stepper.run(inputs):
        value.path, value.instruction, value.arrays    # arrays: (devices, *shape)
    stepper.results

Arrays are handed from step to step through the host, and dropped when no later step
reads them. Each step is compiled once, and runs only if its arrays fit into the free
memory. What devices do differently (a loop that some leave earlier, a branch that some
take) is run as one program, and its inside is not shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.calls import runs_callees
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.reduction.extract import extract
from hlo_passes.runtime.executable import Executable, load_plain
from hlo_passes.runtime.memory import bytes_needed, require
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.stepping.segments import (
    Follow,
    Forward,
    Step,
    Straight,
    can_be_handed_over,
    communicates,
    cut,
)

#: The arrays of a value, tuples flattened depth first, each (devices, *shape).
Arrays: TypeAlias = "list[np.ndarray]"


class Inside(NamedTuple):
    """A loop, call or conditional around a value.

    Attributes:
        name: of the instruction.
        iteration: of a loop, from 0; else 0.
        number: of the computation among those that the instruction calls. Body and
            condition may have values of one name.
    """

    name: str
    iteration: int
    number: int


#: All of them, from the entry inwards.
Path: TypeAlias = "tuple[Inside, ...]"


@dataclass(frozen=True, slots=True)
class Value:
    """What an instruction gave, on all devices.

    Attributes:
        path: where it ran.
        instruction: of the module.
        arrays: its leaves.
        operands: those of its operands; None for one that stayed inside of a step.
    """

    path: Path
    instruction: Instruction
    arrays: Arrays
    operands: tuple[Arrays | None, ...]


Values: TypeAlias = Generator[Value, None, Arrays]


@dataclass(frozen=True, slots=True)
class _Program:
    """A step that is compiled, and the bytes that it needs on all devices."""

    executable: Executable
    bytes_needed: int


@dataclass(slots=True)
class Stepper:
    """A module, cut into steps.

    Attributes:
        module: one device's program.
        topology: (replicas, partitions).
        each: show every value; else those of collectives.
        say: called with what runs, before it runs.
        results: of the module, after `run` has ended.
        programs: how many steps have run.
    """

    module: Module
    topology: tuple[int, int]
    each: bool
    say: Callable[[str], None] = lambda _: None
    results: Arrays = field(default_factory=list)
    programs: int = 0
    _steps: dict[Computation, tuple[Step, ...]] = field(default_factory=dict)
    _loaded: dict[tuple[Instruction, ...], _Program] = field(default_factory=dict)
    _followed: dict[Instruction, bool] = field(default_factory=dict)
    #: Computations in which, or below which, devices communicate.
    _communicating: set[Computation] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Find where devices communicate, callees first."""
        for computation in build_call_graph(self.module).post_order:
            if any(
                communicates(i)
                or not self._communicating.isdisjoint(i.called_computations)
                for i in computation.instructions
            ):
                self._communicating.add(computation)

    def run(self, inputs: Sequence[np.ndarray]) -> Iterator[Value]:
        """Run once; yields values in the order in which they are computed.

        Args:
            inputs: one array per parameter leaf, shape (devices, *shape).

        Raises:
            UnsupportedHloError: S010, a step cannot run by itself; S013, the arrays of
                one do not fit into the memory that is free then.
        """
        given = list(inputs)
        arguments: list[Arrays] = []
        for parameter in self.module.entry.parameters:
            count = _leaf_count(parameter)
            arguments.append(given[:count])
            given = given[count:]
        self.results = yield from self._computation(self.module.entry, arguments, ())

    # -- computations --------------------------------------------------------------

    def _computation(
        self, computation: Computation, arguments: Sequence[Arrays], path: Path
    ) -> Values:
        known: dict[Instruction, Arrays] = dict(
            zip(computation.parameters, arguments, strict=True)
        )
        steps = self._steps_of(computation)
        read_last = {
            value: k for k, step in enumerate(steps) for value in _read_by(step)
        }
        read_last[computation.root] = len(steps)
        for k, step in enumerate(steps):
            match step:
                case Forward(instruction):
                    known[instruction] = _forwarded(instruction, known)
                case Follow(instruction):
                    known[instruction] = yield from self._follow(
                        instruction, known, path
                    )
                    yield _value(path, instruction, known)
                case Straight():
                    yield from self._straight(step, known, path)
            for value in (*_read_by(step), *_given_by(step)):
                if read_last.get(value, k) <= k:
                    known.pop(value, None)
        return known[computation.root]

    def _steps_of(self, computation: Computation) -> tuple[Step, ...]:
        if computation not in self._steps:
            self._steps[computation] = cut(
                computation, self._is_followed, each=self.each
            )
        return self._steps[computation]

    def _is_followed(self, instruction: Instruction) -> bool:
        """Whether to run a loop, call or conditional step by step."""
        if not runs_callees(instruction):
            return False
        if instruction not in self._followed:
            called = instruction.called_computations
            self._followed[instruction] = (
                can_be_handed_over(instruction)
                and all(map(can_be_handed_over, instruction.operands))
                and (self.each or not self._communicating.isdisjoint(called))
            )
        return self._followed[instruction]

    # -- straight steps ------------------------------------------------------------

    def _straight(
        self, step: Straight, known: dict[Instruction, Arrays], path: Path
    ) -> Generator[Value, None, None]:
        given = [known[i] for i in step.inputs]
        flat = self._execute(step, [a for arrays in given for a in arrays], path)
        for instruction in step.outputs:
            count = _leaf_count(instruction)
            known[instruction], flat = flat[:count], flat[count:]
            if instruction.opcode not in ("tuple", "get-tuple-element"):
                yield _value(path, instruction, known)

    def _execute(self, step: Straight, inputs: Arrays, path: Path) -> Arrays:
        last = step.instructions[-1]
        self.say(f"at %{last.name}{path_text(path)}")
        program = self._loaded.get(step.instructions)
        if program is None:
            program = self._loaded[step.instructions] = self._load(step)
        require(
            program.bytes_needed,
            f"the step from %{step.instructions[0].name} to %{last.name}"
            f"{path_text(path)}, beside what later steps need,",
            hint="look at fewer values with --sync=collectives, run without --sync, or "
            "lower the program with smaller shapes",
        )
        self.programs += 1
        return program.executable(*inputs)

    def _load(self, step: Straight) -> _Program:
        first = step.instructions[0]
        program = extract(
            self.module,
            first.computation,
            frozenset(step.instructions),
            step.outputs,
            drop=("sharding",),
        )
        if program is None:
            raise UnsupportedHloError(
                f"%{first.name} and what follows cannot run as a program of their own",
                code="S010",
                hint="run without --sync",
            )
        plain = plain_module(program)
        return _Program(
            load_plain(plain, program, *self.topology),
            bytes_needed(plain, device_count=math.prod(self.topology)),
        )

    def _as_one_program(
        self, instruction: Instruction, given: Sequence[Arrays], path: Path
    ) -> Arrays:
        """Run a loop or conditional whose devices part."""
        inputs = tuple(dict.fromkeys(instruction.operands))
        places = {operand: k for k, operand in enumerate(instruction.operands)}
        step = Straight((instruction,), inputs, (instruction,))
        return self._execute(step, [a for i in inputs for a in given[places[i]]], path)

    # -- loops, calls, conditionals ------------------------------------------------

    def _follow(
        self, instruction: Instruction, known: dict[Instruction, Arrays], path: Path
    ) -> Values:
        given = [known[o] for o in instruction.operands]
        if instruction.opcode == "while":
            return (yield from self._loop(instruction, given[0], path))
        if instruction.opcode == "call":
            (callee,) = instruction.called_computations
            inside = (*path, Inside(instruction.name, 0, 0))
            return (yield from self._computation(callee, given, inside))
        return (yield from self._conditional(instruction, given, path))

    def _loop(self, loop: Instruction, state: Arrays, path: Path) -> Values:
        body, condition = loop.called_computations
        iteration = 0
        while True:
            in_body, in_condition = (
                (*path, Inside(loop.name, iteration, k)) for k in range(2)
            )
            (goes_on,) = yield from self._computation(condition, [state], in_condition)
            if not goes_on.any():
                return state
            if not goes_on.all():
                return self._as_one_program(loop, [state], path)
            state = yield from self._computation(body, [state], in_body)
            iteration += 1

    def _conditional(
        self, conditional: Instruction, given: Sequence[Arrays], path: Path
    ) -> Values:
        branches = conditional.called_computations
        (chosen,) = given[0]
        taken = np.unique(chosen)
        if len(taken) > 1:
            return self._as_one_program(conditional, given, path)
        number = int(taken[0])
        if conditional.operands[0].shape.element_type == "pred":
            number = 0 if number else 1
        elif not 0 <= number < len(branches):
            number = len(branches) - 1
        inside = (*path, Inside(conditional.name, 0, number))
        branch = branches[number]
        return (yield from self._computation(branch, [given[number + 1]], inside))


def path_text(path: Path) -> str:
    """', iteration 3 of %while' for each loop around a value, '' for none."""
    return "".join(f", iteration {each.iteration + 1} of %{each.name}" for each in path)


def _value(
    path: Path, instruction: Instruction, known: dict[Instruction, Arrays]
) -> Value:
    operands = tuple(map(known.get, instruction.operands))
    return Value(path, instruction, known[instruction], operands)


def _read_by(step: Step) -> Sequence[Instruction]:
    """What a step needs of earlier ones."""
    if isinstance(step, Straight):
        return step.inputs
    return step.instruction.operands


def _given_by(step: Step) -> Sequence[Instruction]:
    """What is known when a step has run."""
    return step.outputs if isinstance(step, Straight) else (step.instruction,)


def _leaf_count(instruction: Instruction) -> int:
    return sum(1 for _ in instruction.shape.leaves())


def _forwarded(instruction: Instruction, known: dict[Instruction, Arrays]) -> Arrays:
    """The arrays of a tuple, or of an element of one."""
    if instruction.opcode == "tuple":
        return [a for o in instruction.operands for a in known[o]]
    (source,) = instruction.operands
    index = instruction.tuple_index
    counts = [sum(1 for _ in e.leaves()) for e in source.shape.elements]
    first = sum(counts[:index])
    return known[source][first : first + counts[index]]
