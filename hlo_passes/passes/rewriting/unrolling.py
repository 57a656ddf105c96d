"""Unrolls a loop that counts: into the body of a loop that runs once, or without one.

    while (%i < 8), body of steps of 2       ->   while (%i <= 0):
                                                      body with %i = 0
                                                      body with %i = 2, ...

A loop around the iterations keeps them together, where nothing else is fused with
them. What counts still counts, but everything else reads its value as a constant.

Source: openxla/xla `xla/service/while_loop_unroller.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlo_passes.analysis.counted_loops import known_integer
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.scheduling_annotations import (
    Annotation,
    annotation_of,
    set_annotation,
)
from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import known_trip_count
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    clone_instruction,
    element_of,
    repeat_control_edges,
)
from hlo_passes.passes.rewriting.copies import derive


@dataclass(slots=True)
class Numbering:
    """The numbers that copies of an iteration receive.

    Attributes:
        channel: the first free channel id.
        group: the first free number of a scheduling group; none to keep the old ones.
        mixes_groups: whether an operation joins the group that was begun last, as in
            XLA, not that of its own number.
    """

    channel: int
    group: int | None = None
    mixes_groups: bool = True

    def number(self, copy: Instruction, groups: dict[int, int]) -> None:
        """Give one copy its numbers; `groups` are those of its iteration."""
        inside = [copy]
        if copy.opcode == "fusion":
            inside = list(copy.called_computations[0].instructions)
        for one in inside:
            if is_collective(one) and one.channel_id is not None:
                one.channel_id = self.channel
                self.channel += 1
                break
        annotation = None if self.group is None else annotation_of(copy)
        if annotation is None or annotation.group is None or self.group is None:
            return
        if annotation.group not in groups:
            self.group += 1
            groups[annotation.group] = self.group
        number = self.group if self.mixes_groups else groups[annotation.group]
        set_annotation(copy, Annotation(number, annotation.iteration))


def unroll(
    loop: Instruction, index: int, values: Sequence[int], numbering: Numbering
) -> None:
    """Replace a loop by its iterations. Its computations stay.

    The order of the text is not restored.

    Args:
        loop: it has no control edges.
        index: the element of the state that counts.
        values: of the counter, one for each iteration.
        numbering: of the copies.
    """
    outside, order = loop.computation, post_order(loop.called_computations[0])
    state = loop.operands[0]
    for value in values:
        state = _iteration(order, outside, state, index, value, numbering)
    outside.replace(loop, state)


def unroll_in_loop(
    loop: Instruction,
    index: int,
    values: Sequence[int],
    numbering: Numbering,
    *,
    names: tuple[str, str],
    direction: str = "LE",
    counts_once: bool = False,
) -> Instruction:
    """Replace a loop by one that does all iterations at once; the new loop.

    Its computations stay. The order of the text is not restored.

    Args:
        loop: its body's root is a tuple.
        index: the element of the state that counts.
        values: of the counter, one for each iteration, at least one.
        numbering: of the copies.
        names: of the new condition and body.
        direction: of the comparison of the counter with its first value.
        counts_once: where the loop's config says how often it runs, that of the new one
            says once. In XLA it keeps what it says.
    """
    module, outside = loop.computation.module, loop.computation
    condition_name, body_name = map(module.fresh_computation_name, names)
    body, condition = loop.called_computations
    # All iterations, each on the result of the one before.
    unrolled = Computation(body_name, execution_thread=body.execution_thread)
    module.add_computation(unrolled, before=outside)
    (parameter,) = body.parameters
    state = _parameter(unrolled, parameter)
    order = post_order(body)
    for value in values:
        state = _iteration(order, unrolled, state, index, value, numbering)
    unrolled.set_root(state)
    # The condition holds before the first iteration alone.
    once = Computation(condition_name, execution_thread=condition.execution_thread)
    module.add_computation(once, before=outside)
    counter = element_of(_parameter(once, condition.parameters[0]), index)
    start = once.new("constant", counter.shape, literal=str(values[0]))
    once.set_root(
        once.new(
            "compare", array_shape("pred"), (counter, start), {"direction": direction}
        )
    )
    new = outside.new(
        "while",
        loop.shape,
        loop.operands,
        {"condition": f"%{once.name}", "body": f"%{unrolled.name}"},
        before=loop,
    )
    derive(new, loop)
    if counts_once and known_trip_count(loop) is not None:
        new.backend_config = BackendConfig.of_json({"known_trip_count": {"n": "1"}})
    outside.replace(loop, new)
    return new


def _parameter(computation: Computation, original: Instruction) -> Instruction:
    return clone_instruction(original, computation, ())


def _iteration(
    order: Sequence[Instruction],
    unrolled: Computation,
    state: Instruction,
    index: int,
    value: int,
    numbering: Numbering,
) -> Instruction:
    """Copy a body; its result."""
    copies: Copies = {}
    groups: dict[int, int] = {}
    constant: Instruction | None = None
    for instruction in order:
        if instruction.opcode == "parameter":
            copies[instruction] = state
            continue
        operands = [copies[operand] for operand in instruction.operands]
        if not _is_update(instruction, index):
            for place, operand in enumerate(instruction.operands):
                if _is_counter(operand, index):
                    if constant is None:
                        constant = unrolled.new(
                            "constant", operand.shape, literal=str(value)
                        )
                    operands[place] = constant
        copy = _chosen(instruction, operands)
        if copy is None:
            copy = clone_instruction(instruction, unrolled, operands)
            numbering.number(copy, groups)
        copies[instruction] = copy
    for instruction in order:
        repeat_control_edges(instruction, copies)
    # The last of the order may be something that nothing reads.
    return copies[order[0].computation.root]


def _chosen(
    instruction: Instruction, operands: Sequence[Instruction]
) -> Instruction | None:
    """The element that a custom call chooses by a number, or the tuple with it."""
    if instruction.opcode != "custom-call":
        return None
    target = instruction.attributes.get("custom_call_target")
    if target == '"DynamicGte"':
        source, number = operands
        index = known_integer(number)
        return None if index is None else element_of(source, index)
    if target == '"DynamicTuple"':
        source, value, number = operands
        index = known_integer(number)
        if index is None:
            return None
        elements = [
            value if k == index else element_of(source, k)
            for k in range(len(source.shape.elements))
        ]
        return source.computation.new("tuple", source.shape, elements)
    return None


def _is_counter(instruction: Instruction, index: int) -> bool:
    return (
        instruction.opcode == "get-tuple-element"
        and instruction.operands[0].opcode == "parameter"
        and instruction.tuple_index == index
    )


def _is_update(instruction: Instruction, index: int) -> bool:
    """Whether it adds a constant to the counter: XLA lets that read the counter."""
    if instruction.opcode != "add":
        return False
    left, right = instruction.operands
    return _is_counter(left, index) and right.opcode == "constant"
