"""How much memory a run takes, before anything is allocated.

need = bytes_needed(plain, device_count=8);  require(need, source.name)
"""

from __future__ import annotations

import os
import pathlib
import re

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.runtime.plain.builder import PlainModule

#: Opcodes whose value is in their operands' buffers.
_NO_BUFFER = frozenset({"tuple", "get-tuple-element", "parameter", "while"})


def bytes_needed(plain: PlainModule, *, device_count: int) -> int:
    """Bytes that a run holds at its peak, on all devices together.

    The sum has the arrays that are live at the peak of each computation, in text order,
    plus what a computation calls; and once more the inputs and results, stacked in the
    caller's memory. XLA may reuse more, and may need copies: this is an estimate.
    """
    peaks: dict[Computation, int] = {}
    for computation in plain.module.computations:
        peaks[computation] = _peak_bytes(computation, peaks)
    entry = plain.module.entry
    stacked = sum(p.shape.byte_size for p in entry.parameters)
    stacked += entry.root.shape.byte_size
    return (peaks[entry] + 2 * stacked) * device_count


def _peak_bytes(computation: Computation, peaks: dict[Computation, int]) -> int:
    order = computation.instructions
    last_use = _last_uses(order, computation.root)
    ending: dict[int, int] = {}
    live = peak = 0
    for place, instruction in enumerate(order):
        if instruction.opcode not in _NO_BUFFER:
            size = instruction.shape.byte_size
            live += size
            end = last_use.get(instruction, place)
            ending[end] = ending.get(end, 0) + size
        called = max(
            (peaks.get(c, 0) for c in instruction.called_computations), default=0
        )
        peak = max(peak, live + called)
        live -= ending.pop(place, 0)
    return peak


def _last_uses(
    order: tuple[Instruction, ...], root: Instruction
) -> dict[Instruction, int]:
    """Where each value is read last, also through tuples that hold it."""
    last: dict[Instruction, int] = {root: len(order)}
    for place in range(len(order) - 1, -1, -1):
        instruction = order[place]
        reaches = place
        if instruction.opcode in ("tuple", "get-tuple-element"):
            reaches = max(place, last.get(instruction, place))
        for operand in instruction.operands:
            last[operand] = max(last.get(operand, place), reaches)
    return last


def available_bytes() -> int:
    """Memory that is free for new processes; half of all if the system does not say."""
    try:
        text = pathlib.Path("/proc/meminfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    if match:
        return int(match[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def require(
    need_bytes: int, named: str, hint: str = "lower the program with smaller shapes"
) -> None:
    """Raise UnsupportedHloError S013 if that much memory is not free.

    Args:
        need_bytes: on all devices together.
        named: what needs it, for the message.
        hint: what to do about it.
    """
    free = available_bytes()
    if need_bytes > free:
        raise UnsupportedHloError(
            f"{named} needs {_readable(need_bytes)} on all its devices together, "
            f"{_readable(free)} are free",
            code="S013",
            hint=hint,
        )


def _readable(count: int) -> str:
    gib = count / 2**30
    return f"{gib:,.1f} GiB" if gib >= 1 else f"{count / 2**20:,.1f} MiB"
