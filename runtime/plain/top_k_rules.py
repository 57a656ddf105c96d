"""Rules for top-k: a stable sort of values with their places, and its first k.

    (f32[3,5], s32[3,5]) topk(%a), k=5, largest=true
    ->
    slices of sort(%a, iota), is_stable=true, by the total order, greatest first

It works like XLA's own TopkDecomposer, and is written here because releases spell the
opcode's attributes differently. The custom-call `TopK` is XLA's earlier form.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import FLOATING, Shape, array_shape, tuple_shape
from hlo_passes.runtime.plain.builder import Builder, Operation, Rule
from hlo_passes.runtime.plain.refusals import check_shape, refuse
from hlo_passes.runtime.plain.values import Value, array_leaves, arrays

_PRED: Final = array_shape("pred")


def top_k(builder: Builder, op: Operation) -> Value:
    """The k largest (smallest) elements of each row, and their places."""
    check_shape(op.source, op.shape)
    leaves = array_leaves(op.shape)
    operands = [a for value in op.operands for a in arrays(value)]
    if len(operands) != 1 or len(leaves) != 2 or not leaves[0].dimensions:
        refuse(op.source, "a top-k of this form has no plain form here")
    value, last = operands[0], leaves[0].rank - 1
    places_shape = array_shape(leaves[1].element_type, value.shape.dimensions)
    places = builder.array("iota", places_shape, (), {"iota_dimension": str(last)})
    whole = builder.array(
        "sort",
        tuple_shape([value.shape, places_shape]),
        (value, places),
        {
            "dimensions": f"{{{last}}}",
            "is_stable": "true",
            "to_apply": "%" + _comparator(builder, op, value.shape, places_shape),
        },
    )
    bounds = ", ".join(f"[0:{size}]" for size in leaves[0].dimensions)
    return tuple(
        builder.array(
            "slice", leaf, (builder.element(whole, k),), {"slice": f"{{{bounds}}}"}
        )
        for k, leaf in enumerate(leaves)
    )


def _comparator(builder: Builder, op: Operation, values: Shape, places: Shape) -> str:
    """A computation that returns whether the first of two elements comes first."""
    attributes = {"direction": "GT" if _wants_largest(op) else "LT"}
    if values.element_type in FLOATING:
        attributes["type"] = "TOTALORDER"

    def body() -> Instruction:
        kinds = [values.element_type] * 2 + [places.element_type] * 2
        one, other, _, _ = [
            builder.at.new("parameter", array_shape(kind), name="r", literal=str(n))
            for n, kind in enumerate(kinds)
        ]
        return builder.array("compare", _PRED, (one, other), attributes)

    return builder.computation("top_k_order", body).name


def _wants_largest(op: Operation) -> bool:
    if op.opcode == "topk":
        return op.attributes.get("largest", "true") == "true"
    directions = {
        c.root.attributes.get("direction") for c in op.source.called_computations
    }
    if directions <= {"GT", "GE"}:
        return True
    if directions <= {"LT", "LE"}:
        return False
    refuse(op.source, "its order is not known here")


RULES: Final[dict[str, Rule]] = {"topk": top_k}
