"""Hints that place an instruction early or late, regardless of other rules.

    scheduler_hint="force_early"         custom-call: as low as possible
    scheduler_hint="force_delay"         custom-call, async half: as far up as possible
    scheduler_hint="force_delay_async"   start far up, done low
    "force_earliest_schedule":true       in the GPU's backend config: far up
    fusion() without operands, 1 MiB     from 0.12 on: as low as possible
    send(parameter) to another slice     on TPUs: as far up as possible

Source: openxla/xla `latency_hiding_scheduler.cc`, `gpu_latency_hiding_scheduler.cc`
(graph post-processing), Aug 2026.
"""

from __future__ import annotations

from typing import Final, Protocol

from hlo_passes.analysis import transfer_attributes
from hlo_passes.errors import PassError
from hlo_passes.ir.async_form import (
    done_of,
    is_generic,
    is_start,
    is_transfer,
    start_of,
)
from hlo_passes.ir.gpu_config import gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.latency_hiding import attributes as attr
from hlo_passes.scheduler.latency_hiding.memory_bound import is_memory_bound
from hlo_passes.scheduler.latency_hiding.tracker import AsyncTracker

_EARLIEST: Final = "force_earliest_schedule"
#: The least result of a fusion without operands, tuples added up, that is a large fill.
#: Source: found by trial with the XLA of jax 0.12.0.1: 1,048,576 bytes count, 1,048,572
#: do not; this holds for a constant broadcast, an iota and what is computed from them.
_FILL_BYTES: Final = 1 << 20
#: A send of a parameter through these is early as well.
#: Source: found by trial with libtpu 0.0.52, programs of two slices.
_SAME_VALUE: Final = frozenset({"bitcast", "copy", "get-tuple-element"})


class Hinted(Protocol):
    """The hints that a graph records, by node; see `ScheduleGraph`."""

    tracker: AsyncTracker
    is_start: bytearray
    is_done: bytearray
    force_early: bytearray
    force_delay: bytearray
    delay_priority: list[int]
    not_valuable: bytearray


def is_delayed_by_hint(instruction: Instruction) -> bool:
    """Whether it has the hint `force_delay` and its opcode honors it."""
    if instruction.opcode != "custom-call" and not is_generic(instruction):
        return False
    return attr.frontend(instruction, attr.HINT) == "force_delay"


def note(graph: Hinted, n: int, instruction: Instruction) -> None:
    """Record the hints of an instruction."""
    if instruction.mentions(attr.HINT):
        _note_frontend_hint(graph, n, instruction)
    settings = graph.tracker.settings
    opcode = instruction.opcode
    if settings.flavour == "tpu" and opcode == "send":
        # What another slice waits for goes as early as it can if it is there already.
        between = transfer_attributes.is_between_slices(instruction)
        if between and _is_given(instruction.operands[0]):
            graph.force_delay[n] = 1
    if settings.flavour != "gpu":
        return
    if settings.pipeline_parallelism_opt_level == "ENABLE":
        _note_half_pipelined(graph, n, instruction)
    if (
        settings.enable_pipelined_p2p
        and opcode == "recv"
        and attr.frontend(instruction, transfer_attributes.PIPELINE) is not None
    ):
        graph.force_early[n] = 1
    if (
        opcode == "fusion"
        and not instruction.operands
        and settings.release.fills_are_early
        and instruction.shape.byte_size >= _FILL_BYTES
    ):
        # It needs nothing and keeps its buffer alive: it may wait for its user.
        graph.force_early[n] = 1
    if instruction.mentions(_EARLIEST) or graph.force_delay[n]:
        # XLA sets the field from any config that it can read, so it also clears a hint.
        config = gpu_config(instruction)
        if config:
            graph.force_delay[n] = bool(config.get(_EARLIEST, False))
    if settings.enable_selective_memcpy_overlap:
        graph.not_valuable[n] = is_memory_bound(instruction, graph.tracker)


def _is_given(value: Instruction) -> bool:
    """Whether a computation is given a value, which it may only lay out anew."""
    while value.opcode in _SAME_VALUE:
        value = value.operands[0]
    return value.opcode == "parameter"


def _note_frontend_hint(graph: Hinted, n: int, instruction: Instruction) -> None:
    hint = attr.frontend(instruction, attr.HINT)
    if hint == "force_early" and instruction.opcode == "custom-call":
        graph.force_early[n] = 1
    if is_delayed_by_hint(instruction):
        graph.force_delay[n] = 1
        graph.delay_priority[n] = _priority(instruction)
    if hint == "force_delay_async":
        if graph.is_start[n]:
            graph.force_delay[n] = 1
            graph.delay_priority[n] = _priority(instruction)
        if graph.is_done[n]:
            graph.force_early[n] = 1


def _priority(instruction: Instruction) -> int:
    text = attr.frontend(instruction, attr.DELAY_PRIORITY)
    try:
        return int(text or "0")
    except ValueError as problem:
        raise PassError(
            f"%{instruction.name}: {attr.DELAY_PRIORITY}={text} is not an integer",
            code="E034",
            location=instruction.location,
        ) from problem


def _note_half_pipelined(graph: Hinted, n: int, instruction: Instruction) -> None:
    """Note a transfer whose other half is in another iteration of the loop."""
    if not is_transfer(instruction):
        return
    if is_start(instruction):
        if instruction.user_count == 1 and done_of(instruction) is None:
            graph.force_delay[n] = 1
    elif start_of(instruction) is instruction:
        graph.force_early[n] = 1
