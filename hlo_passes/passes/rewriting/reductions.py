"""What all-reduces and reduce-scatters compute, and when two of them may become one.

    %sum (a: f32[], b: f32[]) -> f32[] { ... ROOT %r = f32[] add(%a, %b) }
    all-reduce(%x), to_apply=%sum            reduction 'add' of f32

Source: openxla/xla `xla/service/all_reduce_key.cc`,
`xla/service/collective_ops_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.element_types import WITH_INFINITY, integer_range, numpy_dtype
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.literal_text import array_text
from hlo_passes.ir.literals import parse_literal
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import FLOATING, INTEGRAL, array_shape

#: Opcode -> what it computes. On booleans `and` is a minimum, `or` a maximum.
_KINDS: Final = {
    "add": "sum", "multiply": "product", "minimum": "minimum", "maximum": "maximum",
}  # fmt: skip
_BOOLEAN_KINDS: Final = {**_KINDS, "and": "minimum", "or": "maximum"}
#: Frontend attribute: only collectives with the same value may become one.
GROUP_KEY: Final = "collective_group_key"


def reduction_of(collective: Instruction) -> Computation | None:
    """The computation that an all-reduce or reduce-scatter applies."""
    called = collective.called_computations
    return called[0] if len(called) == 1 else None


def reduction_opcode(reduction: Computation | None) -> str:
    """The opcode of `root = opcode(a, b)` with two parameters; '' for other forms."""
    if reduction is None:
        return ""
    instructions = reduction.instructions
    parameters = sum(i.opcode == "parameter" for i in instructions)
    return reduction.root.opcode if (len(instructions), parameters) == (3, 2) else ""


def kind_of(opcode: str, element_type: str) -> str:
    """'sum', 'product', 'minimum', 'maximum', or '' for what is no reduction."""
    kinds = _BOOLEAN_KINDS if element_type == "pred" else _KINDS
    return kinds.get(opcode, "")


def reduction_kind(reduction: Computation | None) -> str:
    """What a reduction of both its parameters computes (`kind_of`); '' if unknown."""
    if not reduction_opcode(reduction) or reduction is None:
        return ""
    root = reduction.root
    numbers = sorted(o.literal or "" for o in root.operands if o.opcode == "parameter")
    if numbers != ["0", "1"] or root.shape.element_count != 1:
        return ""
    return kind_of(root.opcode, root.shape.element_type)


def reduction_key(
    collective: Instruction, *, any_groups: bool = False, any_type: bool = False
) -> Hashable | None:
    """What two reducing collectives share if they can be one; None if it never can.

    Args:
        collective: an all-reduce or reduce-scatter.
        any_groups: leave the groups out.
        any_type: leave the element type out.
    """
    reduction = reduction_of(collective)
    opcode = reduction_opcode(reduction)
    if reduction is None or not opcode or has_control_edges(collective):
        return None
    return (
        opcode,
        None if any_type else reduction.root.shape.element_type,
        collective.channel_id is not None,
        collective.use_global_device_ids,
        None if any_groups else groups_of(collective),
    )


def group_key(collective: Instruction) -> str:
    """The `collective_group_key` of an instruction, '' where it has none."""
    if not collective.mentions(GROUP_KEY):
        return ""
    return collective.frontend_attributes.get(GROUP_KEY, "")


def constrains_layouts(module: Module, opcode: str) -> bool:
    """Whether any instruction of an opcode has `constrain_layout=true`."""
    return any(
        i.opcode == opcode
        and i.mentions("constrain_layout")
        and i.attributes.get("constrain_layout") == "true"
        for computation in module.computations
        for i in computation.instructions
    )


def without_mixed_layouts(
    module: Module, rewrite: Callable[[Instruction], str]
) -> Callable[[Instruction], str]:
    """What makes an all-reduce of a collective, where that mixes nothing.

    Either all all-reduces of a module have `constrain_layout=true` or none has.

    Args:
        module: whose all-reduces are counted now.
        rewrite: the rewrite; it keeps `constrain_layout`, and returns '' or why not.
    """
    found = {
        i.attributes.get("constrain_layout") == "true"
        for computation in module.computations
        for i in computation.instructions
        if i.opcode in ("all-reduce", "all-reduce-start")
    }

    def rewrite_alike(collective: Instruction) -> str:
        constrained = collective.attributes.get("constrain_layout") == "true"
        if found - {constrained}:
            return "would mix all-reduces with and without constrain_layout"
        reason = rewrite(collective)
        if not reason:
            found.add(constrained)
        return reason

    return rewrite_alike


def identity_text(kind: str, element_type: str) -> str:
    """The scalar that leaves every other value as it is in a reduction; '' for none.

    Complex numbers have none for minimum and maximum.
    """
    if kind in ("sum", "product"):
        return number_text(element_type, int(kind == "product"))
    if element_type == "pred":
        return "true" if kind == "minimum" else "false"
    if element_type in INTEGRAL:
        low, high = integer_range(element_type)
        return str(high if kind == "minimum" else low)
    if element_type in WITH_INFINITY:
        return "inf" if kind == "minimum" else "-inf"
    return _limit_text(element_type, largest=kind == "minimum")


def _limit_text(element_type: str, *, largest: bool) -> str:
    """The largest or smallest number of a floating type without infinities."""
    if element_type not in FLOATING:
        return ""
    import numpy as np
    from ml_dtypes import finfo

    kind = numpy_dtype(element_type)
    limit = finfo(kind).max if largest else finfo(kind).min
    return array_text(np.asarray(limit, kind), element_type)


def number_text(element_type: str, number: int) -> str:
    """A small whole number as a scalar constant of a type is written."""
    if element_type == "pred":
        return "true" if number else "false"
    return f"({number}, 0)" if element_type.startswith("c") else str(number)


def is_identity(constant: Instruction, kind: str) -> bool:
    """Whether a scalar constant leaves every other value as it is in a reduction."""
    shape = constant.shape
    if constant.opcode != "constant" or constant.literal is None or shape.dimensions:
        return False
    text = identity_text(kind, shape.element_type)
    given = parse_literal(constant.literal, shape).array
    if not text or given is None:
        return False
    wanted = parse_literal(text, shape).array
    return wanted is not None and given.tobytes() == wanted.tobytes()


def add_reduction(
    module: Module, opcode: str, element_type: str, name: str, before: Computation
) -> Computation:
    """A new computation that applies an operation to two scalars `x` and `y`."""
    reduction = Computation(module.fresh_computation_name(name))
    module.add_computation(reduction, before=before)
    scalar = array_shape(element_type)
    parameters = [
        reduction.new("parameter", scalar, name=stem, literal=str(number))
        for number, stem in enumerate("xy")
    ]
    reduction.set_root(reduction.new(opcode, scalar, parameters))
    return reduction
