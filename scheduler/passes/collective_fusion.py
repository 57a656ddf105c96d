"""Puts collectives that run as one kernel over NVLink into fusions.

Before:  %r = f32[64,8] all-reduce(%x), backend_config={... "kernel_strategy":
             "KERNEL_STRATEGY_TRITON_ONE_SHOT" ...}
After:   %fused_r (param_0: f32[64,8]) -> f32[64,8] { ROOT %r.1 = all-reduce(%param_0) }
         %r-fusion = f32[64,8] fusion(%x), kind=kCustom, calls=%fused_r,
             backend_config={... "kind":"__triton_collective" ...}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import (
    COLLECTIVE_KERNEL,
    collective_config,
    has_gpu_config,
)
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_fusion_config
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
    for that release, the pass does nothing.

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
            _fuse(collective, choice)
            report.count("collectives-fused")
        return module.version != version


def _reason_to_keep(collective: Instruction, choice: KernelChoice) -> str:
    if collective.opcode not in choice.release.fused_kernels:
        return f"is not fused by XLA {choice.release}"
    reason = choice.reason_against(collective)
    if reason:
        return reason
    if not has_gpu_config(collective):
        return "has a backend config of another back end"
    if collective.shape.element_count == 0:
        return "has no elements"
    if has_control_edges(collective):
        return "has control edges"
    return ""


def _fuse(collective: Instruction, choice: KernelChoice) -> None:
    computation, module = collective.computation, collective.computation.module
    (operand,) = collective.operands
    shape = collective.shape
    flat = choice.takes_two_shots(collective) and shape.rank > 1
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
