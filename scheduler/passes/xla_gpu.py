"""Does what XLA's GPU compiler does to collectives and their order, as far as it goes.

    Before:  %a = f32[16] all-gather(%x), ...           (partitioned, no schedule)
             %b = f32[8] all-gather(%y), ...
             %c = f32[8] negate(%z)
    After:   %s = (...) all-gather-start(%x, %y), ...
             %c = f32[8] negate(%z)
             %d = (f32[16], f32[8]) all-gather-done(%s)      is_scheduled=true

The text is what XLA has right after its partitioner, or anywhere later before its
scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from hlo_passes.passes.combining.combining import DEFAULT_THRESHOLD_BYTES
from hlo_passes.passes.framework.base import Pass
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule

#: The field of each combiner.
_THRESHOLD: Final = "threshold_bytes"
#: Before the passes of `gpu-schedule`.
_BEFORE_SCHEDULING: Final = (
    "hlo-cse",
    "hlo-dce",
    "tuple-simplifier",
    "while-loop-trip-count-annotator",
    "gpu-all-gather-combiner",
    "gpu-all-reduce-combiner",
    "gpu-reduce-scatter-combiner",
    "collective-permute-combiner",
)


@dataclass(frozen=True, slots=True)
class XlaGpu(GpuSchedule):
    """Combine collectives, then do all that `gpu-schedule` does; fuse nothing.

    It runs `hlo-cse`, `hlo-dce`, `tuple-simplifier`, `while-loop-trip-count-annotator`,
    `gpu-all-gather-combiner`, `gpu-all-reduce-combiner`, `gpu-reduce-scatter-combiner`
    and `collective-permute-combiner`, in XLA's order, and then the passes of
    `gpu-schedule`.

    It accepts every option of these passes, and passes it to all that have it.
    `threshold-bytes` is for all four combiners; the options below are for one each.

    It leaves out what else XLA does with a partitioned module. To collectives:
    reduce-scatters from all-reduces and slices of their results, other simplifications,
    reassociation and motion out of loops, quantization, promotion of narrow types, one
    array in place of the operands of an all-reduce, pipelining and the unrolling of
    loops, groups by key, and kernels of its own in place of NCCL. To everything else:
    simplification, layouts, libraries for products and convolutions, fusion, copy
    insertion, rematerialization. So compute is priced instruction by instruction where
    XLA fuses; `hlo-passes lower --target` runs XLA itself.

    Source: openxla/xla `xla/service/gpu/gpu_compiler.cc` (RunPostFusionPasses,
    RunCollectiveOptimizationPasses, AddCollectiveCombinerPasses),
    `xla/service/gpu/gpu_hlo_schedule.cc`.

    Attributes:
        all_gather_combine_threshold_bytes: bytes of a combined all-gather. With the
            default, which is XLA's, threshold-bytes decides, here and below.
        all_reduce_combine_threshold_bytes: bytes of a combined all-reduce.
        reduce_scatter_combine_threshold_bytes: bytes of a combined reduce-scatter.
        collective_permute_combine_threshold_bytes: bytes of a combined permute.
    """

    name: ClassVar[str] = "xla-gpu"
    members: ClassVar[tuple[str, ...]] = (*_BEFORE_SCHEDULING, *GpuSchedule.members)

    all_gather_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    all_reduce_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    reduce_scatter_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    collective_permute_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES

    def member(self, name: str, **fixed: object) -> Pass:
        """One pass with the options for it; a combiner's own threshold comes first."""
        made = GpuSchedule.member(self, name, **fixed)
        threshold = {
            "gpu-all-gather-combiner": self.all_gather_combine_threshold_bytes,
            "gpu-all-reduce-combiner": self.all_reduce_combine_threshold_bytes,
            "gpu-reduce-scatter-combiner": self.reduce_scatter_combine_threshold_bytes,
            "collective-permute-combiner": (
                self.collective_permute_combine_threshold_bytes
            ),
        }.get(name)
        if threshold in (None, DEFAULT_THRESHOLD_BYTES):
            return made
        changed: dict[str, Any] = {_THRESHOLD: threshold}
        return replace(made, **changed)
