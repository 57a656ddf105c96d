"""Moves the sum of the dots of an unrolled loop out of it.

    In the loop:     %s1 = add(%s, %dot)   %s2 = add(%s1, %dot.1)
    After:  there    concatenate(reshape(%dot), reshape(%dot.1))     a new element
            after    reduce(get-tuple-element(%loop), 0), to_apply=%add

Two dots that are added up wait for one another; those that are put side by side do not.
The old sums stay where they are. The order of the text is up to the caller.

Source: openxla/xla `xla/backends/gpu/transforms/windowed_einsum_handler.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Layout, Shape, array_shape, tuple_shape
from hlo_passes.passes.rewriting.cloning import element_of
from hlo_passes.passes.rewriting.reductions import add_reduction

#: What a result takes over from the one that it replaces.
_INHERITED: Final = ("metadata", "frontend_attributes", "sharding")
#: The element of the state that the loop computes.
_RESULT: Final = 2


def move_sum_out(loop: Instruction, dots: Sequence[Instruction]) -> bool:
    """Let readers of the loop's result read a sum after it; whether it could be."""
    (state,) = loop.operands
    if state.opcode != "tuple" or state.user_count != 1:
        return False
    body, _ = loop.called_computations
    outside = loop.computation
    module = outside.module
    shape = dots[0].shape
    # In the loop, one array of all dots.
    parts = [body.new("reshape", _rows(shape, 1), (dot,)) for dot in dots]
    rows = _rows(shape, len(dots))
    all_dots = body.new("concatenate", rows, parts, {"dimensions": "{0}"})
    append_result(body, all_dots)
    # Zeros for it where the loop starts.
    zero = outside.new("constant", array_shape(shape.element_type), literal="0")
    zeros = outside.new("broadcast", rows, (zero,), {"dimensions": "{}"})
    append_to_state(loop, zeros)
    # The sum after it.
    index = len(loop.shape.elements) - 1
    result = next(
        (
            user
            for user in loop.users
            if user.opcode == "get-tuple-element" and user.tuple_index == _RESULT
        ),
        None,
    )
    gathered = element_of(loop, index)
    add = add_reduction(module, "add", shape.element_type, "add", outside)
    total = outside.new(
        "reduce",
        shape,
        (gathered, zero),
        {"dimensions": "{0}", "to_apply": f"%{add.name}"},
    )
    if result is not None:
        outside.replace_uses(result, total)
    return True


def append_to_state(loop: Instruction, start: Instruction) -> None:
    """Give the state of a loop one more element, which starts as `start`."""
    (state,) = loop.operands
    outside = loop.computation
    outside.set_operands(state, (*state.operands, start))
    shape = tuple_shape([operand.shape for operand in state.operands])
    parameters = [callee.parameters[0] for callee in loop.called_computations]
    for part in (state, *parameters, loop):
        part.computation.set_shape(part, shape)
    for parameter in parameters:
        for name in tuple(parameter.attributes):
            parameter.set_attribute(name, None)


def append_result(body: Computation, result: Instruction) -> None:
    """Let the result of a loop's body have one more element."""
    root = body.root
    results = (*root.operands, result)
    new_root = body.new(
        "tuple",
        tuple_shape([r.shape for r in results]),
        results,
        {n: t for n, t in root.attributes.items() if n in _INHERITED},
    )
    body.set_root(new_root)
    body.remove(root)


def _rows(shape: Shape, count: int) -> Shape:
    """`count` arrays of a shape, one after the other in memory."""
    layout = shape.layout
    rows = array_shape(shape.element_type, (count, *shape.dimensions))
    if layout is None:
        return rows
    order = (*(d + 1 for d in layout.minor_to_major), 0)
    return rows.with_layout(Layout(order))
