"""Buffers, `b(f32[8])`: where they may occur; each has one writer.

    %b = b(f32[8]) custom-call(%a), custom_call_target="Pin",
         output_to_operand_aliasing={{}: (0, {})}

    V901 a buffer in a wrong place      V903 Pin, Unpin, CreateBuffer of another form
    V902 not aliased once in and out    V904 more than one writer

Source: openxla/xla `hlo_verifier.cc` (VerifyBuffers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hlo_passes.ir.async_form import half, is_transfer
from hlo_passes.ir.header_values import parse_output_aliasing
from hlo_passes.ir.shape_inference import compatible
from hlo_passes.ir.shapes import Shape

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.verify.finding import Report

Path = tuple[int, ...]

_REMEMBERED: Final = 65_536

#: Opcodes that hand a buffer to something that may write to it.
_WRITERS: Final = frozenset(
    {"while", "conditional", "dynamic-update-slice", "call", "fusion", "custom-call"}
)
_CARRIERS: Final = frozenset({"get-tuple-element", "tuple", "while", "parameter"})
#: Targets of custom-calls that make or end a buffer, as XLA quotes them.
_NAMED: Final = frozenset({'"Pin"', '"Unpin"', '"CreateBuffer"'})
_STREAM_MARK: Final = "_xla_stream_annotation"


@lru_cache(maxsize=_REMEMBERED)
def buffer_paths(shape: Shape) -> tuple[Path, ...]:
    """The paths of the buffers in a shape; () for nearly every shape."""
    return tuple(path for path, leaf in shape.leaves() if leaf.element_type == "buffer")


def check_buffers(
    instruction: Instruction, attributes: Mapping[str, str], report: Report
) -> None:
    """Report what is wrong with the buffers of an instruction that has some."""
    opcode, computation = instruction.opcode, instruction.computation
    if opcode == "custom-call-start":
        operands = tuple(o.shape for o in instruction.operands)
        result = instruction.shape.elements[1:2]
        if result:
            _check_aliased(instruction, operands, result[0], attributes, report)
    if _is_asynchronous(instruction) or (
        opcode == "call" and _STREAM_MARK in attributes.get("frontend_attributes", "")
    ):
        return
    # In a wrapped computation XLA looks only at a custom-call root.
    if _is_called_by("async-start", instruction) and not (
        opcode == "custom-call" and instruction.is_root
    ):
        return
    if opcode == "custom-call":
        _check_custom_call(instruction, attributes, report)
        return
    if opcode not in _CARRIERS and not _updates_in_place(instruction):
        report.add(instruction, "V901", f"{opcode} cannot handle buffers")
    elif opcode == "parameter" and computation.is_entry:
        report.add(instruction, "V901", "the entry cannot take buffers")
    elif opcode not in ("get-tuple-element", "tuple"):
        _check_writers(instruction, report)


def has_buffers(instruction: Instruction) -> bool:
    """Whether its result or an operand holds a buffer."""
    return bool(buffer_paths(instruction.shape)) or any(
        buffer_paths(operand.shape) for operand in instruction.operands
    )


def ought_to_have_buffers(opcode: str, attributes: Mapping[str, str]) -> bool:
    """Whether it is a custom-call that makes or ends a buffer, by its target."""
    return opcode == "custom-call" and attributes.get("custom_call_target") in _NAMED


def _updates_in_place(instruction: Instruction) -> bool:
    return (
        instruction.opcode == "dynamic-update-slice"
        and instruction.shape.element_type == "buffer"
        and not any(buffer_paths(o.shape) for o in instruction.operands[1:])
    )


def _check_custom_call(
    instruction: Instruction, attributes: Mapping[str, str], report: Report
) -> None:
    if ought_to_have_buffers(instruction.opcode, attributes):
        text = attributes.get("output_to_operand_aliasing", "{}")
        aliases = parse_output_aliasing(text).aliases
        target = attributes["custom_call_target"][1:-1]
        _check_named(instruction, target, len(aliases), report)
        return
    operands = tuple(o.shape for o in instruction.operands)
    _check_aliased(instruction, operands, instruction.shape, attributes, report)
    _check_writers(instruction, report)


def _check_aliased(
    instruction: Instruction,
    operands: tuple[Shape, ...],
    result: Shape,
    attributes: Mapping[str, str],
    report: Report,
) -> None:
    """Check that a custom-call hands each buffer on once, as its aliases say."""
    text = attributes.get("output_to_operand_aliasing", "{}")
    aliases = parse_output_aliasing(text).aliases
    taken = Counter((operand, path) for _, operand, path in aliases)
    given = Counter(output for output, _, _ in aliases)
    for k, operand in enumerate(operands):
        for path in buffer_paths(operand):
            if taken[k, path] != 1:
                report.add(
                    instruction, "V902",
                    f"the buffer in operand {k} is aliased {taken[k, path]} times, not "
                    "once",
                )  # fmt: skip
    for path in buffer_paths(result):
        if given[path] != 1:
            report.add(
                instruction, "V902",
                f"a buffer of the result is aliased {given[path]} times, not once",
            )  # fmt: skip


def _check_named(
    instruction: Instruction, target: str, aliases: int, report: Report
) -> None:
    """Check the forms of CreateBuffer, Pin (array to buffer), Unpin (the reverse)."""
    operands, result = instruction.operands, instruction.shape
    good = result.element_type == "buffer"
    if target == "CreateBuffer":
        good = good and not operands
    else:
        inner = operands[0].shape if len(operands) == 1 else None
        buffer, array = (inner, result) if target == "Unpin" else (result, inner)
        good = (
            buffer is not None
            and array is not None
            and buffer.element_type == "buffer"
            and array.is_array
            and compatible(buffer.elements[0], array)
            and aliases == 1
        )
    if not good:
        report.add(instruction, "V903", f"{target} does not have XLA's form")
    if target != "Unpin":
        _check_writers(instruction, report)


def _check_writers(instruction: Instruction, report: Report) -> None:
    for path in buffer_paths(instruction.shape):
        if sum(1 for _ in _writers(instruction, path)) > 1:
            report.add(
                instruction, "V904",
                f"a buffer of %{instruction.name} has more than one writer",
            )  # fmt: skip


def _is_asynchronous(instruction: Instruction) -> bool:
    """Whether it is half of anything asynchronous, send and recv excluded."""
    return bool(half(instruction)) and not is_transfer(instruction)


def _writers(instruction: Instruction, path: Path) -> Iterator[Instruction]:
    """Users that may write to a part of a value, through tuples and elements."""
    work = [(instruction, path)]
    while work:
        value, part = work.pop()
        for user in value.users:
            if user.opcode in _WRITERS or _is_asynchronous(user):
                yield user
            elif user.opcode == "get-tuple-element":
                if part and user.tuple_index == part[0]:
                    work.append((user, part[1:]))
            elif user.opcode == "tuple":
                if not user.is_root:
                    work.append((user, (user.operands.index(value), *part)))
                elif _is_called_by("while", user):
                    yield user


def _is_called_by(opcode: str, instruction: Instruction) -> bool:
    """Whether an instruction of this opcode calls the computation that it is in."""
    computation = instruction.computation
    return any(c.opcode == opcode for c in computation.module.callers(computation))
