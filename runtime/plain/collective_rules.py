"""Rules for collectives: bring them to the forms that XLA's CPU runtime executes.

    all-gather, dimensions={1}      ->  transpose, all-gather dimensions={0}, transpose
    all-to-all of one array         ->  slices, all-to-all of a tuple, concatenate
    all-reduce of bf16              ->  through f32, as XLA's own AllReducePromotion
    moving f8e4m3fn, s4, f4e2m1fn   ->  moved as u8, s8, f32 (exact)

Then each becomes a stand-in (`stand_ins.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.replica_groups import parse_replica_groups
from hlo_passes.ir.shapes import BITS, COMPLEX, Layout, Shape, array_shape, tuple_shape
from hlo_passes.runtime.plain.builder import Builder, Operation, Rule
from hlo_passes.runtime.plain.refusals import check_shape, refuse
from hlo_passes.runtime.plain.stand_ins import TARGET, Collective
from hlo_passes.runtime.plain.structure_rules import transposed
from hlo_passes.runtime.plain.values import Value, array_leaves, arrays, tree

#: Attributes that a collective keeps, in print order.
_KEPT: Final = (
    "channel_id", "replica_groups", "source_target_pairs", "use_global_device_ids",
    "dimensions",
)  # fmt: skip

#: Reductions that XLA's CPU runtime can do across devices, for numbers and for pred.
_NUMBER_REDUCTIONS: Final = ("add", "multiply", "minimum", "maximum")
_PRED_REDUCTIONS: Final = ("and", "or", *_NUMBER_REDUCTIONS)


def _stand_in(
    builder: Builder,
    op: Operation,
    operands: list[Instruction],
    results: list[Shape],
    *,
    reduction: str = "",
    dimension: int | None = None,
) -> list[Instruction]:
    """Add the stand-in; returns its results as arrays."""
    attributes = {n: op.attributes[n] for n in _KEPT if n in op.attributes}
    if dimension is not None:
        attributes["dimensions"] = f"{{{dimension}}}"
    else:
        attributes.pop("dimensions", None)
    number = len(builder.plain.collectives)
    builder.plain.collectives.append(
        Collective(
            op.opcode,
            attributes,
            reduction,
            operands[0].shape.element_type if operands else "",
            op.source.name,
        )
    )
    is_tuple = len(results) != 1 or op.opcode == "all-to-all"
    whole = builder.array(
        "custom-call",
        tuple_shape(results) if is_tuple else results[0],
        operands,
        {
            "custom_call_target": f'"{TARGET}"',
            # A collective moves bytes: its input is laid out like its output.
            "operand_layout_constraints": f"{{{', '.join(map(_row_major, operands))}}}",
            "custom_call_has_side_effect": "true",
            "backend_config": f'"{number}"',
        },
    )
    if not is_tuple:
        return [whole]
    return [builder.element(whole, k) for k in range(len(results))]


def _row_major(operand: Instruction) -> str:
    """Its shape as text, with the layout that every plain array has by default."""
    shape = operand.shape
    order = tuple(reversed(range(len(shape.dimensions))))
    return shape.with_layout(Layout(order)).text


def operand_arrays(op: Operation) -> list[Instruction]:
    """The operands of a collective; refuses one without any."""
    check_shape(op.source, op.shape)
    operands = [a for value in op.operands for a in arrays(value)]
    if not operands:
        refuse(op.source, "it has no operands")
    return operands


# -- types that cannot cross devices unchanged ------------------------------


def _carrier(element_type: str) -> str:
    """The type in which a type moves between devices."""
    if element_type.startswith("f8"):
        return "u8"
    if BITS[element_type] >= 8:
        return element_type
    return {"s": "s8", "u": "u8", "f": "f32"}[element_type[0]]


def in_carrier(builder: Builder, values: Iterable[Instruction]) -> list[Instruction]:
    """The values in their carriers' types."""
    return [_converted(builder, v, _carrier(v.shape.element_type)) for v in values]


def _converted(builder: Builder, value: Instruction, to: str) -> Instruction:
    source = value.shape.element_type
    if source == to:
        return value
    is_bytes = BITS[source] == BITS[to] == 8 and "f8" in (source[:2], to[:2])
    return builder.array(
        "bitcast-convert" if is_bytes else "convert",
        value.shape.with_element_type(to),
        (value,),
    )


def carried_back(
    builder: Builder, values: Iterable[Instruction], shapes: Iterable[Shape]
) -> list[Instruction]:
    """Values that moved in their carriers' types, in the types of these shapes."""
    return [
        _converted(builder, v, s.element_type)
        for v, s in zip(values, shapes, strict=True)
    ]


def _carried(shape: Shape) -> Shape:
    return shape.with_element_type(_carrier(shape.element_type))


# -- reductions ---------------------------------------------------------------


def _reduction(op: Operation, operands: list[Instruction]) -> str:
    """The opcode of a simple `to_apply`; refuses others."""
    callee = op.source.computation.module.computation(op.attributes["to_apply"])
    assert callee is not None
    root = callee.root
    while root.opcode in ("convert", "copy", "bitcast"):
        root = root.operands[0]
    types = {o.shape.element_type for o in operands}
    allowed = _PRED_REDUCTIONS if types == {"pred"} else _NUMBER_REDUCTIONS
    reads = {p for o in root.operands for p in _through_converts(o)}
    if root.opcode not in allowed or reads != set(callee.parameters):
        refuse(
            op.source,
            f"XLA's CPU back end reduces across devices by add, multiply, minimum, "
            f"maximum (pred: and, or), not by %{callee.name}",
        )
    if len(types) > 1:
        refuse(op.source, "it reduces arrays of several types")
    for kind in sorted(types):
        if kind.startswith("f8") or BITS[kind] < 8:
            refuse(op.source, f"XLA's CPU back end cannot reduce {kind} across devices")
        if kind in COMPLEX and root.opcode in ("minimum", "maximum"):
            refuse(op.source, f"{kind} has no {root.opcode}")
    return root.opcode


def _through_converts(value: Instruction) -> list[Instruction]:
    while value.opcode in ("convert", "copy", "bitcast"):
        value = value.operands[0]
    return [value]


def _widened(builder: Builder, values: Iterable[Instruction]) -> list[Instruction]:
    """bf16 as f32: XLA's CPU runtime has no bf16 reduction."""
    return [
        _converted(builder, v, "f32") if v.shape.element_type == "bf16" else v
        for v in values
    ]


def _all_reduce(builder: Builder, op: Operation) -> Value:
    operands = operand_arrays(op)
    reduction = _reduction(op, operands)
    wide = _widened(builder, operands)
    results = _stand_in(builder, op, wide, [w.shape for w in wide], reduction=reduction)
    leaves = carried_back(builder, results, array_leaves(op.shape))
    return tree(op.shape, leaves)


def _reduce_scatter(builder: Builder, op: Operation) -> Value:
    operands = operand_arrays(op)
    reduction = _reduction(op, operands)
    dimension = op.dimension
    wide = [_fronted(builder, w, dimension) for w in _widened(builder, operands)]
    shapes = array_leaves(op.shape)
    fronted = [
        _fronted_shape(s, dimension).with_element_type(w.shape.element_type)
        for s, w in zip(shapes, wide, strict=True)
    ]
    results = _stand_in(builder, op, wide, fronted, reduction=reduction, dimension=0)
    backed = [_backed(builder, r, dimension) for r in results]
    return tree(op.shape, carried_back(builder, backed, shapes))


# -- movements ----------------------------------------------------------------


def _front_order(rank: int, dimension: int) -> tuple[int, ...]:
    return (dimension, *(d for d in range(rank) if d != dimension))


def _fronted(builder: Builder, value: Instruction, dimension: int) -> Instruction:
    """The value with a dimension moved to the front."""
    return transposed(builder, value, _front_order(value.shape.rank, dimension))


def _fronted_shape(shape: Shape, dimension: int) -> Shape:
    order = _front_order(shape.rank, dimension)
    return array_shape(shape.element_type, tuple(shape.dimensions[d] for d in order))


def _backed(builder: Builder, value: Instruction, dimension: int) -> Instruction:
    """The value with its front dimension moved back."""
    order = _front_order(value.shape.rank, dimension)
    inverse = tuple(order.index(d) for d in range(len(order)))
    return transposed(builder, value, inverse)


def _all_gather(builder: Builder, op: Operation) -> Value:
    dimension = op.dimension
    operands = in_carrier(builder, operand_arrays(op))
    shapes = array_leaves(op.shape)
    results = _stand_in(
        builder,
        op,
        [_fronted(builder, o, dimension) for o in operands],
        [_fronted_shape(_carried(s), dimension) for s in shapes],
        dimension=0,
    )
    backed = [_backed(builder, r, dimension) for r in results]
    return tree(op.shape, carried_back(builder, backed, shapes))


def _collective_permute(builder: Builder, op: Operation) -> Value:
    if "slice_sizes" in op.attributes:
        refuse(op.source, "XLA's CPU back end has no permute into a part of an array")
    operands = in_carrier(builder, operand_arrays(op))
    shapes = array_leaves(op.shape)
    # With four operands of which two are one value, jaxlib 0.10.2 sees a permute into a
    # part of an array and refuses it. Two permutes mean the same.
    cut = 3 if len(operands) == _OPERANDS_OF_PARTIAL_PERMUTE else len(operands)
    results = []
    for part in (operands[:cut], operands[cut:]):
        if part:
            results += _stand_in(builder, op, part, [o.shape for o in part])
    return tree(op.shape, carried_back(builder, results, shapes))


def _all_to_all(builder: Builder, op: Operation) -> Value:
    operands = in_carrier(builder, operand_arrays(op))
    shapes = array_leaves(op.shape)
    if op.shape.is_tuple:
        results = exchanged(builder, op, operands)
        return tree(op.shape, carried_back(builder, results, shapes))
    dimension = op.dimension
    value = operands[0]
    parts = _slices(builder, value, dimension, _group_size(op))
    results = exchanged(builder, op, parts)
    whole = builder.array(
        "concatenate", value.shape, results, {"dimensions": f"{{{dimension}}}"}
    )
    return carried_back(builder, [whole], shapes)[0]


def exchanged(
    builder: Builder, op: Operation, parts: list[Instruction]
) -> list[Instruction]:
    """Part k to member k of the group, and what member k sends in its place.

    `op` is any collective whose groups mean what those of an all-to-all mean.
    """
    return _stand_in(
        builder, replace(op, opcode="all-to-all"), parts, [p.shape for p in parts]
    )


def _group_size(op: Operation) -> int:
    groups = parse_replica_groups(op.attributes.get("replica_groups", "{}")).groups
    if groups:
        return len(groups[0])
    module = op.source.computation.module
    return (
        module.num_partitions if "channel_id" in op.attributes else module.replica_count
    )


def _slices(
    builder: Builder, value: Instruction, dimension: int, count: int
) -> list[Instruction]:
    """The value, cut into equal parts along a dimension."""
    dimensions = list(value.shape.dimensions)
    dimensions[dimension] //= count
    shape = array_shape(value.shape.element_type, tuple(dimensions))
    parts = []
    for k in range(count):
        bounds = [f"[0:{size}]" for size in value.shape.dimensions]
        low = k * dimensions[dimension]
        bounds[dimension] = f"[{low}:{low + dimensions[dimension]}]"
        attributes = {"slice": f"{{{', '.join(bounds)}}}"}
        parts.append(builder.array("slice", shape, (value,), attributes))
    return parts


#: Array, target, and the two lists of offsets.
_OPERANDS_OF_PARTIAL_PERMUTE: Final = 4

RULES: Final[dict[str, Rule]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "collective-permute": _collective_permute,
    "all-to-all": _all_to_all,
}
