"""Unrolls a counted loop into the body of a loop that runs once.

    while (%i < 8), body of steps of 2       ->   while (%i <= 0):
                                                      body with %i = 0
                                                      body with %i = 2, ...

The loop around the iterations keeps them together, where nothing else is fused with
them. What counts still counts, but everything else reads its value as a constant.

Source: openxla/xla `xla/service/while_loop_unroller.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.analysis.counted_loops import CountedLoop
from hlo_passes.analysis.post_order import post_order
from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.rewriting.cloning import (
    Copies,
    clone_instruction,
    element_of,
    repeat_control_edges,
)
from hlo_passes.passes.rewriting.copies import derive


def unroll_in_loop(
    loop: Instruction,
    counted: CountedLoop,
    values: Sequence[int],
    *,
    names: tuple[str, str],
    channel: int,
) -> tuple[Instruction, int]:
    """Replace a loop by one that does all iterations at once.

    Its computations stay. The order of the text is not restored.

    Args:
        loop: its body's root is a tuple.
        counted: how it counts.
        values: of the counter, one for each iteration.
        names: of the new condition and body.
        channel: the first free channel id.

    Returns the new loop and the first channel id that is free then.
    """
    module, outside = loop.computation.module, loop.computation
    condition_name, body_name = map(module.fresh_computation_name, names)
    body, condition = loop.called_computations
    # All iterations, each on the result of the one before.
    unrolled = Computation(body_name)
    module.add_computation(unrolled, before=outside)
    (parameter,) = body.parameters
    state = _parameter(unrolled, parameter)
    order = post_order(body)
    for value in values:
        state, channel = _iteration(
            order, unrolled, state, counted, value=value, channel=channel
        )
    unrolled.set_root(state)
    # The condition holds before the first iteration alone.
    once = Computation(condition_name)
    module.add_computation(once, before=outside)
    counter = element_of(_parameter(once, condition.parameters[0]), counted.index)
    start = once.new("constant", counter.shape, literal=str(counted.start))
    once.set_root(
        once.new("compare", array_shape("pred"), (counter, start), {"direction": "LE"})
    )
    new = outside.new(
        "while",
        loop.shape,
        loop.operands,
        {"condition": f"%{once.name}", "body": f"%{unrolled.name}"},
        before=loop,
    )
    derive(new, loop)
    outside.replace(loop, new)
    return new, channel


def _parameter(computation: Computation, original: Instruction) -> Instruction:
    return clone_instruction(original, computation, ())


def _iteration(
    order: Sequence[Instruction],
    unrolled: Computation,
    state: Instruction,
    counted: CountedLoop,
    *,
    value: int,
    channel: int,
) -> tuple[Instruction, int]:
    """Copy a body; its result and the next free channel id."""
    copies: Copies = {}
    constant: Instruction | None = None
    for instruction in order:
        if instruction.opcode == "parameter":
            copies[instruction] = state
            continue
        operands = [copies[operand] for operand in instruction.operands]
        if not _is_update(instruction, counted.index):
            for place, operand in enumerate(instruction.operands):
                if _is_counter(operand, counted.index):
                    if constant is None:
                        constant = unrolled.new(
                            "constant", operand.shape, literal=str(value)
                        )
                    operands[place] = constant
        copy = clone_instruction(instruction, unrolled, operands)
        if is_collective(copy) and copy.channel_id is not None:
            copy.channel_id = channel
            channel += 1
        copies[instruction] = copy
    for instruction in order:
        repeat_control_edges(instruction, copies)
    return copies[order[-1]], channel


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
