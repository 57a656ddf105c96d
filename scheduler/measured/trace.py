"""Reads a trace of any known form, and finds what each instruction of a module took.

    trace = read_trace("t1.xplane.pb")
    measured_of(module, trace).us["fusion.3"]      12.4

The time of an instruction is that of one execution: of all kernels that it launched in
a run, divided by how often a run executes it; the least of the devices (what the others
take longer is waiting, in collectives above all); the median of the runs.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.analysis.executions import executions
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.errors import nearest
from hlo_passes.files import opened, read_file
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.profile import Profile
from hlo_passes.scheduler.measured.events import GRAPH, Event, refuse
from hlo_passes.scheduler.measured.nsight import MAGIC, nsight_events
from hlo_passes.scheduler.measured.text_traces import (
    chrome_events,
    is_nsys_table,
    nsys_rows,
)
from hlo_passes.scheduler.measured.xplane import xplane_events
from hlo_passes.scheduler.sums import sequential_sum

#: Reports of Nsight Systems that only its own tools read.
_REPORTS: Final = (".nsys-rep", ".qdrep", ".ncu-rep")
#: How to take a trace that names the instructions of what runs in graphs, too.
NO_GRAPHS: Final = (
    "XLA_FLAGS=--xla_gpu_enable_command_buffer= leaves graphs out, so that the trace "
    "names every instruction"
)
#: What a kernel's name has in place of the dots and dashes of an instruction's.
_NOT_IN_KERNELS: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, slots=True)
class Trace:
    """Events of a file."""

    path: str
    events: tuple[Event, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a trace says of one module.

    Attributes:
        path: of the trace.
        us: by name, the time of one execution.
        runs: executions of the module on each device.
        devices: how many are in the trace.
        step_us: from the first to the last event of a run; least device, median run.
        lost: share of the module's time that ran in CUDA graphs, in kernels whose names
            are not those of instructions.
    """

    path: str
    us: Mapping[str, float]
    runs: int
    devices: int
    step_us: float
    lost: float = 0.0

    @property
    def profile(self) -> Profile:
        """The times as costs: those of starts are latencies."""
        return Profile(self.us)


def read_trace(path: str) -> Trace:
    """Read a trace; its form is found from its bytes.

    Raises UsageError U001 (no such file), U228 (not a trace, or nothing of XLA in it).
    """
    if path.endswith(_REPORTS):
        raise refuse(
            path,
            "this report is for Nsight's own tools",
            f"nsys export --type=sqlite {path}",
        )
    data = read_file(path)
    try:
        data = opened(data)
    except OSError as problem:
        raise refuse(path, f"this gzip file cannot be read: {problem}") from problem
    if data.startswith(MAGIC):
        events = nsight_events(path)
    elif data.lstrip()[:1] in (b"{", b"["):
        events = chrome_events(data.decode(errors="replace"), path)
    elif is_nsys_table(data[:4096].decode(errors="replace")):
        events = nsys_rows(data.decode(errors="replace"), path)
    else:
        events = xplane_events(data, path)
    if not events:
        raise refuse(path, "nothing in this trace belongs to an HLO instruction")
    return Trace(path, tuple(events))


def measured_of(
    module: Module, trace: Trace, trip_counts: Mapping[str, int] | None = None
) -> Measured:
    """What a trace says of a module.

    Args:
        module: the one that ran; instructions are matched by name.
        trace: also of other modules.
        trip_counts: by name of a loop, how often it runs.

    Raises UsageError U228 if none of its instructions is in the trace.
    """
    often = _executions(module, trip_counts or {})
    events = _of_module(module, trace, often)
    by_device: dict[str, list[Event]] = {}
    for event in sorted(events, key=lambda e: e.begin_us):
        by_device.setdefault(event.device, []).append(event)
    runs = [_runs(found, often) for _, found in sorted(by_device.items())]
    count = min(map(len, runs))
    # Of each run the least of the devices, then the median.
    times: dict[str, list[float]] = {}
    steps = []
    total = sequential_sum(event.us for event in events)
    lost = sequential_sum(event.us for event in events if not event.name)
    for k in range(count):
        least: dict[str, float] = {}
        for device in runs:
            for name, us in _times(device[k], often).items():
                least[name] = min(us, least.get(name, us))
        for name, us in least.items():
            times.setdefault(name, []).append(us)
        steps.append(min(_length(device[k]) for device in runs))
    return Measured(
        trace.path,
        {name: statistics.median(found) for name, found in sorted(times.items())},
        count,
        len(by_device),
        statistics.median(steps),
        lost / total if total else 0.0,
    )


def _executions(module: Module, trip_counts: Mapping[str, int]) -> dict[str, int]:
    """By name of an instruction that runs by itself, how often a step executes it."""
    counts = executions(TripCounts(module, trip_counts))
    return {
        instruction.name: counts[computation]
        for computation in scheduled_computations(module)
        for instruction in computation.instructions
    }


def _of_module(module: Module, trace: Trace, often: Mapping[str, int]) -> list[Event]:
    """Events of instructions of the module, kernels under their instruction's name.

    Kernels in CUDA graphs that no instruction is named like have no name.
    """
    kernels = {_NOT_IN_KERNELS.sub("_", name): name for name in often}
    found, unknown = [], []
    for event in trace.events:
        name = event.name
        in_graph = name not in often and GRAPH.fullmatch(name) is not None
        if event.is_kernel or in_graph:
            kernel = event.kernel if in_graph else name
            name = kernels.get(kernel.partition("(")[0], "")
        if name in often:
            found.append(replace(event, name=name))
        elif in_graph and event.module in (module.name, ""):
            unknown.append(replace(event, name=""))
    # Names such as `fusion.1` are in every module: take this one's, if one is named so.
    named = {event.module for event in found} - {""}
    if module.name in named:
        return [e for e in (*found, *unknown) if e.module in (module.name, "")]
    if not found and unknown:
        raise refuse(
            trace.path,
            f"{module.name} ran in CUDA graphs, whose kernels name no instruction",
            NO_GRAPHS,
        )
    if named or not found:
        others = sorted({event.module for event in trace.events} - {""})
        known = ", ".join(others[:8]) or "no module by name"
        raise refuse(
            trace.path,
            f"it measured nothing of {module.name}",
            f"it has {known}. {nearest(module.name, others)}".strip(),
        )
    return found + unknown


def _runs(events: list[Event], often: Mapping[str, int]) -> list[list[Event]]:
    """Events of one device by run, in order; a run that is cut off is left out."""
    if all(event.run for event in events):
        groups: dict[str, list[Event]] = {}
        for event in events:
            groups.setdefault(event.run, []).append(event)
        return list(groups.values())
    by_name: dict[str, list[Event]] = {}
    for event in events:
        by_name.setdefault(event.name, []).append(event)
    # Most instructions launch a kernel once per execution, perhaps after another one: a
    # matrix product of cuBLAS clears its workspace first.
    ratios = [
        min(Counter(event.kernel for event in found).values()) / max(1, often[name])
        for name, found in by_name.items()
        if name
    ]
    # A device may have run nothing but kernels that name no instruction.
    count = max(1, round(statistics.median_low(ratios or [1.0])))
    runs: list[list[Event]] = [[] for _ in range(count)]
    for found in by_name.values():
        each = len(found) // count
        for k, run in enumerate(runs):
            run += found[k * each : (k + 1) * each] if each else found[k : k + 1]
    return runs


def _times(events: Iterable[Event], often: Mapping[str, int]) -> dict[str, float]:
    """By name, the time of one execution in a run."""
    found: dict[str, list[float]] = {}
    for event in events:
        if event.name:
            found.setdefault(event.name, []).append(event.us)
    return {
        name: sequential_sum(us) / max(1, min(often[name], len(us)))
        for name, us in found.items()
    }


def _length(events: list[Event]) -> float:
    """From the first event to the end of the last one, us."""
    if not events:
        return 0.0
    return max(e.begin_us + e.us for e in events) - min(e.begin_us for e in events)
