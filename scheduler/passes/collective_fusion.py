"""Puts collectives that run as one kernel over NVLink into fusions.

Before:  %r = f32[64,8] all-reduce(%x), backend_config={... "kernel_strategy":
             "KERNEL_STRATEGY_TRITON_ONE_SHOT" ...}
After:   %fused_r (param_0: f32[64,8]) -> f32[64,8] { ROOT %r.1 = all-reduce(%param_0) }
         %r-fusion = f32[64,8] fusion(%x), kind=kCustom, calls=%fused_r,
             backend_config={... "kind":"__triton_collective" ...}

Before:  %s = f32[64,8] all-reduce-start(%x), backend_config={... as above ...}
         %d = f32[64,8] all-reduce-done(%s)
After:   %async_computation { ROOT %f = f32[64,8] fusion(%param_0), ... as above ... }
         %t = ((f32[64,8]), f32[64,8]) async-start(%x), calls=%async_computation
         %e = f32[64,8] async-done(%t)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.async_form import done_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import (
    COLLECTIVE_KERNEL,
    collective_config,
    has_gpu_config,
)
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.asynchrony.async_wrapping import DESCRIPTION, async_pair
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_fusion_config
from hlo_passes.passes.rewriting.replacement import relay_control
from hlo_passes.scheduler.latency.backend_rows import kernel_strategies
from hlo_passes.scheduler.passes.collective_kernels import (
    KernelChoice,
    Launch,
)

#: What a fusion takes over from its collective.
_KEPT = ("metadata", "frontend_attributes")


@dataclass(frozen=True, slots=True)
class CollectiveFusion(Pass):
    """Wrap each annotated collective into a fusion of kind `__triton_collective`.

    `collective-kernel-strategy-annotator` runs before this pass and annotates the
    collectives. The fusion's backend config says how to launch the kernel: the warps of
    a block and the tile of the result. If an all-reduce takes two shots and has several
    dimensions, the pass first makes it one-dimensional. XLA 0.10.2 has no such fusions;
    for that release, the pass does nothing. From 0.12 on, an annotated
    `all-reduce-start` becomes an `async-start` of the fusion, at the same place. If it
    takes two shots and has several dimensions, it stays: XLA puts bitcasts into what
    the `async-start` runs, and its own verifier then refuses the module.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, and in devices for each distinct list of groups.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/collective_fusion.cc`,
    `xla/backends/gpu/codegen/triton/collective_emitter.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "collective-fusion"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find what is annotated, then wrap it."""
        found = [
            instruction
            for computation in computations_post_order(module, fusions=False)
            for instruction in computation.instructions
            if str(collective_config(instruction).get("kernel_strategy", ""))
            in kernel_strategies()
        ]
        if not found:
            return False
        version, release = module.version, context.release_for(module, self.xla)
        choice = KernelChoice.of(module, context.pricing, release)
        general = choice.reason_against_all()
        for collective in found:
            reason = general or _reason_to_keep(collective, choice)
            if reason:
                report.remark(f"not fused: %{collective.name} {reason}")
                continue
            if collective.opcode == "all-reduce-start":
                collective = _in_generic_pair(collective)
            _fuse(collective, choice)
            report.count("collectives-fused")
        return module.version != version


def _reason_to_keep(collective: Instruction, choice: KernelChoice) -> str:
    started = collective.opcode == "all-reduce-start"
    if started:
        fused = choice.release.kernels_take_starts
    else:
        fused = collective.opcode in choice.release.fused_kernels
    if not fused:
        return f"is not fused by XLA {choice.release}"
    if started and done_of(collective) is None:
        return "has no done"
    reason = choice.reason_against(collective)
    if reason:
        return reason
    if not has_gpu_config(collective):
        return "has a backend config of another back end"
    if collective.shape.element_count == 0:
        return "has no elements"
    if started and _is_flattened(collective, choice):
        return "would need bitcasts between its async-start and its kernel"
    if has_control_edges(collective) and not started:
        return "has control edges"
    return ""


def _in_generic_pair(start: Instruction) -> Instruction:
    """Let an `async-start` run the all-reduce of a start; returns that all-reduce."""
    computation, done = start.computation, done_of(start)
    assert done is not None, "a start without one was left alone"
    # A synchronous all-reduce is what the generic pair wraps.
    attributes = {n: t for n, t in start.attributes.items() if n != "sharding"}
    reduction = computation.new(
        "all-reduce", done.shape, start.operands, attributes, before=start
    )
    new_start, new_done = async_pair(
        reduction,
        described=(*DESCRIPTION, "frontend_attributes"),
        awaited_before=done,
    )
    computation.remove(reduction)
    # The new halves wait, and are waited for, as the old ones.
    for old, new in ((start, new_start), (done, new_done)):
        relay_control(old, new)
        computation.drop_control_edges(old)
    computation.replace_uses(done, new_done)
    computation.remove(done)
    computation.remove(start)
    (wrapper,) = new_start.called_computations
    return wrapper.root


def _is_flattened(collective: Instruction, choice: KernelChoice) -> bool:
    """Whether its kernel takes it as one dimension."""
    return choice.takes_two_shots(collective) and collective.shape.rank > 1


def _fuse(collective: Instruction, choice: KernelChoice) -> None:
    computation, module = collective.computation, collective.computation.module
    (operand,) = collective.operands
    shape = collective.shape
    flat = _is_flattened(collective, choice)
    if flat:
        # The kernel reduces the buffer as it lies in memory.
        inner, outer = _flat(operand.shape), _flat(shape)
        operand = computation.new("bitcast", inner, (operand,), before=collective)
    else:
        inner, outer = operand.shape, shape
    body = Computation(
        module.fresh_computation_name(f"fused_{collective.name}"),
        execution_thread=computation.execution_thread,
    )
    module.add_computation(body, before=computation)
    parameter = body.new("parameter", inner, name="param_0", literal="0")
    root = body.new(
        collective.opcode,
        outer,
        (parameter,),
        collective.attributes,
        name=collective.name,
    )
    body.set_root(root)
    fusion = computation.new(
        "fusion",
        outer,
        (operand,),
        {"kind": "kCustom", "calls": f"%{body.name}"},
        name=f"{collective.name}-fusion",
        before=collective,
    )
    for name in (*_KEPT, "backend_config"):
        text = collective.attributes.get(name)
        if text is not None:
            fusion.set_attribute(name, text)
    set_fusion_config(fusion, choice.release, _config(choice.launch(root)))
    result = fusion
    if flat:
        result = computation.new("bitcast", shape, (fusion,), before=collective)
    computation.replace_uses(collective, result)
    computation.remove(collective)


def _flat(shape: Shape) -> Shape:
    return array_shape(shape.element_type, (shape.element_count,))


def _config(launch: Launch) -> Mapping[str, Any]:
    """`fusion_backend_config` as XLA prints it: by name, 64-bit numbers as text."""
    return {
        "block_level_fusion_config": {
            "group_size": 0,
            "is_tma_allowed": False,
            "is_warp_specialization_allowed": False,
            "num_ctas": 1,
            "num_stages": 1,
            "num_tiles_per_pid": 0,
            "num_warps": str(launch.warps),
            "output_tiles": [{"sizes": [str(side) for side in launch.tile]}],
            "waves_per_eu": 0,
        },
        "kind": COLLECTIVE_KERNEL,
    }
