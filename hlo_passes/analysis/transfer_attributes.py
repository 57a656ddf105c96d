"""Frontend attributes of sends, receives and what shares their stream.

    send(...), frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}
    send(...), frontend_attributes={_xla_send_recv_pipeline="1"}
    all-reduce(...), frontend_attributes={_xla_gpu_collective_stream="p2p"}
    send(...), frontend_attributes={_xla_host_transfer_handler_name=
                                    "xla_megascale_runtime"}

Source: openxla/xla `xla/side_effect_util.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction

#: The pairs of devices of a send or recv.
PAIRS: Final = "_xla_send_recv_source_target_pairs"
#: '0' or '1': pipelined through a loop, on the first or second stream for that.
PIPELINE: Final = "_xla_send_recv_pipeline"
#: On which stream a collective or transfer is; the one value in use is `P2P`.
STREAM: Final = "_xla_gpu_collective_stream"
P2P: Final = "p2p"
#: Who moves the data of a host transfer; this one moves them between slices of TPUs.
HANDLER: Final = "_xla_host_transfer_handler_name"
BETWEEN_SLICES: Final = "xla_megascale_runtime"


def is_between_slices(instruction: Instruction) -> bool:
    """Whether a transfer goes to another slice of TPUs, or comes from one."""
    if not instruction.mentions(BETWEEN_SLICES):
        return False
    return instruction.frontend_attributes.get(HANDLER) == BETWEEN_SLICES


def is_on_p2p_stream(instruction: Instruction) -> bool:
    """Whether a collective or transfer is on the stream for transfers."""
    if not instruction.mentions(STREAM):
        return False
    return instruction.frontend_attributes.get(STREAM) == P2P
