"""Lists what cannot run on the emulated host, and why: refused by name before a start.

Each reason ends the sentence "%name (opcode) cannot run here: ...".
"""

from __future__ import annotations

from typing import Final, NoReturn

from hlo_passes.errors import UnsupportedHloError, VerificationError
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import BITS, Shape
from hlo_passes.verify.verifier import findings

#: Reasons by opcode (of the wrapped operation, for asynchronous forms).
REASONS: Final[dict[str, str]] = {
    "collective-broadcast": "XLA's CPU back end has no collective-broadcast",
    "infeed": "nothing feeds it",
    "outfeed": "nothing reads it",
    "rng": "its numbers come from the state of the process, so no two runs are equal",
    "rng-get-and-update-state": "it is the state of the process, so no two runs are "
    "equal",
    "set-dimension-size": "dynamic dimensions are not supported",
    "dynamic-reshape": "dynamic dimensions are not supported",
    "scaled-dot": "its scaling rule has no plain form here",
    "ragged-dot": "XLA's CPU back end has no ragged-dot",
    "scan": "it has no plain form here",
    "mulhi": "StableHLO, the input of XLA's CPU pipeline, does not have it",
}

#: Element types that StableHLO, the input of XLA's CPU pipeline, does not have.
_NO_TYPE: Final = frozenset({"s1", "u1", "f6e2m3fn", "f6e3m2fn"} & set(BITS))


def require_valid(module: Module) -> None:
    """Refuse what the verifier refuses, before anything else is checked.

    Raises:
        VerificationError: V..., all findings of an invalid module.
        UnsupportedHloError: S010, an opcode or attribute that XLA does not know.
        TypeError: for anything but a module.
    """
    if not isinstance(module, Module):
        msg = (
            f"expected a module, not {type(module).__name__}; hlo_passes.parse makes "
            "one from HLO text"
        )
        raise TypeError(msg)
    found = findings(module)
    if any(one.severity != "unknown" for one in found):
        raise VerificationError(found)
    for one in found:
        name = f"%{one.instruction}" if one.instruction else module.name
        raise UnsupportedHloError(
            f"{name} cannot run here: {one.message}",
            code="S010",
            location=one.location,
            hint=one.hint,
        )


def refuse(instruction: Instruction, reason: str, *, hint: str = "") -> NoReturn:
    """Raise UnsupportedHloError S010 for an instruction."""
    raise UnsupportedHloError(
        f"%{instruction.name} ({instruction.opcode}) cannot run here: {reason}",
        code="S010",
        location=instruction.location,
        hint=hint,
    )


def check_shape(instruction: Instruction, shape: Shape) -> None:
    """Refuse dynamic dimensions, and types that the CPU pipeline does not accept."""
    for _, leaf in shape.leaves():
        if leaf.is_token:
            continue
        if not leaf.is_array:
            refuse(instruction, f"{leaf.text} is not an array")
        if True in leaf.dynamic:
            refuse(instruction, f"{leaf.text} has a dynamic dimension")
        if leaf.element_type in _NO_TYPE:
            refuse(instruction, f"StableHLO has no type {leaf.element_type}")


def check_constant(instruction: Instruction) -> None:
    """Refuse constants whose value the text leaves out, and tuple constants."""
    if "..." in (instruction.literal or ""):
        refuse(
            instruction,
            "its value is left out ({...})",
            hint="dump the module with xla_dump_large_constants",
        )
    if instruction.shape.is_tuple:
        refuse(instruction, "tuple constants have no plain form here")
