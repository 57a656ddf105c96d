"""Tables that cost less to gather whole than what is looked up costs to sum.

    %table = f32[16,32] parameter(0), sharding={devices=[8,1]<=[8]}
    %rows = f32[64,32] gather(%table, %where)

Each device has two rows of the table. The partitioner lets each look up what it has,
put zeros elsewhere, and sums over all: an all-reduce of 64 rows. Where the table is
smaller than that, it is cheaper to have all of it first: an all-gather of 16 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from hlo_passes.analysis.sent_bytes import gathered_bytes, summed_bytes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.sharding_splits import Splits
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.sharding.values import Array, Program


@dataclass(frozen=True, slots=True)
class _Lookup:
    """One gather from a table that is divided where it is indexed.

    Attributes:
        whole: how the table is divided if nothing of that is left.
        gather_bytes: that a device sends for it.
        sum_bytes: that a device sends at least where results are summed.
    """

    whole: Splits
    gather_bytes: Fraction
    sum_bytes: Fraction


def gather_operands(program: Program, report: Report) -> None:
    """Annotate the tables of gathers as whole where that sends fewer bytes."""
    made: dict[tuple[Instruction, Splits], Instruction] = {}
    for instruction, copies in program.leaves.items():
        if instruction.opcode != "gather":
            continue
        table = instruction.operands[0]
        found = {
            _lookup(instruction, tables[0], results[0])
            for tables, results in zip(program.leaves[table], copies, strict=True)
        }
        if found == {None}:
            continue
        lookup = found.pop()
        if found or lookup is None:
            report.remark(
                f"%{instruction.name} looks up as it is: calls of "
                f"%{instruction.computation.name} divide it differently"
            )
            continue
        if lookup.gather_bytes >= lookup.sum_bytes:
            report.remark(
                f"%{instruction.name} looks up as it is: a device sends "
                f"{int(lookup.gather_bytes)} bytes to have all of %{table.name}, "
                f"and may send only {int(lookup.sum_bytes)} to sum what it finds"
            )
            continue
        key = table, lookup.whole
        if key not in made:
            made[key] = _annotated(table, lookup.whole, instruction)
        instruction.computation.set_operands(
            instruction, (made[key], *instruction.operands[1:])
        )
        report.count("tables-gathered")


def _annotated(table: Instruction, whole: Splits, user: Instruction) -> Instruction:
    """The table, annotated as the partitioner is to make it."""
    return user.computation.new(
        "custom-call",
        table.shape,
        [table],
        {
            "custom_call_target": '"Sharding"',
            "sharding": whole.to_sharding().to_text(),
        },
        name=f"{table.name}_whole",
        after=table,
    )


def _lookup(gather: Instruction, table: Array, result: Array) -> _Lookup | None:
    """The two ways of a gather; None where its table is not divided where indexed."""
    if table.is_opaque or result.is_opaque:
        return None
    taken = gather.integers("slice_sizes")
    indexed = [
        d
        for d in gather.integers("start_index_map")
        if table.splits.dims[d] is not None and taken[d] < table.shape.dimensions[d]
    ]
    if not indexed:
        return None
    whole = table.splits
    for d in indexed:
        whole = whole.with_split(d, None)
    members = table.splits.tiles // whole.tiles
    return _Lookup(
        whole,
        gathered_bytes(_part_bytes(table.shape, table.splits) * members, members),
        summed_bytes(_part_bytes(result.shape, result.splits), members),
    )


def _part_bytes(shape: Shape, splits: Splits) -> int:
    """Bytes of what a device has, filled up to the size of the first part."""
    if not shape.element_count:
        return 0
    elements = prod(
        -(-size // parts)
        for size, parts in zip(shape.dimensions, splits.parts, strict=True)
    )
    return shape.byte_size * elements // shape.element_count
