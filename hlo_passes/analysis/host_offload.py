"""Custom calls that move slices of a buffer to the host or back.

    %h = custom-call(%x), custom_call_target="MoveToHost"
    %r = reshape(%h)
    %b = dynamic-update-slice(%buffer, %r, %i, %zero)        %h moves a slice

Source: openxla/xla `xla/service/host_offload_utils.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction

TO_HOST: Final = '"MoveToHost"'
TO_DEVICE: Final = '"MoveToDevice"'
_SAME_ELEMENTS: Final = frozenset({"broadcast", "reshape", "transpose"})


def moves_slice(instruction: Instruction) -> bool:
    """Whether it moves what a store writes to the host, or a slice to the device."""
    if instruction.opcode != "custom-call":
        return False
    target = instruction.attributes.get("custom_call_target")
    if target == TO_HOST:
        return _reaches(instruction, "dynamic-update-slice", forward=True) is not None
    return target == TO_DEVICE and moved_slice(instruction) is not None


def moved_slice(to_device: Instruction) -> Instruction | None:
    """The dynamic-slice whose result a custom call moves to the device."""
    return _reaches(to_device, "dynamic-slice", forward=False)


def _reaches(start: Instruction, wanted: str, *, forward: bool) -> Instruction | None:
    """The first instruction of an opcode, past others that keep the elements."""
    seen: set[Instruction] = set()
    work = [start]
    while work:
        one = work.pop()
        if one in seen:
            continue
        seen.add(one)
        for near in one.users if forward else one.operands:
            if near.opcode == wanted:
                return near
            if near.opcode in _SAME_ELEMENTS:
                work.append(near)
    return None
