"""Combines several reduce-scatters into one.

Before:  %a = f32[4] reduce-scatter(%x), dimensions={0}, to_apply=%add, ...
         %b = f32[2] reduce-scatter(%y), dimensions={0}, to_apply=%add.1, ...
After:   %c = (f32[4], f32[2]) reduce-scatter(%x, %y), dimensions={0}, to_apply=%add
         %g = f32[4] get-tuple-element(%c), index=0        readers of %a
         %h = f32[2] get-tuple-element(%c), index=1        readers of %b
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.passes.combining.gpu_combining import (
    CollectiveKey,
    GpuCombiner,
    collective_key,
    dimension_of,
    simple_reduction,
)

#: Reductions with which a reduce-scatter is combined; the last two only on pred.
#: Source: openxla/xla `xla/service/collective_ops_utils.cc`.
_REDUCTIONS: Final = ("add", "multiply", "minimum", "maximum")
_LOGICAL_REDUCTIONS: Final = ("and", "or")


@dataclass(frozen=True, slots=True)
class GpuReduceScatterCombiner(GpuCombiner):
    """Combine independent reduce-scatters with the same reduction over the same groups.

    The reduction must be a sum, product, minimum or maximum, or on booleans an `and` or
    `or`.

    Ensures: no combined reduce-scatter is combined again.
    Complexity: near-linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/reduce_scatter_combiner.cc`.

    Attributes:
        combine_by_dim: combine only reduce-scatters along the same dimension; false:
            also combine the others, and turn them to a common dimension with bitcasts.
    """

    name: ClassVar[str] = "gpu-reduce-scatter-combiner"
    needs_collectives: ClassVar[bool] = True
    opcode: ClassVar[str] = "reduce-scatter"

    combine_by_dim: bool = False

    def base_key(self, collective: Instruction) -> CollectiveKey | str:
        """The key: reduction, groups and modes, and the dimension if requested."""
        reduction = simple_reduction(collective)
        if reduction is None or not _is_known(reduction):
            return "has a reduction of an unknown kind"
        dimension = dimension_of(collective) if self.combine_by_dim else None
        return collective_key(
            collective,
            dimensions=dimension,
            element_type=reduction.shape.element_type,
            to_apply=reduction.opcode,
        )

    def tuple_sharding(self, batch: Sequence[Instruction]) -> str:
        """The first member's sharding, unchanged."""
        return batch[0].attributes.get("sharding", "")


def _is_known(reduction: Instruction) -> bool:
    parameters = set(reduction.computation.parameters)
    if set(reduction.operands) != parameters:
        return False
    if reduction.opcode in _LOGICAL_REDUCTIONS:
        return reduction.shape.element_type == "pred"
    return reduction.opcode in _REDUCTIONS
