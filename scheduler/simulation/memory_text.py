"""What a report says of memory: whether the step fits, and what is largest.

memory   100.9 GiB at the peak with parameters (65.4 GiB without), 101.0 GiB as XLA
         packs it; DOES NOT FIT, h100_sxm has 79.1 GiB
         largest at %fusion.12:
           7.8 GiB  %fusion.3  bf16[32,8192,16384]{2,1,0}  jit(step)/mlp/dot_general
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_passes.scheduler.memory.footprint import FRACTION_VARIABLE, Footprint
from hlo_passes.scheduler.simulation.units import bytes_text

if TYPE_CHECKING:
    from hlo_passes.scheduler.simulation.timeline_data import TimelineData

#: Buffers that are listed where a step does not fit.
_LISTED: Final = 5
#: Letters of a name that a person chose.
_LONGEST: Final = 72
_INDENT: Final = " " * 9


def memory_remark(found: Footprint, target: str) -> tuple[str, ...]:
    """For the first line: that the step does not fit; () if it does."""
    if found.fits is not False and found.fits_device is not False:
        return ()
    need = bytes_text(found.needed_bytes)
    if not found.fits_device:
        has = bytes_text(found.device_bytes)
        return (f"it does not fit: it needs {need}, {target} has {has}",)
    return (
        f"it fits only with {FRACTION_VARIABLE}={found.needed_fraction:.2f}: "
        f"it needs {need}, XLA's pool is {bytes_text(found.available_bytes)} "
        f"of {target}'s {bytes_text(found.device_bytes)}",
    )


def memory_lines(timeline: TimelineData) -> list[str]:
    """The peak with and without parameters, the limit, and what is largest."""
    found = timeline.footprint
    line = f"memory   {bytes_text(found.peak_bytes)} at the peak"
    if timeline.is_of_tpu:
        # How XLA:TPU packs it is not known.
        line += f", {bytes_text(found.parameters_bytes)} of it parameters"
    else:
        line += (
            f" with parameters ({bytes_text(timeline.peak_memory_bytes)} without), "
            f"{bytes_text(found.needed_bytes)} as XLA packs it"
        )
    if found.assigned_bytes is not None:
        line += f" (its buffer assignment: {bytes_text(found.assigned_bytes)})"
    if not found.device_bytes:
        return [line + f"; nobody says how much {timeline.target} has"]
    has = bytes_text(found.device_bytes)
    if found.fits is None and found.fits_device:
        line += f", of a device's {has} (tiles are not counted)"
        for each in found.near_memories:
            if each.peak_bytes:
                line += f"; {bytes_text(each.peak_bytes)} of {each.name} at the peak"
            if each.scoped_bytes:
                scoped = bytes_text(each.scoped_bytes)
                line += f"; up to {scoped} of {each.name} in a kernel"
        return [line]
    line += "; "
    takes = bytes_text(found.available_bytes)
    if found.fits:
        return [line + f"fits: XLA's pool is {takes} of {timeline.target}'s {has}"]
    if found.fits_device:
        line += f"DOES NOT FIT into XLA's pool, {takes} of {timeline.target}'s "
        line += f"{has}; {FRACTION_VARIABLE}={found.needed_fraction:.2f} takes enough"
    else:
        line += f"DOES NOT FIT, {timeline.target} has {has}"
    if timeline.state.cure:
        line += "; of the module as it is, a GPU runs a smaller one"
    where = f" at %{found.at}" if found.at else ""
    lines = [line, f"{_INDENT}largest{where}:"]
    for buffer in found.largest[:_LISTED]:
        parts = [bytes_text(buffer.bytes), f"%{buffer.name}", buffer.shape]
        parts += [_cut(buffer.op_name), _cut(buffer.source)]
        if buffer.kind == "parameter":
            parts.append("(parameter)")
        lines.append(f"{_INDENT}  {'  '.join(part for part in parts if part)}")
    return lines


def _cut(text: str) -> str:
    """The end of a long name, which says most."""
    return text if len(text) <= _LONGEST else "..." + text[3 - _LONGEST :]
