"""The one form that all asynchronous opcodes are brought to: a half, and what it does.

    all-gather-start        (start, all-gather)
    async-done of a fusion  (done, fusion)
    recv-done               (done, recv)        the GPU; a form of its own elsewhere
    add                     no half of anything

Source: openxla/xla `latency_hiding_scheduler.cc` (canonical asynchronous operations).
"""

from __future__ import annotations

from typing import Final, Literal

from hlo_passes.ir import opcodes
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import Spelling

Half = Literal["", "start", "done"]

_GENERIC: Final = ("async-start", "async-done")


def _spelling(opcode: str) -> tuple[Half, Spelling]:
    row = opcodes.facts(opcode)
    return ("", "") if row.half == "update" else (row.half, row.spelling)


class _Spellings(dict[str, tuple[Half, Spelling]]):
    """Spelling by opcode, found out once for each."""

    def __missing__(self, opcode: str) -> tuple[Half, Spelling]:
        found = self[opcode] = _spelling(opcode)
        return found


#: opcode -> (half, spelling); ('', '') for what is not asynchronous.
SPELLINGS: Final = _Spellings()


def half(instruction: Instruction) -> Half:
    """'start', 'done' or ''; send and recv and their dones included."""
    return SPELLINGS[instruction.opcode][0]


def is_generic(instruction: Instruction) -> bool:
    """Whether it is async-start, async-done or sugar of one."""
    return SPELLINGS[instruction.opcode][1] == "generic"


def inner_opcode(instruction: Instruction) -> str:
    """What a half does: 'all-gather', 'send', 'fusion'; '' for no half."""
    opcode = instruction.opcode
    role, spelling = SPELLINGS[opcode]
    if not role:
        return ""
    if spelling == "transfer":
        return opcode.removesuffix("-done")
    if spelling == "generic" and opcode in _GENERIC:
        return instruction.async_wrapped_opcode or ""
    return opcode.removesuffix(f"-{role}")


def start_of(instruction: Instruction) -> Instruction:
    """The start whose computation a generic half runs; itself for a start."""
    return instruction.async_start


def wrapped_computation(instruction: Instruction) -> Computation | None:
    """What a generic half runs; None for sugar, which names no computation."""
    start = start_of(instruction)
    if start.opcode != "async-start":
        return None
    return next(iter(start.called_computations), None)


def wrapped_instruction(instruction: Instruction) -> Instruction:
    """The instruction that a generic half runs; of sugar, the start itself."""
    computation = wrapped_computation(instruction)
    return start_of(instruction) if computation is None else computation.root
