"""Attributes that steer scheduling, read without splitting what does not carry them.

frontend_attributes={scheduler_hint="force_delay",_scheduling_group_id="3"}
backend_config={...,"force_earliest_schedule":true,...}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency.gpu_config import gpu_config

HINT: Final = "scheduler_hint"
DELAY_PRIORITY: Final = "scheduler_delay_priority"
GROUP_ID: Final = "_scheduling_group_id"
KEEP_ORDER: Final = "keep_original_sequence_order_in_group"
P2P_STREAM: Final = "_xla_gpu_collective_stream"
PIPELINE: Final = "_xla_send_recv_pipeline"
STREAM_ANNOTATION: Final = "_xla_stream_annotation"
COLLECTIVES_GROUP: Final = "_collectives_group"

_NONE: Final[Mapping[str, str]] = {}


def frontend(instruction: Instruction, name: str) -> str | None:
    """A frontend attribute, None where there is none."""
    if not instruction.mentions(name):
        return None
    return instruction.frontend_attributes.get(name)


def scheduling_config(instruction: Instruction) -> Mapping[str, Any]:
    """The GPU's backend config; empty for none, or one that is no JSON."""
    if not instruction.mentions("backend_config"):
        return _NONE
    return gpu_config(instruction)


def is_marked_sync(instruction: Instruction) -> bool:
    """Whether the compiler decided not to overlap a collective."""
    if not instruction.mentions("is_sync"):
        return False
    config = gpu_config(instruction).get("collective_backend_config")
    return isinstance(config, dict) and bool(config.get("is_sync", False))
