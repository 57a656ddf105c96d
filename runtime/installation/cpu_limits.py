"""What XLA's CPU back end cannot take, said before it aborts the process.

    %s = (f32[8], f32[64]) all-gather-start(%p)      no such thing on CPUs: R032

Both stages lie behind XLA's own legalisation, so nothing mends what a pass puts in.
"""

from __future__ import annotations

from typing import Final

from hlo_passes.errors import PassError
from hlo_passes.ir.module import Module

#: Forms that the CPU back end does not know, beside asynchronous ones.
_UNKNOWN: Final = {
    "collective-broadcast": "collective-broadcast",
    "ragged-all-to-all": "ragged-all-to-all",
}


class NotForCpuError(PassError):
    """The passes made something that XLA's CPU back end does not know."""

    default_code = "E030"


def require_for_cpu(module: Module) -> None:
    """Refuse asynchronous operations and unknown collectives; E030."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if (
                instruction.async_role is not None
                and instruction.opcode.partition("-")[0] not in ("send", "recv")
            ) or instruction.opcode in _UNKNOWN:
                raise NotForCpuError(
                    f"%{instruction.name}: XLA's CPU back end knows no "
                    f"{instruction.opcode}",
                    hint="run this pass for GPUs, or convert-async-collectives-to-sync "
                    "behind it",
                )
