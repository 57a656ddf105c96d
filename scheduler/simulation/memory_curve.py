"""Memory in use over time: the pressure of the scheduled order, put on its clock."""

from __future__ import annotations

from scheduler.memory.pressure import ComputationMemory
from scheduler.simulation.placement import Placement
from scheduler.simulation.timeline import MemoryPoint


def memory_points(
    memory: ComputationMemory, placement: Placement
) -> tuple[list[MemoryPoint], int]:
    """(points by time, peak in bytes) of one computation.

    While an instruction runs its operands, its result and what it calls are in use.
    """
    usage = _usage_bytes(memory)
    name = memory.computation.name
    points: list[MemoryPoint] = []
    for k, in_use in enumerate(usage):
        at = placement.starts_us[k]
        point = MemoryPoint(name, at, in_use)
        here = [p for p in points[-2:] if p.time_us == at]
        if here and in_use >= here[-1].bytes:
            # At one time the greatest use is kept, and the last one.
            top = max(here[0].bytes, in_use)
            points[-len(here) :] = [MemoryPoint(name, at, top)]
            if top > in_use:
                points.append(point)
        elif len(here) > 1:
            points[-1] = point
        elif not points or points[-1].bytes != in_use:
            points.append(point)
    return points, max(usage, default=memory.initial_bytes)


def _usage_bytes(memory: ComputationMemory) -> list[int]:
    """Per position of the order, bytes in use while it runs."""
    sizes = memory.sizes_bytes
    live = set(memory.initial_live)
    now = memory.initial_bytes
    usage = [now] * len(memory.order)
    for k in range(len(memory.order) - 1, -1, -1):
        inside = now + memory.inner_peak_bytes[k]
        for buffer in memory.allocs[k]:
            if buffer not in live:
                live.add(buffer)
                now += sizes[buffer]
        usage[k] = max(inside, now)
        for buffer in memory.frees[k]:
            if buffer in live:
                live.remove(buffer)
                now -= sizes[buffer]
    return usage
