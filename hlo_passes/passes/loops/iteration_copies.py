"""Several iterations of a loop as one: what the passes that unroll share.

    copying = Copying(next_channel_id(module), xla_quirks=False, shifts_wrapped=True)
    peel(loop, count % 3, copying)                     runs before the loop
    iterations = unroll_body(body, 3, copying)         the third follows the second
    shift_iterations(iterations, count % 3, copying)
    set_counts(loop, count // 3, first=count % 3, factor=3)

Control edges let an iteration wait for the one before, except for its collectives.
Configs say which bytes a slice takes and how the new loop counts.

Source: openxla/xla `xla/backends/gpu/transforms/double_buffer_loop_unrolling.cc`.
"""

from __future__ import annotations

import copy as python_copy
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.async_form import is_collective, is_transfer, wrapped_computation
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.opcodes import SYNC_COLLECTIVES, facts
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    clone_instruction,
    repeat_control_edges,
    wait_likewise,
)

_SLICES: Final = frozenset({"dynamic-slice", "dynamic-update-slice"})
#: Operations of two operands, element by element.
_BINARY: Final = 2
#: The instructions of one iteration, operands before their users.
Iteration = Sequence[Instruction]


@dataclass(slots=True)
class Copying:
    """Copies bodies, and gives their collectives channels of their own.

    Attributes:
        next_channel: the first free channel id.
        xla_quirks: do what XLA does where that is strange: a channel id for collectives
            that had none, 0 for wrapped ones, no control edges for the result of the
            iteration before.
        shifts_wrapped: say which bytes a slice takes also in asynchronous wrappers.
    """

    next_channel: int
    xla_quirks: bool
    shifts_wrapped: bool

    def copy(
        self,
        order: Iteration,
        computation: Computation,
        copies: Copies,
        *,
        before: Instruction | None = None,
    ) -> list[Instruction]:
        """Copies of instructions over other copies; what has one is left out."""
        made: list[Instruction] = []
        for instruction in order:
            if instruction in copies:
                continue
            operands = [copies[o] for o in instruction.operands]
            copy = clone_instruction(instruction, computation, operands, before=before)
            self._give_channel(copy)
            copies[instruction] = copy
            made.append(copy)
        return made

    def _give_channel(self, copy: Instruction) -> None:
        opcode = copy.opcode
        if is_collective_opcode(copy):
            if self.xla_quirks or copy.channel_id is not None:
                copy.channel_id = self._fresh()
        elif facts(opcode).spelling == "generic" and is_collective(copy):
            wrapped = wrapped_computation(copy)
            target = copy if wrapped is None else wrapped.root
            if target.channel_id is None or not target.mentions("channel_id"):
                return
            # XLA's verifier refuses an all-reduce on channel 0.
            if self.xla_quirks and target.opcode != "all-reduce":
                target.channel_id = 0
            elif facts(opcode).half == "start":
                target.channel_id = self._fresh()

    def shift_slices(self, instruction: Instruction, iterations: Iterations) -> None:
        """Say which bytes a slice of a copy takes, also in fusions and wrappers."""
        callers = ("fusion", "async-start") if self.shifts_wrapped else ("fusion",)
        work = [instruction]
        while work:
            one = work.pop()
            if one.opcode in callers:
                work += one.called_computations[0].instructions
            if one.opcode in _SLICES and one.mentions("dynamic_slice_config"):
                _shift_slice(one, iterations)

    def _fresh(self) -> int:
        self.next_channel += 1
        return self.next_channel - 1


def is_collective_opcode(instruction: Instruction) -> bool:
    """Whether it is a synchronous collective, or starts one by an opcode of its own."""
    row = facts(instruction.opcode)
    return instruction.opcode in SYNC_COLLECTIVES or (
        row.half == "start" and row.spelling == "native"
    )


# -- before the loop, and in it ----------------------------------------------------


def peel(
    loop: Instruction,
    count: int,
    copying: Copying,
    ahead: set[Instruction] | None = None,
) -> list[Iteration]:
    """Run some iterations before the loop, one after the other; their instructions.

    Args:
        loop: it runs at least so many times.
        count: of the iterations.
        copying: how.
        ahead: what need not wait for the iteration before; copies are added.
    """
    body, computation = loop.called_computations[0], loop.computation
    order, state = post_order(body), body.parameters[0]
    iterations: list[Iteration] = []
    for iteration in range(count):
        copies: Copies = {state: loop.operands[0]}
        made = copying.copy(order, computation, copies, before=loop)
        for copy in made:
            copying.shift_slices(copy, only(iteration))
        for instruction in order:
            if instruction is not state:
                repeat_control_edges(instruction, copies)
        if iteration:
            _wait(state, copies, ahead)
        elif not copying.xla_quirks:
            wait_likewise(loop, made)
        computation.set_operands(loop, [copies[body.root]])
        iterations.append(made)
        if ahead is not None:
            ahead |= {copies[i] for i in order if i in ahead}
    return iterations


def unroll_body(
    body: Computation,
    factor: int,
    copying: Copying,
    ahead: set[Instruction] | None = None,
) -> list[Iteration]:
    """Make one iteration of several; the instructions of each, the old one first.

    Slices and the order of the text are left as they are.

    Args:
        body: of the loop.
        factor: how many iterations become one.
        copying: how.
        ahead: what need not wait for the iteration before; copies are added.
    """
    order: Iteration = post_order(body)
    iterations: list[Iteration] = [order]
    state, result = body.parameters[0], body.root
    for _ in range(1, factor):
        copies: Copies = {state: result}
        made = copying.copy(order, body, copies)
        body.set_root(copies[result])
        if copying.xla_quirks:
            # Its edges are taken for those of a copy of the state.
            body.drop_control_edges(result)
        for instruction in order:
            if instruction is not state:
                repeat_control_edges(instruction, copies)
        _wait(state, copies, ahead)
        if ahead is not None:
            ahead |= {copies[i] for i in order if i in ahead}
        order, state, result = made, result, copies[result]
        iterations.append(made)
    return iterations


def shift_iterations(
    iterations: Sequence[Iteration], first: int, copying: Copying
) -> None:
    """Say which bytes the slices of an unrolled body take.

    Args:
        iterations: of the body.
        first: iterations before the loop.
        copying: how.
    """
    for number, instructions in enumerate(iterations):
        for instruction in instructions:
            every = Iterations(first + number, len(iterations))
            copying.shift_slices(instruction, every)


def _wait(
    state: Instruction, copies: Copies, ahead: set[Instruction] | None = None
) -> None:
    """Let what reads the state wait for all of the iteration before.

    Args:
        state: what the copied iteration reads.
        copies: of its instructions; that of `state` is the iteration before's result.
        ahead: what does not wait.
    """
    before = copies[state]
    for reader in _waiting(state, copies, ahead):
        for end in before.operands:
            before.computation.add_control_edge(end, copies[reader])


def _waiting(
    state: Instruction,
    iteration: Container[Instruction],
    ahead: Container[Instruction] | None,
) -> Iterator[Instruction]:
    """What waits for the iteration before: readers of the state, some of them twice."""
    for element in state.users:
        for reader in element.users:
            if not (
                reader is state
                or reader not in iteration
                or _is_constant_arithmetic(reader)
                or _communicates(reader)
                or (ahead is not None and reader in ahead)
            ):
                yield reader


def edges_between_iterations(body: Computation, ahead: Container[Instruction]) -> int:
    """The control edges that let a copy of an iteration wait for the one before.

    Args:
        body: of the loop.
        ahead: what need not wait.
    """
    inside = {*body.instructions}
    waiting = {*_waiting(body.parameters[0], inside, ahead)}
    return len(waiting) * len({*body.root.operands})


def _communicates(instruction: Instruction) -> bool:
    """Whether it is a collective or transfer, or a kernel around a collective."""
    if instruction.opcode == "fusion":
        return instruction.attributes.get("kind") == "kCustom" and any(
            map(is_collective, instruction.called_computations[0].instructions)
        )
    return is_collective(instruction) or is_transfer(instruction)


def _is_constant_arithmetic(instruction: Instruction) -> bool:
    """Whether it is an elementwise operation of a value and a constant."""
    row = facts(instruction.opcode)
    return (
        row.is_elementwise
        and len(instruction.operands) == _BINARY
        and any(o.opcode == "constant" for o in instruction.operands)
    )


# -- configs -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Iterations:
    """Which iterations of the old loop a copy runs: `first`, and then every `every`th.

    0 for `every`: only that one.
    """

    first: int
    every: int


def only(iteration: int) -> Iterations:
    """Just this one."""
    return Iterations(iteration, 0)


def set_counts(loop: Instruction, count: int, first: int, factor: int) -> None:
    """Write how the new loop counts.

    Args:
        loop: its backend config is written.
        count: how often it runs.
        first: iterations of the old one before it.
        factor: iterations of the old one in each of its own.
    """
    config = python_copy.deepcopy(dict(gpu_config(loop)))
    config["known_trip_count"] = {"n": str(count)}
    lines: Iterable[Any] = config.get("dynamic_variables") or ()
    if "known_init_step" in config:
        known = config["known_init_step"]
        start, step = int(known.get("init", 0)), int(known.get("step", 0))
        known["init"], known["step"] = str(start + first * step), str(factor * step)
    for line in lines:
        if "init" in line and "step" in line:
            step = int(line["step"])
            line["init"] = str(int(line["init"]) + first * step)
            line["step"] = str(factor * step)
    loop.backend_config = BackendConfig.of_json(config)


def _shifted(place: Mapping[str, Any], iterations: Iterations) -> dict[str, Any]:
    """Where a copy's slice begins, and how far it moves from iteration to iteration."""
    offset, stride = int(place.get("byte_offset", 0)), int(place.get("byte_stride", 0))
    return {
        **place,
        "byte_offset": str(offset + iterations.first * stride),
        "byte_stride": str(stride * iterations.every),
    }


def _shift_slice(instruction: Instruction, iterations: Iterations) -> None:
    config = dict(gpu_config(instruction))
    place = config.get("dynamic_slice_config")
    if not isinstance(place, Mapping) or int(place.get("loop_index", -1)) != 0:
        return
    shifted = _shifted(place, iterations)
    # Newer releases keep the numbers one level deeper.
    if isinstance(place.get("linear"), Mapping):
        shifted["linear"] = _shifted(place["linear"], iterations)
    if not iterations.every:
        del shifted["loop_index"]
    config["dynamic_slice_config"] = shifted
    instruction.backend_config = BackendConfig.of_json(config)
