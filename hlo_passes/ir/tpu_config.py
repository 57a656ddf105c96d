"""XLA:TPU's JSON in `backend_config`: what the compiler leaves in its last modules.

    backend_config={"window_config":{"estimated_cycles":"1000",...},...}
    backend_config={"while_loop_async_pipelined_config":{"is_pipelined":true,...},...}

The second is on a loop that hands a transfer from one iteration to the next: the start
is an element of what the loop carries, and the done ends what the loop was given.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hlo_passes.ir.gpu_config import gpu_config
from hlo_passes.ir.instruction import Instruction

_CYCLES: Final = "estimated_cycles"
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


def is_handed_over(half_or_loop: Instruction) -> bool:
    """Whether a start, done or loop says that transfers cross its iterations."""
    if not half_or_loop.mentions(_HANDED_OVER):
        return False
    config = gpu_config(half_or_loop).get(_HANDED_OVER)
    return isinstance(config, dict) and config.get("is_pipelined") is True
