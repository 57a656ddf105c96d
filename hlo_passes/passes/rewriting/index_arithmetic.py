"""The arithmetic of slice starts, simplified as XLA simplifies it before unrolling.

    constant({0,8,16,24})                          iota * 8
    remainder(%i, 8)                               and(%i, 7)
    dynamic-slice(iota * 8, %i)                    reshape(convert(clamp(%i)) * 8)
    add(add(%i, 1), 1)                             add(%i, 2)
    reshape(reshape(%x)), copy(%x)                 reshape(%x), %x

XLA runs its whole algebraic simplifier and constant folding here, over the module.
These are the rules that apply to the loops that its partitioner makes; what else of a
module could be simplified stays as it is. Integers below 0 are left alone too.

Source: openxla/xla `xla/hlo/transforms/simplifiers/algebraic_simplifier.cc`,
`hlo_constant_folding.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scalar_expressions import wrapped
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.literals import parse_literal
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import INTEGRAL, Shape, array_shape
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.whole_numbers import number_of_digits

_INTEGER: Final = re.compile(r"-?[0-9]+")
_UNSIGNED: Final = frozenset({"u8", "u16", "u32", "u64"})
#: Types of tables and indices that XLA computes in place of reading a table.
_TABLES: Final = frozenset({"s32", "u32"})


def simplify_index_arithmetic(module: Module) -> bool:
    """Apply the rules once to each instruction, operands first; whether one applied.

    New instructions stay at the end of their computation, as in XLA, where of equal
    constants the first is kept: `restore_text_order` is up to the caller.
    """
    version = module.version
    for apply in (_simplify, _fold):
        for computation in computations_post_order(module, fusions=False):
            for instruction in post_order(computation):
                if not instruction.removed:
                    apply(instruction)
    return module.version != version


def _simplify(instruction: Instruction) -> None:
    rule = _RULES.get(instruction.opcode)
    if rule is not None:
        rule(instruction)


def _fold(instruction: Instruction) -> None:
    """The sum of two constants is a constant."""
    if instruction.opcode != "add":
        return
    values = [scalar_integer(operand) for operand in instruction.operands]
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        shape = instruction.shape
        value = wrapped(shape.element_type, sum(known))
        _replace(instruction, new_constant(instruction, shape, value))


def scalar_integer(instruction: Instruction) -> int | None:
    """The value of a constant scalar integer; None for anything else."""
    shape = instruction.shape
    if instruction.opcode != "constant" or not shape.is_scalar:
        return None
    text = (instruction.literal or "").strip()
    if shape.element_type not in INTEGRAL:
        return None
    return number_of_digits(text) if _INTEGER.fullmatch(text) else None


def new_constant(like: Instruction, shape: Shape, value: int) -> Instruction:
    """A constant scalar integer, added through an instruction that it is like."""
    constant = like.computation.new("constant", shape, literal=str(value))
    return derive(constant, like, added=True)


def _add(
    through: Instruction,
    opcode: str,
    shape: Shape,
    operands: tuple[Instruction, ...],
    **attributes: str,
) -> Instruction:
    new = through.computation.new(opcode, shape, operands, attributes)
    return derive(new, through, added=True)


def _replace(old: Instruction, new: Instruction) -> None:
    old.computation.replace(old, new)


# -- one rule per opcode -------------------------------------------------------


def _copy(copy: Instruction) -> None:
    (operand,) = copy.operands
    is_placed_root = copy.is_root and "sharding" in copy.attributes
    if not is_placed_root and copy.shape.compatible(operand.shape):
        _replace(copy, operand)


def _reshape(reshape: Instruction) -> None:
    (operand,) = reshape.operands
    if operand.shape.compatible(reshape.shape):
        _replace(reshape, operand)
    elif operand.opcode == "reshape":
        inner = operand.operands[0]
        _replace(reshape, _add(reshape, "reshape", reshape.shape, (inner,)))


def _table(constant: Instruction) -> None:
    """A table of multiples 0, k, 2k... is an iota, times k."""
    shape = constant.shape
    if not shape.is_array or shape.rank != 1 or shape.element_type not in INTEGRAL:
        return
    step = _table_step(constant)
    if not step:
        return
    iota = _add(constant, "iota", shape, (), iota_dimension="0")
    if step != 1:
        scalar = new_constant(constant, array_shape(shape.element_type), step)
        factor = _add(constant, "broadcast", shape, (scalar,), dimensions="{}")
        iota = _add(constant, "multiply", shape, (iota, factor))
    _replace(constant, iota)


def _table_step(constant: Instruction) -> int:
    """K of a table 0, k, 2k...; 0 for any other."""
    size = constant.shape.dimensions[0]
    if size < 2 or constant.literal is None:
        return 0
    array = parse_literal(constant.literal, constant.shape).array
    if array is None:
        return 0
    values = [int(value) for value in array]
    step = values[1]
    return step if values == [k * step for k in range(size)] else 0


def _remainder(remainder: Instruction) -> None:
    dividend, divisor = remainder.operands
    value = scalar_integer(divisor)
    if value is None or remainder.shape.element_type not in _UNSIGNED:
        return
    if value > 0 and value & (value - 1) == 0:
        mask = new_constant(remainder, divisor.shape, value - 1)
        _replace(remainder, _add(remainder, "and", remainder.shape, (dividend, mask)))


def _sum(add: Instruction) -> None:
    """A + 0 is A, (A + 1) + 2 is A + 3, and constants go to the right."""
    if add.shape.element_type not in INTEGRAL or not add.shape.is_scalar:
        return
    left, right = add.operands
    first, second = scalar_integer(left), scalar_integer(right)
    if second == 0 or first == 0:
        _replace(add, left if second == 0 else right)
    elif first is not None and second is None:
        _replace(add, _add(add, "add", add.shape, (right, left)))
    elif second is not None and left.opcode == "add":
        inner = scalar_integer(left.operands[1])
        if inner is not None and scalar_integer(left.operands[0]) is None:
            constants = (left.operands[1], right)
            total = add.computation.new("add", add.shape, constants)
            _replace(add, _add(add, "add", add.shape, (left.operands[0], total)))


def _lookup(lookup: Instruction) -> None:
    """Computes what a table of multiples holds, in place of reading it."""
    shape, table = lookup.shape, lookup.operands[0]
    if shape.dimensions != (1,) or shape.element_type not in _TABLES:
        return
    factor: Instruction | None = None
    if table.opcode == "multiply" and table.operands[1].opcode == "broadcast":
        (factor,) = table.operands[1].operands
        table = table.operands[0]
        if not factor.shape.is_scalar:
            return
    index = lookup.operands[1]
    if table.opcode != "iota" or index.shape.element_type not in _TABLES:
        return
    low = new_constant(index, index.shape, 0)
    high = new_constant(index, index.shape, table.shape.dimensions[0] - 1)
    result = _add(lookup, "clamp", index.shape, (low, index, high))
    if index.shape.element_type != shape.element_type:
        converted = index.shape.with_element_type(shape.element_type)
        result = _add(lookup, "convert", converted, (result,))
    if factor is not None:
        result = _add(lookup, "multiply", result.shape, (result, factor))
    _replace(lookup, _add(lookup, "reshape", shape, (result,)))


_RULES: Final[dict[str, Callable[[Instruction], None]]] = {
    "add": _sum,
    "constant": _table,
    "copy": _copy,
    "dynamic-slice": _lookup,
    "remainder": _remainder,
    "reshape": _reshape,
}
