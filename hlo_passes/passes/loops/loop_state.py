"""The state of a loop: elements that never change, and more elements than it had.

    ROOT tuple(%next, %w, %sum)      %w = get-tuple-element(%state), index=1: invariant

Source: openxla/xla `xla/service/while_util.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.passes.loops.pipelining import parameter_of
from hlo_passes.passes.rewriting.cloning import Copies, clone_computation, element_of
from hlo_passes.passes.rewriting.copies import derive
from hlo_passes.passes.rewriting.origins import origin_with_elements


def invariant_elements(body: Computation) -> list[Instruction]:
    """The elements of the state that the body hands on unchanged, by index."""
    state = body.parameters[0]
    if body.root.opcode != "tuple":
        return []
    return [
        element
        for index, element in enumerate(body.root.operands)
        if element.tuple_index_or_none == index and element.operands[0] is state
    ]


def append_elements(
    loop: Instruction, values: Sequence[Instruction], *, before: Instruction
) -> list[Instruction]:
    """Add elements to the state of a loop in place, which hands them on unchanged.

    What the loop starts from and what its body returns must be tuples that nobody else
    reads, and its computations must be its own. Its users are to read elements.

    Args:
        loop: the loop.
        values: what the new elements are.
        before: where the body first reads them.

    Returns the new elements in the body.
    """
    body, condition = loop.called_computations
    start, state, root = loop.operands[0], body.parameters[0], body.root
    shapes = [value.shape for value in values]
    for one in (start, state, root, condition.parameters[0], loop):
        # It says for each element where that is from.
        is_parameter = one.opcode == "parameter"
        origin = None if is_parameter else origin_with_elements(one, values)
        one.computation.set_shape(one, tuple_shape([*one.shape.elements, *shapes]))
        one.set_attribute("origin", origin)
    loop.computation.set_operands(start, [*start.operands, *values])
    first = len(root.operands)
    added = [element_of(state, first + k, before=before) for k in range(len(values))]
    body.set_operands(root, [*root.operands, *added])
    return added


def return_elements(loop: Instruction) -> None:
    """Let the users of a loop read a new tuple of its elements, in place of the loop.

    The order of the text is not restored.
    """
    computation, users = loop.computation, loop.users
    elements = [element_of(loop, k) for k in range(len(loop.shape.elements))]
    result = computation.new("tuple", loop.shape, elements)
    for user in users:
        computation.replace_operand(user, loop, result)
    if computation.root is loop:
        computation.set_root(result)


def hand_in(
    loop: Instruction, values: Sequence[Instruction]
) -> tuple[Instruction, Copies, list[Instruction]]:
    """Replace a loop by one whose state also has `values`, which it never changes.

    The root of its body must be a tuple.

    Returns the new loop, the copies in its body, and what the values are there.
    """
    computation, (body, condition) = loop.computation, loop.called_computations
    count = len(loop.shape.elements)
    shape = tuple_shape([*loop.shape.elements, *(v.shape for v in values)])
    # The body hands the new elements on; the condition ignores them.
    new_condition, _ = clone_computation(
        condition,
        {
            condition.parameters[0]: parameter_of(
                shape, f"wide.{condition.parameters[0].name}"
            )
        },
    )
    handed_in: list[Instruction] = []

    def new_root(wide: Computation, copies: Copies) -> Instruction:
        ends = [copies[end] for end in body.root.operands]
        state = copies[body.parameters[0]]
        handed_in.extend(
            element_of(state, k) for k in range(count, count + len(values))
        )
        return wide.new("tuple", shape, [*ends, *handed_in])

    replacements = {
        body.parameters[0]: parameter_of(shape, f"wide.{body.parameters[0].name}")
    }
    order = [i for i in post_order(body) if i is not body.root]
    new_body, copies = clone_computation(
        body, {**replacements, body.root: new_root}, [*order, body.root]
    )
    # Start it with the values, and hand on what the old one returned.
    start = loop.operands[0]
    starts = (
        list(start.operands)
        if start.opcode == "tuple"
        else [element_of(start, k, before=loop) for k in range(count)]
    )
    state = computation.new("tuple", shape, [*starts, *values], before=loop)
    new = computation.new(
        "while",
        shape,
        [state],
        {"condition": f"%{new_condition.name}", "body": f"%{new_body.name}"},
        before=loop,
    )
    derive(new, loop)
    new.set_attribute("sharding", None)
    if "origin" in loop.attributes:
        new.set_attribute("origin", origin_with_elements(loop, values))
    elements = [element_of(new, k, before=loop) for k in range(count)]
    result = computation.new("tuple", loop.shape, elements, before=loop)
    computation.replace_uses(loop, result)
    # It runs when the old one ran.
    before, after = loop.control_predecessors, loop.control_successors
    computation.drop_control_edges(loop)
    for first in before:
        computation.add_control_edge(first, new)
    for then in after:
        computation.add_control_edge(new, then)
    computation.remove(loop)
    return new, copies, handed_in
