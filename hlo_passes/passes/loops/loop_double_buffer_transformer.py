"""Runs two iterations of a loop as one, or all of them.

Before:  while (10 times):  %y = all-gather(%x), channel_id=1
                            f(%y)
After:   while (5 times):   %y = all-gather(%x), channel_id=1
                            f(%y)
                            %y.1 = all-gather(%x.1), channel_id=2
                            f(%y.1)
"""

from __future__ import annotations

import copy as python_copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import is_collective, is_transfer, wrapped_computation
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config, known_trip_count
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import SYNC_COLLECTIVES, facts
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    call_copies,
    clone_instruction,
    repeat_control_edges,
)
from hlo_passes.passes.rewriting.flattening import flatten_call_graph

#: The frontend attribute that chooses a strategy for one loop, and its values.
_WISH: Final = "_xla_loop_unroll_strategy"
_WISHES: Final = {"double-buffer": "double-buffer", "full": "full-unroll"}
_SLICES: Final = frozenset({"dynamic-slice", "dynamic-update-slice"})
#: Operations of two operands, element by element.
_BINARY: Final = 2
#: How many iterations become one.
_FACTOR: Final = 2


@dataclass(frozen=True, slots=True)
class LoopDoubleBufferTransformer(Pass):
    """Run two iterations of a loop as one.

    So buffers and transfers of the two alternate. Loops need a known trip count in
    their backend config (see `while-loop-trip-count-annotator`), and more than one
    iteration. Of an odd number of iterations one runs before the loop. Copies of
    collectives receive channel ids of their own. Control edges let the second
    iteration wait for the first one, except for its collectives. Afterwards each call
    in the control flow has a computation of its own.

    XLA gives a channel id even to collectives that had none, the channel 0 to wrapped
    ones, drops the control edges of the first iteration's result, leaves a copy of each
    fusion body of a copied inner loop that nothing calls, and in 0.10.2 leaves the
    offsets of wrapped slices as they are. Without its quirks none of this happens.
    Of several loops in one computation XLA unrolls first what was made first, which no
    text shows; so channel ids may differ.

    Ensures: trip count, start and step in the backend config are those of the new loop.
    Complexity: linear in instructions and in the control edges that are added: one from
        each element of the result to each reader of the state, as in XLA; `full-unroll`
        times iterations.
    Source: openxla/xla `xla/backends/gpu/transforms/double_buffer_loop_unrolling.cc`.

    Attributes:
        strategy: `double-buffer`; `full-unroll` makes one iteration of all; `auto`
            doubles the loops with a collective in their body; `manual` does what the
            frontend attribute `_xla_loop_unroll_strategy` of a loop says
            (`double-buffer` or `full`).
        most_instructions: larger bodies are not made.
        most_control_edges: nor bodies with more edges between two iterations.
        xla: the release of XLA to follow; none: that of the run.
    """

    name: ClassVar[str] = "loop-double-buffer-transformer"

    strategy: Literal["double-buffer", "full-unroll", "auto", "manual"] = (
        "double-buffer"
    )
    most_instructions: int = 1_000_000
    most_control_edges: int = 4_000_000
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Unroll each loop that was there at the start, inner ones first."""
        version = module.version
        loops = [
            instruction
            for computation in computations_post_order(module, fusions=False)
            for instruction in computation.instructions
            if instruction.opcode == "while"
        ]
        if not loops:
            return False
        graph = build_call_graph(module)
        release = context.release_for(module, self.xla)
        copying = _Copying(
            next_channel_id(module),
            context.xla_quirks,
            release.shifts_wrapped_slices or not context.xla_quirks,
        )
        for loop in loops:
            wish = self._wish(loop)
            reason = self._reason_to_keep(loop, wish)
            if reason:
                report.remark(f"not unrolled: %{loop.name} {reason}")
                continue
            if len(graph.callers_of(loop.called_computations[0])) > 1:
                call_copies(loop)
            if wish == "full-unroll":
                _unroll_fully(loop, copying)
                report.count("loops-unrolled-fully")
            else:
                _double(loop, copying)
                report.count("loops-doubled")
        if module.version == version:
            return False
        flatten_call_graph(module, xla_quirks=context.xla_quirks)
        return True

    def _wish(self, loop: Instruction) -> str:
        """What to do with a loop; '' for nothing."""
        if self.strategy == "auto":
            body = loop.called_computations[0]
            has_collective = any(map(_is_collective_opcode, body.instructions))
            return "double-buffer" if has_collective else ""
        if self.strategy == "manual":
            return _WISHES.get(loop.frontend_attributes.get(_WISH, "").lower(), "")
        return self.strategy

    def _reason_to_keep(self, loop: Instruction, wish: str) -> str:
        attribute = loop.frontend_attributes.get(_WISH)
        if attribute is not None and attribute.lower() not in _WISHES:
            return f"has the unknown {_WISH} {attribute!r}"
        count = known_trip_count(loop)
        if count is None:
            return "has no known trip count"
        if count < _FACTOR:
            return f"runs {('never', 'once')[count]}"
        if not wish:
            return (
                "has no collective in its body"
                if self.strategy == "auto"
                else f"has no {_WISH}"
            )
        body = loop.called_computations[0]
        if body.root is body.parameters[0]:
            return "has a body that does nothing"
        copies = count if wish == "full-unroll" else _FACTOR
        if copies * len(body.instructions) > self.most_instructions:
            return f"would have {copies * len(body.instructions)} instructions"
        readers = sum(e.user_count for e in body.parameters[0].users)
        edges = (copies - 1) * readers * len(body.root.operands)
        if edges > self.most_control_edges:
            return f"would have {edges} control edges"
        return ""


@dataclass(slots=True)
class _Copying:
    """Copies bodies, and gives their collectives channels of their own."""

    next_channel: int
    xla_quirks: bool
    shifts_wrapped: bool

    def copy(
        self,
        order: Sequence[Instruction],
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
        if _is_collective_opcode(copy):
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

    def shift_slices(self, instruction: Instruction, iterations: _Iterations) -> None:
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


def _is_collective_opcode(instruction: Instruction) -> bool:
    """Whether it is a synchronous collective, or starts one by an opcode of its own."""
    row = facts(instruction.opcode)
    return instruction.opcode in SYNC_COLLECTIVES or (
        row.half == "start" and row.spelling == "native"
    )


# -- two iterations ----------------------------------------------------------------


def _double(loop: Instruction, copying: _Copying) -> None:
    """Make one iteration of two; of an odd number the first one runs before."""
    body = loop.called_computations[0]
    count = known_trip_count(loop)
    assert count is not None
    first = count % _FACTOR
    if first:
        _peel(loop, copying)
    order = post_order(body)
    copies: Copies = {body.parameters[0]: body.root}
    made = copying.copy(order, body, copies)
    for copy in made:
        copying.shift_slices(copy, _every_other(first + 1))
    for instruction in order:
        copying.shift_slices(instruction, _every_other(first))
    _finish_iteration(body, body.parameters[0], order, copies, copying)
    restore_text_order(body)
    _set_config(loop, count // _FACTOR, first)


def _peel(loop: Instruction, copying: _Copying) -> None:
    """Run one iteration before the loop."""
    body, computation = loop.called_computations[0], loop.computation
    order = post_order(body)
    copies: Copies = {body.parameters[0]: loop.operands[0]}
    for copy in copying.copy(order, computation, copies, before=loop):
        copying.shift_slices(copy, _only(0))
    computation.set_operands(loop, [copies[body.root]])
    for instruction in order:
        repeat_control_edges(instruction, copies)


def _finish_iteration(
    body: Computation,
    state: Instruction,
    order: Sequence[Instruction],
    copies: Copies,
    copying: _Copying,
) -> None:
    """Return the copy's result, and let the copy wait for what was copied.

    Args:
        body: of the loop.
        state: what the copied iteration reads.
        order: the copied instructions.
        copies: their copies; that of `state` is the copied iteration's result.
        copying: how XLA is followed.
    """
    result = copies[state]
    body.set_root(copies[result])
    if copying.xla_quirks:
        # Its edges are taken for those of a copy of the state.
        body.drop_control_edges(result)
    for instruction in order:
        if instruction is not state:
            repeat_control_edges(instruction, copies)
    # What reads the state waits for all of the iteration before.
    for element in state.users:
        for reader in element.users:
            if (
                reader is state
                or reader not in copies
                or _is_constant_arithmetic(reader)
                or _communicates(reader)
            ):
                continue
            for end in result.operands:
                body.add_control_edge(end, copies[reader])


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


# -- all iterations ----------------------------------------------------------------


def _unroll_fully(loop: Instruction, copying: _Copying) -> None:
    """Make one iteration of all."""
    body = loop.called_computations[0]
    count = known_trip_count(loop)
    assert count is not None
    order: Sequence[Instruction] = post_order(body)
    iterations = [(instruction, 0) for instruction in order]
    state, result = body.parameters[0], body.root
    for iteration in range(1, count):
        copies: Copies = {state: result}
        made = copying.copy(order, body, copies)
        iterations += [(copy, iteration) for copy in made]
        _finish_iteration(body, state, order, copies, copying)
        order, state, result = made, result, copies[result]
    for instruction, iteration in iterations:
        copying.shift_slices(instruction, _only(iteration))
    restore_text_order(body)
    config = dict(gpu_config(loop))
    config["known_trip_count"] = {"n": "1"}
    loop.backend_config = BackendConfig.of_json(config)


# -- configs -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Iterations:
    """Which iterations of the old loop a copy runs: `first`, and then every `every`th.

    0 for `every`: only that one.
    """

    first: int
    every: int = field(default=0)


def _only(iteration: int) -> _Iterations:
    return _Iterations(iteration)


def _every_other(first: int) -> _Iterations:
    return _Iterations(first, _FACTOR)


def _set_config(loop: Instruction, count: int, first: int) -> None:
    """Write how the new loop counts; `first` iterations run before it."""
    config = python_copy.deepcopy(dict(gpu_config(loop)))
    config["known_trip_count"] = {"n": str(count)}
    lines: Iterable[Any] = config.get("dynamic_variables") or ()
    if "known_init_step" in config:
        known = config["known_init_step"]
        start, step = int(known.get("init", 0)), int(known.get("step", 0))
        known["init"], known["step"] = str(start + first * step), str(_FACTOR * step)
    for line in lines:
        if "init" in line and "step" in line:
            step = int(line["step"])
            line["init"] = str(int(line["init"]) + first * step)
            line["step"] = str(_FACTOR * step)
    loop.backend_config = BackendConfig.of_json(config)


def _shifted(place: Mapping[str, Any], iterations: _Iterations) -> dict[str, Any]:
    """Where a copy's slice begins, and how far it moves from iteration to iteration."""
    offset, stride = int(place.get("byte_offset", 0)), int(place.get("byte_stride", 0))
    return {
        **place,
        "byte_offset": str(offset + iterations.first * stride),
        "byte_stride": str(stride * iterations.every),
    }


def _shift_slice(instruction: Instruction, iterations: _Iterations) -> None:
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
