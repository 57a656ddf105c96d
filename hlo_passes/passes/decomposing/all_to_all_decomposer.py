"""Splits the operand of an all-to-all into one operand for each device.

Before:  %a = f32[8,4] all-to-all(%x), dimensions={0}, replica_groups={{0,1}}
After:   %p = f32[4,4] slice(%x), slice={[0:4], [0:4]}
         %q = f32[4,4] slice(%x), slice={[4:8], [0:4]}
         %b = (f32[4,4], f32[4,4]) all-to-all(%p, %q), replica_groups={{0,1}}
         %c = f32[8,4] concatenate(element 0, element 1), dimensions={0}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.devices import members_of_each_group
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.copies import copy_of, derive
from hlo_passes.passes.rewriting.each_collective import rewrite_each

_KEPT = ("channel_id", "replica_groups")


@dataclass(frozen=True, slots=True)
class AllToAllDecomposer(Pass):
    """Split the array of an all-to-all into one operand for each device of its group.

    With `to-tuple=false`, the pass instead gives the array more dimensions, until it
    has `minimum-rank` of them. The split dimension becomes two: one for the devices,
    and one for what each device has. The pass leaves an all-to-all alone if the number
    of devices does not divide the split dimension. XLA calls the pass
    `all_to_all_decomposer`; its GPU pipeline does not run it.

    If an all-to-all lists no groups, XLA takes the number of replicas as the size of
    the group, whatever the ids mean. Without XLA's quirks (`--no-xla-quirks`), the pass
    uses the right size.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla `xla/service/all_to_all_decomposer.cc`.

    Attributes:
        to_tuple: split the array into one operand for each device; false: give the
            array more dimensions.
        minimum_rank: with `to-tuple=false`, the number of dimensions that the array
            should have.
    """

    name: ClassVar[str] = "all-to-all-decomposer"
    needs_collectives: ClassVar[bool] = True

    to_tuple: bool = True
    minimum_rank: int = 0

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all-to-alls in post order."""

        def decompose(all_to_all: Instruction) -> str:
            shape = all_to_all.shape
            if not shape.is_array:
                return "has an operand for each device"
            if all_to_all.attributes.get("constrain_layout") == "true":
                return "constrains layouts"
            if not self.to_tuple and shape.rank >= self.minimum_rank:
                return f"has {self.minimum_rank} dimensions or more"
            groups = groups_of(all_to_all)
            size = len(groups[0]) if groups else module.replica_count
            if not context.xla_quirks:
                size = members_of_each_group(all_to_all, module)
            (dimension,) = all_to_all.integers("dimensions")
            if not size or shape.dimensions[dimension] % size:
                return "has groups of a size that does not divide what is split"
            if self.to_tuple:
                _split(all_to_all, dimension, size)
            else:
                _deepen(all_to_all, dimension, size, self.minimum_rank)
            return ""

        return rewrite_each(module, "all-to-all", decompose, report, "decomposed")


def _split(all_to_all: Instruction, dimension: int, size: int) -> None:
    computation, shape = all_to_all.computation, all_to_all.shape
    sizes = list(shape.dimensions)
    part = sizes[dimension] // size
    sizes[dimension] = part
    part_shape = shape.with_dimensions(tuple(sizes))
    slices: list[Instruction] = []
    for k in range(size):
        ranges = [f"[0:{n}]" for n in sizes]
        ranges[dimension] = f"[{k * part}:{(k + 1) * part}]"
        piece = computation.new(
            "slice",
            part_shape,
            all_to_all.operands,
            {"slice": f"{{{', '.join(ranges)}}}"},
        )
        slices.append(derive(piece, all_to_all))
    attributes = {n: t for n, t in all_to_all.attributes.items() if n in _KEPT}
    exchanged = computation.new(
        "all-to-all",
        tuple_shape([part_shape] * size),
        slices,
        in_print_order(attributes, "all-to-all"),
    )
    derive(exchanged, all_to_all)
    received = [
        computation.new(
            "get-tuple-element", part_shape, (exchanged,), {"index": str(k)}
        )
        for k in range(size)
    ]
    joined = computation.new(
        "concatenate", shape, received, {"dimensions": f"{{{dimension}}}"}
    )
    computation.replace(all_to_all, derive(joined, all_to_all))


def _deepen(all_to_all: Instruction, dimension: int, size: int, rank: int) -> None:
    computation, shape = all_to_all.computation, all_to_all.shape
    sizes = shape.dimensions
    ones = (1,) * max(0, rank - shape.rank - 1)
    deep = array_shape(
        shape.element_type,
        (
            *sizes[:dimension],
            size,
            sizes[dimension] // size,
            *ones,
            *sizes[dimension + 1 :],
        ),
    )
    operand = computation.new("reshape", deep, all_to_all.operands)
    derive(operand, all_to_all)
    exchanged = copy_of(all_to_all, (operand,), deep)
    result = computation.new("reshape", shape, (exchanged,))
    computation.replace(all_to_all, derive(result, all_to_all))
