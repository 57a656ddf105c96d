"""Rules for what only arranges values: tuples, calls, loops, copies, bitcasts, tokens.

%c = f32[8]{0} copy(%x)            ->  %x
%b = f32[8,4]{1,0} bitcast(%x)     ->  transposes and a reshape   (%x f32[4,8]{0,1})
%w = while(%t), body=%b            ->  while over a flat tuple
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hlo_passes.ir.async_form import work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import BITS, Shape, array_shape, tuple_shape
from hlo_passes.runtime.plain.builder import Builder, Operation, Rule
from hlo_passes.runtime.plain.refusals import (
    REASONS,
    check_constant,
    check_shape,
    refuse,
)
from hlo_passes.runtime.plain.values import (
    TOKEN,
    Pending,
    Token,
    Value,
    array_leaves,
    arrays,
    plain_shape,
    tree,
)


def _same(builder: Builder, op: Operation) -> Value:
    return op.operands[0]


def _token(builder: Builder, op: Operation) -> Value:
    return TOKEN


def _tuple(builder: Builder, op: Operation) -> Value:
    return op.operands


def _element(builder: Builder, op: Operation) -> Value:
    whole = op.operands[0]
    index = int(op.attributes["index"])
    if isinstance(whole, Pending):
        if index:
            refuse(op.source, "it reads the result of a start before its done")
        return whole.operands[0] if len(whole.operands) == 1 else whole.operands
    assert isinstance(whole, tuple)
    return whole[index]


def _constant(builder: Builder, op: Operation) -> Value:
    check_constant(op.source)
    check_shape(op.source, op.shape)
    return builder.emit("constant", op.shape, (), literal=op.source.literal)


def _inline(builder: Builder, op: Operation) -> Value:
    return builder.inline(op.source.called_computations[0], op.operands)


def _while(builder: Builder, op: Operation) -> Value:
    check_shape(op.source, op.shape)
    body, condition = op.source.called_computations
    watched = builder.is_watched(body)
    initial = arrays(op.operands[0])
    if watched:
        initial.append(builder.constant(array_shape("s32"), "0"))
    attributes = {
        "condition": "%"
        + builder.with_tuple_parameter(
            condition, op.shape, packed=False, alarm_in=watched
        ),
        "body": "%"
        + builder.with_tuple_parameter(
            body, op.shape, alarm_in=watched, alarm_out=watched
        ),
    }
    operands = (builder.pack(initial),)
    return _taken_apart(builder, "while", op.shape, operands, attributes, watched)


def _conditional(builder: Builder, op: Operation) -> Value:
    check_shape(op.source, op.shape)
    names, states = [], []
    branches = op.source.called_computations
    watched = any(map(builder.is_watched, branches))
    for branch, state in zip(branches, op.operands[1:], strict=True):
        shape = branch.parameters[0].shape
        names.append(
            "%" + builder.with_tuple_parameter(branch, shape, alarm_out=watched)
        )
        states.append(builder.pack(arrays(state)))
    selector = op.operands[0]
    assert isinstance(selector, Instruction)
    if "true_computation" in op.attributes or selector.shape.element_type == "pred":
        attributes = {"true_computation": names[0], "false_computation": names[1]}
    else:
        attributes = {"branch_computations": f"{{{', '.join(names)}}}"}
    operands = (selector, *states)
    return _taken_apart(builder, "conditional", op.shape, operands, attributes, watched)


def _taken_apart(
    builder: Builder,
    opcode: str,
    shape: Shape,
    operands: tuple[Instruction, ...],
    attributes: Mapping[str, str],
    watched: bool,
) -> Value:
    """The elements of what a loop or a branch gives; its alarm is kept."""
    leaves = array_leaves(shape) + [array_shape("s32")] * watched
    whole = builder.array(opcode, tuple_shape(leaves), operands, attributes)
    elements = [builder.element(whole, k) for k in range(len(leaves))]
    if watched:
        builder.alarms.append(elements.pop())
    return tree(shape, elements)


def _bitcast(builder: Builder, op: Operation) -> Value:
    """Read the operand's bytes in the result's layout, by logical operations."""
    check_shape(op.source, op.shape)
    value = op.operands[0]
    assert isinstance(value, Instruction)
    source, result = op.source.operands[0].shape, op.shape
    for shape in (source, result):
        if shape.layout is not None and shape.layout.tiles:
            refuse(op.source, f"{shape.text} is tiled")
    if BITS[source.element_type] != BITS[result.element_type]:
        refuse(op.source, f"{source.text} and {result.text} differ in element width")
    major = _major_to_minor(source)
    value = transposed(builder, value, major)
    if value.shape.element_type != result.element_type:
        retyped = value.shape.with_element_type(result.element_type)
        value = builder.array("bitcast-convert", retyped, (value,))
    result_major = _major_to_minor(result)
    physical = array_shape(
        result.element_type, tuple(result.dimensions[d] for d in result_major)
    )
    if physical != value.shape:
        value = builder.array("reshape", physical, (value,))
    back = tuple(result_major.index(d) for d in range(result.rank))
    return transposed(builder, value, back)


def _major_to_minor(shape: Shape) -> tuple[int, ...]:
    assert shape.layout is not None
    return tuple(reversed(shape.layout.minor_to_major))


def transposed(
    builder: Builder, value: Instruction, order: tuple[int, ...]
) -> Instruction:
    """The value with its dimensions in this order; itself for the identity."""
    if order == tuple(range(len(order))):
        return value
    dimensions = tuple(value.shape.dimensions[d] for d in order)
    return builder.array(
        "transpose",
        array_shape(value.shape.element_type, dimensions),
        (value,),
        {"dimensions": f"{{{','.join(map(str, order))}}}"},
    )


def _dimension_size(builder: Builder, op: Operation) -> Value:
    dimension = op.dimension
    size = op.source.operands[0].shape.dimensions[dimension]
    return builder.constant(plain_shape(op.shape), str(size))


def _start(builder: Builder, op: Operation) -> Value:
    return Pending(op.source, op.operands)


def _update(builder: Builder, op: Operation) -> Value:
    """The same operation in flight, with the operands that come late (jax 0.12)."""
    pending, *late = op.operands
    if not late or not isinstance(pending, Pending):
        return pending
    return Pending(pending.start, (*pending.operands, *late))


def _done(builder: Builder, op: Operation) -> Value:
    """The whole operation, here: what a start begins runs in the place of its done."""
    pending = op.operands[0]
    if isinstance(pending, Instruction | tuple | Token):
        refuse(op.source, "its start is not in the same computation")
    start = pending.start
    if start.opcode == "copy-start":
        return pending.operands[0]
    if start.opcode == "async-start":
        return builder.inline(start.called_computations[0], pending.operands)
    opcode = work_of(start)
    return builder.write(
        Operation(start, opcode, op.shape, pending.operands, start.attributes)
    )


def _refused(builder: Builder, op: Operation) -> Value:
    refuse(op.source, REASONS[op.opcode])


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(REASONS, _refused),
    **dict.fromkeys(("copy", "domain", "add-dependency", "opt-barrier"), _same),
    "after-all": _token,
    "tuple": _tuple,
    "get-tuple-element": _element,
    "constant": _constant,
    "fusion": _inline,
    "call": _inline,
    "while": _while,
    "conditional": _conditional,
    "bitcast": _bitcast,
    "get-dimension-size": _dimension_size,
}


#: Rules by asynchronous half: `hlo_passes.ir.opcodes.Opcode.half`.
ASYNCHRONOUS_RULES: Final[dict[str, Rule]] = {
    "start": _start,
    "update": _update,
    "done": _done,
}
