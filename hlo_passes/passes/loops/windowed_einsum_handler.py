"""Unrolls loops that multiply one shard while the next shard travels.

Before:  while (%i < 8), body=%windowed_dot_general_body_ag:
             %w1 = collective-permute(%w)        out[i] = dot(%w, %y)
             %w2 = collective-permute(%w1)       out[i+1] = dot(%w1, %y)
After:   while (once), body=%unrolled_windowed_dot_general_body_ag:
             %w1 = collective-permute(%w), ..."force_earliest_schedule":true
             dot(%w, %y), ..."operation_queue_id":"4"
             dot(%w1, %y), ..."operation_queue_id":"5"       and so on
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph, computations_post_order
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.counted_loops import counted_loop
from hlo_passes.analysis.post_order import changing_post_order, post_order
from hlo_passes.analysis.replication import Replication
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.cleanup.hlo_cse import merge
from hlo_passes.passes.cleanup.hlo_dce import HloDce
from hlo_passes.passes.cleanup.tuple_simplifier import TupleSimplifier
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.loops.split_all_to_alls import AllToAllSplitter
from hlo_passes.passes.loops.windowed_activations import ActivationCache
from hlo_passes.passes.loops.windowed_scales import scale_in_loop
from hlo_passes.passes.loops.windowed_sums import move_sum_out
from hlo_passes.passes.rewriting.flattening import flatten_call_graph
from hlo_passes.passes.rewriting.gpu_backend_config import (
    set_force_earliest_schedule,
    set_operation_queue_id,
)
from hlo_passes.passes.rewriting.index_arithmetic import simplify_index_arithmetic
from hlo_passes.passes.rewriting.unrolling import Numbering, unroll_in_loop
from hlo_passes.xla_release import XlaRelease

#: How the partitioner names the bodies of its loops: by what they stand for.
GATHERS: Final = "windowed_dot_general_body_ag"
SCATTERS: Final = "windowed_dot_general_body_rs"
#: Keeps XLA from making no loop of one that runs once.
_STAYS_LOOP: Final = "skip-simplify-while-loops_trip-count-one"
#: Elements of the state: what travels in loops that gather, and the sum.
_WINDOW: Final = 0
_SUM: Final = 2
#: XLA unrolls no larger loops. Source: openxla/xla `xla/service/while_loop_unroller.h`.
_MOST_INSTRUCTIONS: Final = 800
_MOST_ITERATIONS: Final = 64
_MOST_IN_ALL: Final = 10_000


@dataclass(frozen=True, slots=True)
class WindowedEinsumHandler(Pass):
    """Unroll windowed loops, and let their dots run on separate streams.

    XLA's partitioner makes a windowed loop of a dot and an all-gather or reduce-scatter
    (`xla_gpu_threshold_for_windowed_einsum_mib`). The loop's body is called
    `windowed_dot_general_body_ag` for an all-gather and `windowed_dot_general_body_rs`
    for a reduce-scatter. If such a loop has more than one dot, the pass unrolls it
    inside a loop that runs once. Each dot gets its own queue, and the first permute of
    a gathering loop starts as early as possible. If a gathering loop adds up its dots,
    the pass collects the dots in one array instead and reduces that array after the
    loop. This changes the order of the additions. If there is another all-gather of the
    value that travels through a gathering loop, the loop keeps all shards in a state
    element, which replaces that all-gather.

    An operand may be 8-bit floating-point numbers times a scale. The pass then hands
    the 8-bit numbers to the loop and scales them there, so only a quarter of the bytes
    travels (half, if the scaled numbers have 16 bits). A loop that keeps its shards
    keeps them unscaled.

    With `alltoall-windowed-einsum`, the pass also splits an all-to-all before or after
    a dot. Only reshapes, transposes and copies may be between the two. The pass splits
    along the contracted dimension, into as many parts as a group has devices. Each part
    has its own dot, on its own queue.

    XLA simplifies the whole module first. This pass simplifies only the arithmetic that
    chooses shards, and copies.

    XLA has these problems:

    - Up to 0.11, it counts the iterations of an unrolled loop one by one, although each
      iteration multiplies two shards. With four or more devices, it mixes up shards.
    - It looks for the permute of a scattering loop where a gathering loop has its
      permute, and finds none.
    - It splits an all-to-all before a dot even if the dot contracts the dimension that
      the all-to-all splits. Devices then receive other columns than before.
    - It scales what arrives by the scale of the receiving device, even if the sender
      may have another scale.

    Without XLA's quirks (`--no-xla-quirks`), none of this happens.

    Ensures: a second run finds no loop that was unrolled; it splits all-to-alls again.
    Complexity: linear in instructions, times iterations of windowed loops.
    Source: openxla/xla `xla/backends/gpu/transforms/windowed_einsum_handler.cc`,
    `xla/service/while_loop_unroller.cc`.

    Attributes:
        alltoall_windowed_einsum: split all-to-alls next to dots.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "windowed-einsum-handler"
    reorders_sums: ClassVar[bool] = True

    alltoall_windowed_einsum: bool = False
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find the loops, simplify, then unroll each."""
        version = module.version
        release = context.release_for(module, self.xla)
        loops = _windowed_loops(module, report)
        queue = next_channel_id(module) if loops else 0
        is_same = _same_scales(module, loops, quirks=context.xla_quirks)
        for loop in loops:
            scale_in_loop(loop, report, is_same)
        self._rewrite_dots(module, loops, release, context, report, is_same)
        if not loops:
            return self._in_order(module, version)
        simplify_index_arithmetic(module)
        _clean_up(module, context)
        ready = [loop for loop in loops if _can_be_unrolled(loop, report)]
        self._unroll_all(module, ready, queue, release, context)
        report.count("loops-unrolled", len(ready))
        return self._in_order(module, version)

    @staticmethod
    def _in_order(module: Module, version: int) -> bool:
        """Restore the order of the text if anything changed; whether it did."""
        if module.version == version:
            return False
        for computation in module.computations:
            restore_text_order(computation)
        return True

    def _rewrite_dots(
        self,
        module: Module,
        loops: list[Instruction],
        release: XlaRelease,
        context: PassContext,
        report: Report,
        is_same: Callable[[Instruction], bool],
    ) -> None:
        """Let dots read what loops keep, and split them beside all-to-alls."""
        split = self.alltoall_windowed_einsum
        gathering = [
            loop
            for loop in loops
            if loop.called_computations[0].name.startswith(GATHERS)
        ]
        if not gathering and not split:
            return
        quirks = context.xla_quirks
        cache = ActivationCache(gathering, report, quirks, is_same)
        splitter = AllToAllSplitter(module, release, quirks, report)
        for computation in computations_post_order(module, fusions=False):
            for instruction in changing_post_order(computation):
                if instruction.opcode == "dot":
                    cache.read_by(instruction)
                    if split:
                        splitter.split_before(instruction)
                elif split and instruction.opcode == "all-to-all":
                    splitter.split_after(instruction)

    @staticmethod
    def _unroll_all(
        module: Module,
        loops: list[Instruction],
        queue: int,
        release: XlaRelease,
        context: PassContext,
    ) -> None:
        """Unroll loops, and clean up before and after the last one, as XLA does.

        XLA does so around each; that comes to the same.
        """
        quirks = context.xla_quirks
        by_steps = release.unrolls_by_steps or not quirks
        channel = next_channel_id(module)
        for loop in loops:
            is_last = loop is loops[-1]
            if is_last and len(loops) > 1:
                _clean_up(module, context)
            unrolled, channel = _unroll(
                loop, channel, by_steps=by_steps, counts_once=not quirks
            )
            if is_last:
                HloDce().run(module, context, Report())
                flatten_call_graph(module, xla_quirks=False)
            _put_on_streams(unrolled, queue, release, quirks=quirks)


def _same_scales(
    module: Module, loops: list[Instruction], *, quirks: bool
) -> Callable[[Instruction], bool]:
    """Whether devices have one scale: XLA never asks."""
    if quirks or not loops:
        return lambda _: True
    return Replication(module, across_partitions=module.num_partitions > 1).is_same


def _windowed_loops(module: Module, report: Report) -> list[Instruction]:
    graph = build_call_graph(module)
    loops: list[Instruction] = []
    for computation in computations_post_order(module, fusions=False):
        if not computation.name.startswith((GATHERS, SCATTERS)):
            continue
        if sum(i.opcode == "dot" for i in computation.instructions) <= 1:
            continue
        callers = graph.callers_of(computation)
        if len(callers) != 1 or callers[0].opcode != "while":
            report.remark(f"not unrolled: %{computation.name} is not one loop's body")
            continue
        loops.append(callers[0])
    return loops


def _clean_up(module: Module, context: PassContext) -> None:
    """What XLA does to a module before it unrolls a loop."""
    merge(module, Report(), scalars=True)
    TupleSimplifier().run(module, context, Report())


def _can_be_unrolled(loop: Instruction, report: Report) -> bool:
    counted = counted_loop(loop)
    body = loop.called_computations[0]
    iterations = counted.iterations if counted is not None else None
    if iterations is None or body.root.opcode != "tuple":
        reason = "does not count"
    elif iterations < 1:
        reason = "does not run"
    elif (
        len(body.instructions) > _MOST_INSTRUCTIONS
        or iterations > _MOST_ITERATIONS
        or iterations * len(body.instructions) > _MOST_IN_ALL
    ):
        reason = "is too large"
    else:
        return True
    report.remark(f"not unrolled: %{loop.name} {reason}")
    return False


def _unroll(
    loop: Instruction, channel: int, *, by_steps: bool, counts_once: bool
) -> tuple[Instruction, int]:
    """The unrolled loop and the next free channel id."""
    counted = counted_loop(loop)
    assert counted is not None
    assert counted.iterations is not None
    body, condition = loop.called_computations
    names = (f"unrolled_{condition.name}", f"unrolled_{body.name}")
    step = counted.step if by_steps else 1
    values = [counted.start + k * step for k in range(counted.iterations)]
    numbering = Numbering(channel)
    unrolled = unroll_in_loop(
        loop,
        counted.index,
        values,
        numbering,
        names=names,
        counts_once=counts_once,
    )
    attributes = unrolled.frontend_attributes.with_value(_STAYS_LOOP, "true")
    unrolled.frontend_attributes = attributes
    return unrolled, numbering.channel


def _put_on_streams(
    loop: Instruction, queue: int, release: XlaRelease, *, quirks: bool
) -> None:
    """Let permutes start early and dots run at the same time."""
    body = loop.called_computations[0]
    gathers = GATHERS in body.name
    window = _WINDOW if gathers or quirks else _SUM
    added: list[Instruction] = []
    for instruction in post_order(body):
        if not has_gpu_config(instruction):
            continue
        if instruction.opcode == "collective-permute":
            if _reads_element(instruction, window):
                set_force_earliest_schedule(instruction, release, value=True)
        elif instruction.opcode == "dot":
            set_operation_queue_id(instruction, release, queue)
            queue += 1
        elif instruction.opcode == "add":
            added += [o for o in reversed(instruction.operands) if o.opcode == "dot"][
                :1
            ]
    if added and gathers:
        move_sum_out(loop, added)


def _reads_element(instruction: Instruction, index: int) -> bool:
    # Of a combined permute XLA asks for the first operand.
    operand = instruction.operands[0]
    return (
        operand.opcode == "get-tuple-element"
        and operand.operands[0].opcode == "parameter"
        and operand.tuple_index == index
    )
