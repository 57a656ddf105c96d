"""XLA:TPU's JSON in `backend_config`: what the compiler leaves in its last modules.

    backend_config={"window_config":{"estimated_cycles":"1000",...},...}
    backend_config={"used_scoped_memory_configs": [{"memory_space":"1",...}]}
    backend_config={"while_loop_async_pipelined_config":{"is_pipelined":true,...},...}

The first is the time of a fusion, the second what it takes of a memory while it runs.
The third is on a loop that hands a transfer from one iteration to the next: the start
is an element of what the loop carries, and the done ends what the loop was given.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.whole_numbers import whole_number

_CYCLES: Final = "estimated_cycles"
_SCOPED: Final = "used_scoped_memory_configs"
_HANDED_OVER: Final = "while_loop_async_pipelined_config"
#: At any depth of the config; a string, as JSON has numbers of 64 bits.
_ESTIMATE: Final = re.compile(rf'"{_CYCLES}"\s*:\s*"?(\d{{1,18}})\b')
_REMEMBERED: Final = 1 << 14


def estimated_cycles(instruction: Instruction) -> float | None:
    """What the compiler estimates in its final module, in cycles of the TensorCore."""
    if not instruction.mentions(_CYCLES):
        return None
    return _read(instruction.attributes.get("backend_config", ""))


@lru_cache(maxsize=_REMEMBERED)
def _read(text: str) -> float | None:
    found = _ESTIMATE.search(text)
    return float(found[1]) if found else None


def hands_over(loop: Instruction) -> bool:
    """Whether a loop says that transfers cross its iterations."""
    if loop.opcode != "while" or not loop.mentions(_HANDED_OVER):
        return False
    config = gpu_config(loop).get(_HANDED_OVER)
    return isinstance(config, dict) and config.get("is_pipelined") is True


def is_handed_on(start: Instruction) -> bool:
    """Whether a loop takes a start along: into itself, or into its next iteration.

    One tuple holds it, which enters such a loop or is what its body returns. Other
    users at most look at its elements.
    """
    tuples = [user for user in start.users if user.opcode == "tuple"]
    others = {user.opcode for user in start.users} - {"tuple", "get-tuple-element"}
    if len(tuples) != 1 or others:
        return False
    (carried,) = tuples
    if any(map(hands_over, carried.users)):
        return True
    return carried.computation.root is carried and _is_body(carried.computation)


def is_handed_in(done: Instruction) -> bool:
    """Whether what a done ends comes out of such a loop, or into its body."""
    if not done.operands or done.operands[0].opcode != "get-tuple-element":
        return False
    element = done.operands[0]
    if not element.operands:
        return False
    carried = element.operands[0]
    if carried.opcode == "parameter":
        return _is_body(element.computation)
    return hands_over(carried)


def _is_body(computation: Computation) -> bool:
    callers = computation.module.callers(computation)
    return any(
        hands_over(caller) and caller.called_computations[0] is computation
        for caller in callers
    )


def scoped_bytes(instruction: Instruction, space: int) -> int:
    """What an instruction takes of a memory for itself, by the memory's number."""
    if not instruction.mentions(_SCOPED):
        return 0
    config = gpu_config(instruction).get(_SCOPED)
    rows = config if isinstance(config, list) else []
    sizes = (
        whole_number(str(row.get("size", "")))
        for row in rows
        if isinstance(row, dict) and str(row.get("memory_space")) == str(space)
    )
    return sum(size or 0 for size in sizes)
