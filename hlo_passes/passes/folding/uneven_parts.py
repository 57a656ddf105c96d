"""Moves padding from after an all-reduce to before it, if each device keeps its part.

    %a = f32[9] all-reduce(%x), to_apply=%add
    %p = f32[12] pad(%a, %c), padding=0_3
    %d = f32[3] dynamic-slice(%p, %start)                part j at device j of a group

    %i = f32[12] pad(%x, %zero), padding=0_3
    %s = f32[3] reduce-scatter(%i), dimensions={0}, to_apply=%add

9 rows do not divide among 4 devices. So XLA's partitioner pads the reduced array before
each device takes its part. If the padding comes first, the reduction must give back its
value. A minimum or a maximum of equal values is that value, and an identity stays one.
Any other padding is written over the reduced rows of padding, which begin where the
array ends.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.analysis.device_offsets import Cut, cut_dimension, own_part
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.windows import parse_padding
from hlo_passes.passes.folding.reduce_scatter_creator import scatter
from hlo_passes.passes.rewriting.constants import scalar, spread
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.reductions import (
    is_identity,
    reduction_kind,
    reduction_of,
)

#: Equal values reduce to that value.
_IDEMPOTENT: Final = frozenset({"minimum", "maximum"})
#: Of row numbers: no array has more rows than a signed integer of this type counts.
_ROWS: Final = "s64"


def uneven_part(all_reduce: Instruction, module: Module) -> Cut | str:
    """How each device cuts its part out of the padded result, or why it does not.

    The text is '' for an all-reduce whose result is not padded.
    """
    if all_reduce.user_count != 1 or all_reduce.users[0].opcode != "pad":
        return ""
    pad = all_reduce.users[0]
    if not all_reduce.shape.is_array or all_reduce is not pad.operands[0]:
        return ""
    cut = own_part(all_reduce, module, padded=pad)
    return cut if isinstance(cut, str) else _obstacle(all_reduce, pad, cut) or cut


def _obstacle(all_reduce: Instruction, pad: Instruction, cut: Cut) -> str:
    for k, row in enumerate(parse_padding(pad.attributes["padding"]).dimensions):
        low, high, interior = row
        if low or interior or high < 0 or (high and k != cut.dimension):
            return f"is padded by %{pad.name} elsewhere than at the end of the cut rows"
    chain = (all_reduce, pad, cut.reshape, cut.dynamic_slice)
    for instruction in filter(None, chain):
        if has_control_edges(instruction):
            return f"stays, because %{instruction.name} has control edges"
        unknown = unknown_attribute(instruction)
        if unknown:
            return f"stays, because %{instruction.name} has the attribute {unknown}"
    reduction = reduction_of(all_reduce)
    if not reduction_kind(reduction) or reduction is None:
        return "reduces by something else than one sum, product, minimum or maximum"
    if reduction.root.shape.element_type != all_reduce.shape.element_type:
        return "reduces in another type"
    return ""


def write_uneven_part(all_reduce: Instruction, cut: Cut, channel: int) -> None:
    """Make a reduce-scatter of padded rows; the caller restores the text order.

    Args:
        all_reduce: the all-reduce whose result is padded and cut.
        cut: what `uneven_part` says.
        channel: a new channel id, for an all-reduce that has one.
    """
    computation, pad = all_reduce.computation, all_reduce.users[0]
    kind = reduction_kind(reduction_of(all_reduce))
    fill = pad.operands[1]
    rows = all_reduce.shape.dimensions[cut.dimension]
    # Where the padding does not survive the reduction, each device writes it again.
    inner = fill
    if kind not in _IDEMPOTENT and not is_identity(fill, kind):
        inner = scalar(computation, fill.shape.element_type, int(kind == "product"))
        _write_padding(cut.dynamic_slice, rows, fill)
    padded = copy_of(pad, [all_reduce.operands[0], inner])
    whole = copy_of(all_reduce, [padded], pad.shape)
    computation.replace_uses(pad, whole)
    computation.remove(pad)
    computation.remove_with_dead_operands(all_reduce)
    scatter(whole, cut, channel, derives=True)


def _write_padding(part: Instruction, rows: int, fill: Instruction) -> None:
    """Let readers of a slice see `fill` in what comes after so many rows."""
    computation = part.computation
    dimension = cut_dimension(part)
    assert dimension is not None
    numbers = part.shape.with_element_type(_ROWS)
    here = computation.new("iota", numbers, (), {"iota_dimension": str(dimension)})
    start = _as_rows(part.operands[dimension + 1], computation)
    row = computation.new("add", numbers, (here, spread(start, numbers)))
    end = spread(scalar(computation, _ROWS, rows), numbers)
    mask = part.shape.with_element_type("pred")
    is_row = computation.new("compare", mask, (row, end), {"direction": "LT"})
    padding = spread(fill, part.shape)
    readers, was_root = part.users, computation.root is part
    chosen = computation.new("select", part.shape, (is_row, part, padding))
    for reader in readers:
        computation.replace_operand(reader, part, chosen)
    if was_root:
        computation.set_root(chosen)


def _as_rows(start: Instruction, computation: Computation) -> Instruction:
    if start.shape.element_type == _ROWS:
        return start
    shape = start.shape.with_element_type(_ROWS)
    return computation.new("convert", shape, (start,))
