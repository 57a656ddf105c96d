"""Combines several all-gathers into one.

Before:  %a = f32[16] all-gather(%x), dimensions={0}, replica_groups={{0,1}}
         %b = bf16[8] all-gather(%y), dimensions={0}, replica_groups={{0,1}}
After:   %c = (f32[16], bf16[8]) all-gather(%x, %y), dimensions={0}, ...
         %g = f32[16] get-tuple-element(%c), index=0       readers of %a
         %h = bf16[8] get-tuple-element(%c), index=1       readers of %b
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.combining.gpu_combining import (
    CollectiveKey,
    GpuCombiner,
    collective_key,
    dimension_of,
)


@dataclass(frozen=True, slots=True)
class GpuAllGatherCombiner(GpuCombiner):
    """Combine independent all-gathers over the same groups, whatever their type.

    Ensures: no combined all-gather is combined again.
    Complexity: near-linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_gather_combiner.cc`.

    Attributes:
        combine_by_dim: combine only all-gathers along the same dimension; false: also
            combine the others, and turn them to a common dimension with bitcasts.
        combine_different_dtypes: combine all-gathers of different element types, too.
    """

    name: ClassVar[str] = "gpu-all-gather-combiner"
    needs_collectives: ClassVar[bool] = True
    opcode: ClassVar[str] = "all-gather"

    combine_by_dim: bool = False
    combine_different_dtypes: bool = True

    def base_key(self, collective: Instruction) -> CollectiveKey | str:
        """The key: groups and modes, and what the options add."""
        dimension = dimension_of(collective)
        by_dim = self.combine_by_dim and dimension is not None
        mixed = self.combine_different_dtypes
        return collective_key(
            collective,
            dimensions=dimension if by_dim else None,
            element_type="" if mixed else collective.shape.element_type,
        )
