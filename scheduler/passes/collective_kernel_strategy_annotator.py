"""Notes which collectives run as one kernel over NVLink instead of by NCCL.

Before:  %r = f32[64,8] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add
After:   %r = ..., backend_config={"collective_backend_config":{...
             "kernel_strategy":"KERNEL_STRATEGY_TRITON_ONE_SHOT"}...}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.errors import PipelineSpecError
from hlo_passes.ir.async_form import done_of, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.asynchrony.explicit_collectives_group_async_wrapper import (
    GROUP_MARK,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields
from hlo_passes.scheduler.passes.collective_kernels import KernelChoice

#: Kinds by the names of the flag.
_KINDS: Final = {"ALL_REDUCE": "all-reduce", "ALL_GATHER": "all-gather"}


@dataclass(frozen=True, slots=True)
class CollectiveKernelStrategyAnnotator(Pass):
    """Write into the backend config of small all-reduces which kernel runs them.

    XLA has its own kernels for Hopper and newer GPUs with NVLink. An all-reduce has a
    kernel under these conditions:

    - It has a single operand of at most 4 MiB.
    - It adds, multiplies, or takes the minimum or maximum of f32, bf16, f64, s32 or
      s64; or it takes `and` or `or` of pred.
    - It names groups of one size, a power of two, whose devices are near one another.

    Up to 256 KiB, the kernel takes one shot; above that, it takes two. The estimators
    of the scheduler price such a collective as a kernel.

    The releases differ. In 0.10.2, groups of up to 8 devices have kernels, wherever
    these devices are. In 0.11, such groups have kernels only if their devices are in
    one host. In 0.12, groups of up to 64 devices of one NVLink domain have kernels, and
    the limits of bytes grow as groups get smaller. From 0.11 on, all-gathers have
    kernels, too. In 0.11, the size must be a multiple of 16 bytes and at most 512 KiB.
    In 0.12, the part of a device must be a power of two along the gathered dimension,
    and the result may have up to 16 MiB.

    From 0.12 on, the pass also annotates an `all-reduce-start` that the module already
    has. All other asynchronous collectives are left alone. XLA also annotates
    collectives of no elements, and then aborts. Without XLA's quirks
    (`--no-xla-quirks`), the pass leaves them alone.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, and in devices for each distinct list of groups.
    Source: openxla/xla `xla/backends/gpu/transforms/collectives/`
    `collective_kernel_strategy_annotator.cc`, `xla/backends/gpu/runtime/all_reduce.cc`.

    Attributes:
        use_collective_kernels: kinds to annotate, separated by blanks: ALL_REDUCE,
            ALL_GATHER.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "collective-kernel-strategy-annotator"
    needs_collectives: ClassVar[bool] = True

    use_collective_kernels: tuple[str, ...] = ("ALL_REDUCE",)
    xla: str = ""

    def __post_init__(self) -> None:
        """Refuse kinds that do not exist (U013)."""
        for kind in self.use_collective_kernels:
            if kind not in _KINDS:
                raise PipelineSpecError(
                    f"{self.name}: unknown collective {kind}",
                    code="U013",
                    hint=f"expected some of {', '.join(_KINDS)}",
                )

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Look at every synchronous collective, and at starts from 0.12 on."""
        release = context.release_for(module, self.xla)
        opcodes = {_KINDS[kind] for kind in self.use_collective_kernels}
        if release.kernels_take_starts and "all-reduce" in opcodes:
            opcodes.add("all-reduce-start")
        found = [
            instruction
            for computation in computations_post_order(module, fusions=False)
            for instruction in computation.instructions
            if instruction.opcode in opcodes
        ]
        if not found:
            return False
        choice = KernelChoice.of(module, context.pricing, release)
        reason = choice.reason_against_all()
        if reason:
            report.remark(f"nothing annotated: {reason}")
            return False
        version = module.version
        quirks = context.xla_quirks
        reasons = [reason_without_kernel(c, choice, quirks=quirks) for c in found]
        for collective, reason in zip(found, reasons, strict=True):
            if reason:
                report.remark(f"not annotated: %{collective.name} {reason}")
                continue
            strategy = choice.row(collective).value
            set_collective_fields(collective, release, kernel_strategy=strategy)
            report.count("collectives-annotated")
        return module.version != version


def reason_without_kernel(
    collective: Instruction, choice: KernelChoice, *, quirks: bool
) -> str:
    """Why a collective is not annotated with its kernel; '' if it may be."""
    if _is_grouped(collective.computation):
        return "belongs to a group of collectives"
    if is_start(collective) and done_of(collective) is None:
        return "has no done"
    reason = choice.reason_against(collective)
    if reason:
        return reason
    if not has_gpu_config(collective):
        return "has a backend config of another back end"
    if not quirks and collective.shape.element_count == 0:
        return "has no elements"
    return ""


def _is_grouped(computation: Computation) -> bool:
    callers = computation.module.callers(computation)
    return any(GROUP_MARK in caller.frontend_attributes for caller in callers)
