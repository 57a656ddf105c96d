"""Puts an instruction into a computation that a pair starts and awaits.

    Before:  %d = f32[8] dot(%x, %y), ...
    After:   %async_computation { ROOT %d = f32[8] dot(%param_0, %param_1), ... }
             %dot-start = ((f32[4], f32[4]), f32[8]) async-start(%x, %y),
                              calls=%async_computation
             %dot-done = f32[8] async-done(%dot-start)

Source: openxla/xla `xla/hlo/ir/hlo_computation.cc`, CreateAsyncInstructions (Aug 2026).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.passes.rewriting.replacement import relay_control

#: Attributes that both halves copy from the instruction.
DESCRIPTION: Final = ("metadata", "backend_config")
#: Frontend attribute that is never copied to a derived instruction.
#: Source: openxla/xla `xla/side_effect_util.h`.
COMPUTE_TYPE: Final = "_xla_compute_type"
MAIN_THREAD: Final = "main"
#: Opcodes that own their callees, so that a copy needs its own callees.
_COPY_CALLEES: Final = ("fusion", "async-start", "custom-call")


def async_pair(
    instruction: Instruction,
    *,
    thread: str = MAIN_THREAD,
    described: Iterable[str] = DESCRIPTION,
    aliasing: str = "",
    copying: bool = False,
    awaited_before: Instruction | None = None,
) -> tuple[Instruction, Instruction]:
    """Add a start and a done before an instruction; the instruction itself stays.

    Args:
        instruction: the operation that the wrapped computation runs.
        thread: execution thread of the wrapped computation and of all that it calls.
        described: names of the attributes that both halves copy.
        aliasing: text of the start's `output_to_operand_aliasing`.
        copying: let a fusion's start call a copy of the fusion's body, as XLA does; the
            instruction still calls the body itself.
        awaited_before: put the done before this one, which is further down.
    """
    wrapper = _wrap(instruction)
    if instruction.opcode == "fusion" and copying:
        (body,) = instruction.called_computations
        copy = copied_computation(body, "clone", before=wrapper)
        wrapper.root.set_attribute("calls", f"%{copy.name}")
    set_thread(wrapper, thread)
    return started_and_awaited(
        instruction,
        wrapper,
        described=described,
        aliasing=aliasing,
        awaited_before=awaited_before,
    )


def started_and_awaited(
    instruction: Instruction,
    wrapper: Computation,
    *,
    described: Iterable[str] = DESCRIPTION,
    aliasing: str = "",
    awaited_before: Instruction | None = None,
) -> tuple[Instruction, Instruction]:
    """Add a start and a done that run a computation on an instruction's operands."""
    computation, opcode = instruction.computation, wrapper.root.opcode
    operands = tuple_shape([o.shape for o in instruction.operands])
    described = {
        n: instruction.attributes[n] for n in described if n in instruction.attributes
    }
    attributes = described | calling(wrapper)
    if aliasing:
        attributes["output_to_operand_aliasing"] = aliasing
    start = computation.new(
        "async-start",
        tuple_shape([operands, instruction.shape]),
        instruction.operands,
        in_print_order(attributes, "async-start"),
        name=f"{opcode}-start",
        before=instruction,
    )
    done = computation.new(
        "async-done",
        instruction.shape,
        (start,),
        in_print_order(described, "async-done"),
        name=f"{opcode}-done",
        before=awaited_before or instruction,
    )
    return start, done


def calling(wrapper: Computation) -> dict[str, str]:
    """The attributes with which an `async-start` runs a computation on its thread."""
    attributes = {"calls": f"%{wrapper.name}"}
    if wrapper.execution_thread != MAIN_THREAD:
        attributes["async_execution_thread"] = f'"{wrapper.execution_thread}"'
    return attributes


def replace_by_pair(
    instruction: Instruction, start: Instruction, done: Instruction
) -> None:
    """Remove an instruction; the pair takes its control edges, the done its users."""
    computation = instruction.computation
    relay_control(instruction, start, done)
    computation.drop_control_edges(instruction)
    computation.replace(instruction, done)


def copied_computation(
    body: Computation, suffix: str, *, before: Computation
) -> Computation:
    """Copy a computation, as `NAME.SUFFIX`.

    Callees of its fusions, asynchronous starts and custom calls are copied too; other
    callees (reductions, loop bodies) are shared.
    """
    module = body.module
    copies: dict[Computation, Computation] = {}
    for original in _with_copied_callees(body):
        copy = Computation(
            module.fresh_computation_name(f"{original.name}.{suffix}"),
            execution_thread=original.execution_thread,
        )
        module.add_computation(copy, before=before)
        copies[original] = copy
        made: dict[Instruction, Instruction] = {}
        for instruction in original.instructions:
            made[instruction] = clone = _copied(instruction, copy, made)
            _call_copies(clone, copies)
            for predecessor in instruction.control_predecessors:
                copy.add_control_edge(made[predecessor], clone)
        copy.set_root(made[original.root])
    return copies[body]


def _with_copied_callees(body: Computation) -> list[Computation]:
    """Everything that is copied with a computation: callees first, itself last."""
    found: dict[Computation, None] = {}
    stack: list[tuple[Computation, bool]] = [(body, False)]
    while stack:
        current, is_open = stack.pop()
        if current in found:
            continue
        if is_open:
            found[current] = None
            continue
        stack.append((current, True))
        callees = [
            callee
            for instruction in current.instructions
            if instruction.opcode in _COPY_CALLEES
            for callee in instruction.called_computations
        ]
        stack += [(callee, False) for callee in reversed(callees)]
    return list(found)


def _call_copies(clone: Instruction, copies: Mapping[Computation, Computation]) -> None:
    if clone.opcode not in _COPY_CALLEES:
        return
    for name in ("calls", "called_computations"):
        text = clone.attributes.get(name)
        if text is None:
            continue
        for callee in clone.called_computations:
            text = re.sub(
                rf"(?<![\w.\-%])%?{re.escape(callee.name)}(?![\w.\-])",
                f"%{copies[callee].name}",
                text,
            )
        clone.set_attribute(name, text)


def body_instruction(instruction: Instruction, body: Computation) -> Instruction:
    """Copy the instruction into a new body, with parameters for its operands.

    An operand that it reads twice becomes one parameter.
    """
    parameters: dict[Instruction, Instruction] = {}
    for k, operand in enumerate(dict.fromkeys(instruction.operands)):
        parameters[operand] = body.new(
            "parameter", operand.shape, literal=str(k), name=f"param_{k}"
        )
    return _copied(instruction, body, parameters)


def _copied(
    instruction: Instruction,
    body: Computation,
    counterparts: Mapping[Instruction, Instruction],
) -> Instruction:
    """The instruction once more, on its operands' counterparts, without its origin."""
    return body.new(
        instruction.opcode,
        instruction.shape,
        [counterparts[operand] for operand in instruction.operands],
        {n: t for n, t in instruction.attributes.items() if n != "origin"},
        name=instruction.name,
        literal=instruction.literal,
    )


def _wrap(instruction: Instruction) -> Computation:
    """A computation of parameters and the instruction itself."""
    owner = instruction.computation
    module = owner.module
    wrapper = Computation(module.fresh_computation_name("async_computation"))
    module.add_computation(wrapper, before=owner)
    parameters = [
        wrapper.new("parameter", o.shape, literal=str(k), name=f"param_{k}")
        for k, o in enumerate(instruction.operands)
    ]
    root = wrapper.new(
        instruction.opcode,
        instruction.shape,
        parameters,
        {n: t for n, t in instruction.attributes.items() if n != "origin"},
        name=instruction.name,
        literal=instruction.literal,
    )
    if COMPUTE_TYPE in root.frontend_attributes:
        root.frontend_attributes = root.frontend_attributes.without(COMPUTE_TYPE)
    wrapper.set_root(root)
    return wrapper


def set_thread(computation: Computation, thread: str) -> None:
    """Put a computation and everything that it calls on an execution thread."""
    written = None if thread == MAIN_THREAD else f'"{thread}"'
    stack = [computation]
    seen = {computation}
    while stack:
        current = stack.pop()
        current.set_execution_thread(thread)
        for instruction in current.instructions:
            if instruction.opcode == "async-start":
                instruction.set_attribute("async_execution_thread", written)
            for callee in instruction.called_computations:
                if callee not in seen:
                    seen.add(callee)
                    stack.append(callee)
