"""What XLA's scheduler and latency estimator say in their log.

Read from lines of the modules `sol_latency_estimator`, `latency_hiding_scheduler` and
`gpu_hlo_schedule` at the levels of `VERBOSITY`; times in microseconds.
"""

from __future__ import annotations

import dataclasses
import re

#: TF_CPP_VMODULE for costs and statistics; with decisions, every comparison too.
VERBOSITY = (
    "sol_latency_estimator=10,profile_guided_latency_estimator=10,"
    "gpu_hlo_schedule=5,latency_hiding_scheduler={level}"
)
STATISTICS_LEVEL, DECISIONS_LEVEL = 1, 4

_MESSAGE = re.compile(r"^\S+ [\d:.]+ +\d+ [\w./]+:\d+\] (.*)")
_NODE_COST = re.compile(
    r"Analytical estimator calculated cost for: (?P<a>\S+)\. Cost: (?P<a_us>\S+)"
    r"|NodeCost: Matmul cost from matmul_interpolator for (?P<m>\S+): (?P<m_us>\S+) us"
    r"|NodeCost: Sync intra-node AllReduce cost for (?P<r>\S+): (?P<r_us>\S+) us"
    r"|NodeCost: Returning kLowCost for async start/done op (?P<low>\S+)"
)
#: What the estimator calls kLowCost.
_LOW_COST_US = 1.0
_LATENCY = re.compile(
    r"GetLatencyBetween: Computed collective time for (\S+): (\S+) us"
)
_FALLBACK = re.compile(
    r"ComputeCollectiveTime failure for (\S+), returning latency: (\S+)"
)
_PROFILED_MODULE = re.compile(r"Found profile for module (\S+), using")
_PROFILE_FOUND = re.compile(
    r"PGLE found (?:cost for: |latency for async op |latency between )(\S+)"
)
_PROFILE_MISSED = re.compile(r"PGLE missed cost for: (\S+)")
_PHASE = re.compile(r"Statistics (before|after) scheduling")
_COMPUTATION = re.compile(r"For computation: (\S+), module")
_STATISTIC = re.compile(
    r"(Total wasted cycles|Wasted cycles for [\w \-]+|Total cycles"
    r"|Memory pressure peak \(bytes\)): (\S+)"
)
_DECISION = re.compile(
    r"Choosing from ready \((\S+)\)(?: vs \((\S+)\))? Reason: (First Candidate|\S+)"
)


@dataclasses.dataclass(slots=True)
class EstimatorLog:
    """The log of one compilation.

    Attributes:
        node_cost_us: instruction -> how long it holds its resource.
        latency_us: start -> time to its done.
        latency_fallback: start -> latency where the model knows none.
        statistics: 'before'/'after' -> computation -> name -> cycles or bytes.
        profile_found: module -> instructions whose cost or latency a given profile
            had. XLA gives a profile to every module it schedules: in jax 0.12 also to
            those of a single fusion that its autotuner compiles, where the operands
            are parameters of the operands' names.
        profile_missed: module -> those whose cost it had not.
        decisions: (chosen, other, reason); the first candidate of a step has no other.
    """

    node_cost_us: dict[str, float] = dataclasses.field(default_factory=dict)
    latency_us: dict[str, float] = dataclasses.field(default_factory=dict)
    latency_fallback: dict[str, float] = dataclasses.field(default_factory=dict)
    profile_found: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    profile_missed: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    statistics: dict[str, dict[str, dict[str, float]]] = dataclasses.field(
        default_factory=lambda: {"before": {}, "after": {}}
    )
    decisions: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)

    def costs(self) -> dict[str, dict[str, float]]:
        """The content of costs.json."""
        return {
            "node_cost_us": self.node_cost_us,
            "latency_us": self.latency_us,
            "latency_fallback": self.latency_fallback,
        }


def read_log(lines: list[str]) -> EstimatorLog:
    """Collect what the log of one compilation says."""
    log = EstimatorLog()
    phase = computation = module = ""
    for line in lines:
        found = _MESSAGE.match(line)
        message = found[1] if found else line
        if match := _PHASE.search(message):
            phase = match[1]
        if match := _PROFILED_MODULE.search(message):
            module = match[1]
        if match := _COMPUTATION.search(message):
            computation = match[1]
        elif phase and (match := _STATISTIC.search(message)):
            table = log.statistics[phase].setdefault(computation, {})
            table[match[1].lower()] = float(match[2])
        elif match := _PROFILE_FOUND.search(message):
            log.profile_found.setdefault(module, set()).add(match[1])
        elif match := _PROFILE_MISSED.search(message):
            log.profile_missed.setdefault(module, set()).add(match[1])
        else:
            _read_estimate(message, log)
    return log


def _read_estimate(message: str, log: EstimatorLog) -> None:
    if match := _DECISION.search(message):
        first = match[3] == "First Candidate"
        log.decisions.append((match[1], match[2] or "", "first" if first else match[3]))
    elif match := _NODE_COST.search(message):
        name, value = [*filter(None, match.groups()), str(_LOW_COST_US)][:2]
        log.node_cost_us[name] = float(value)
    elif match := _LATENCY.search(message):
        log.latency_us[match[1]] = float(match[2])
    elif match := _FALLBACK.search(message):
        log.latency_fallback[match[1]] = float(match[2])
