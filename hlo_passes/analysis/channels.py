"""Channel ids of a module.

all-reduce(...), channel_id=3        the next free one is 4
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module


def suits_all_reduce(channel: int | None) -> bool:
    """Whether an all-reduce may have a channel id; XLA demands less of other opcodes.

    Source: openxla/xla `xla/service/hlo_verifier.cc`, HandleAllReduce.
    """
    return channel is None or channel > 0


def next_channel_id(module: Module) -> int:
    """One more than the largest channel id of the module, at least 1."""
    largest = 0
    for computation in module.computations:
        for instruction in computation.instructions:
            if not instruction.mentions("channel_id"):
                continue
            channel = instruction.channel_id
            if channel is not None:
                largest = max(largest, channel)
    return largest + 1
