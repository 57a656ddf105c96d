"""Memory in use over time: the pressure of the schedule, on its clock."""

from __future__ import annotations

from hlo_passes.scheduler.memory.curve import curve_of
from hlo_passes.scheduler.memory.pressure import ComputationMemory
from hlo_passes.scheduler.simulation.placement import Placement
from hlo_passes.scheduler.simulation.timeline_data import MemoryPoint


def memory_points(
    memory: ComputationMemory, placement: Placement
) -> tuple[list[MemoryPoint], int]:
    """(points by time, peak in bytes) of one computation.

    While an instruction runs, its operands, its result and what it calls are in use;
    parameters of the entry do not count, as in XLA's figure.
    """
    curve = curve_of(memory)
    name = memory.computation.name
    points: list[MemoryPoint] = []
    for k, in_use in enumerate(curve.while_bytes):
        at = placement.starts_us[k]
        point = MemoryPoint(name, at, in_use)
        here = [p for p in points[-2:] if p.time_us == at]
        if here and in_use >= here[-1].bytes:
            # For each time, keep the greatest use and the last one.
            top = max(here[0].bytes, in_use)
            points[-len(here) :] = [MemoryPoint(name, at, top)]
            if top > in_use:
                points.append(point)
        elif len(here) > 1:
            points[-1] = point
        elif not points or points[-1].bytes != in_use:
            points.append(point)
    return points, curve.peak_bytes
