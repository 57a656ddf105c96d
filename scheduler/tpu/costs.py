"""Costs as XLA:TPU's scheduler had them in a compilation of the user's own, in cycles.

    {"unit": "cycles", "chip": "v5e", "tensorcore_mhz": 1500, "topology": "2x4",
     "slices": 1,
     "node_cost_cycles": {"fusion.1": 810486.0}, "latency_cycles": {"start.1": 4213.5},
     "edge_latency_cycles": {"send.1": {"recv-done.1": 18750000.0}},
     "memory_limit_bytes": 15830000000, "flags": "xla_...=...,..."}

`hlo-passes lower --target=v5e --stage=tpu-scheduled --write-costs=FILE` writes it;
`--costs=FILE` reads it wherever costs are read. The compiler gives every node 1 cycle
at least, so a name that is missing costs 1 in its scheduler. The latency of a start is
that of the edge to its done; an edge to a control successor has 1, but for those that
are listed: what a slice sends to another one arrives later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hlo_passes.analysis.module_state import how_to_price_tpus
from hlo_passes.errors import UsageError
from hlo_passes.scheduler.estimators.base import LOW, MOST_US
from hlo_passes.scheduler.estimators.table import TableEstimator, costs_view
from hlo_passes.scheduler.tpu.chips import chip, is_chip

NAME: Final = "tpu-log"
#: The value of `unit` that tells these files from others.
CYCLES: Final = "cycles"
#: What the compiler's scheduler takes for a node that has no cost.
_LEAST_CYCLES: Final = 1.0


@dataclass(frozen=True, slots=True)
class TpuCosts:
    """Costs and latencies of one compilation, TensorCore cycles.

    Attributes:
        chip: the TPU's name.
        mhz: TensorCore clock in which they are counted.
        node_cycles: by instruction.
        latency_cycles: by start.
        edge_cycles: by start, to what is not its done, if that is more than a cycle.
        topology: the grid of chips it was compiled for, '' unknown.
        slices: so many of these grids.
        memory_limit_bytes: of the memory rules, None where the log had none.
        flags: of the compiler, `name=value,...`.
        statistics: wasted and total cycles by computation, before and after.
    """

    chip: str
    mhz: float
    node_cycles: Mapping[str, float] = field(default_factory=dict)
    latency_cycles: Mapping[str, float] = field(default_factory=dict)
    topology: str = ""
    memory_limit_bytes: int | None = None
    flags: str = ""
    statistics: Mapping[str, Mapping[str, Mapping[str, float]]] = field(
        default_factory=dict
    )
    edge_cycles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    slices: int = 1

    def in_cycles(self) -> TableEstimator:
        """What the compiler's scheduler works with: cycles, 1 for what is missing."""
        return TableEstimator(
            self.node_cycles,
            self.latency_cycles,
            NAME,
            absent=_LEAST_CYCLES,
            to_others=LOW,
            edges=self.edge_cycles,
        )

    def in_us(self) -> TableEstimator:
        """The same as times: cycles divided by the clock."""
        return TableEstimator(
            self._as_us(self.node_cycles),
            self._as_us(self.latency_cycles),
            NAME,
            absent=_LEAST_CYCLES / self.mhz,
            to_others=LOW,
            edges={name: self._as_us(to) for name, to in self.edge_cycles.items()},
            has_whole_loops=True,
        )

    def _as_us(self, cycles: Mapping[str, float]) -> dict[str, float]:
        return {name: count / self.mhz for name, count in cycles.items()}

    def to_json(self) -> dict[str, Any]:
        """The contents of a costs file."""
        return {
            "unit": CYCLES,
            "chip": self.chip,
            "tensorcore_mhz": self.mhz,
            "topology": self.topology,
            "slices": self.slices,
            "flags": self.flags,
            "memory_limit_bytes": self.memory_limit_bytes,
            "node_cost_cycles": dict(self.node_cycles),
            "latency_cycles": dict(self.latency_cycles),
            "edge_latency_cycles": {n: dict(to) for n, to in self.edge_cycles.items()},
            "statistics": {k: dict(v) for k, v in self.statistics.items()},
        }


def is_tpu_costs(view: Any) -> bool:
    """Whether a costs file's contents are of a TPU."""
    return isinstance(view, dict) and view.get("unit") == CYCLES


def tpu_costs(path: str) -> TpuCosts | None:
    """The costs of a file, None if they are none of a TPU.

    Raises UsageError U001 (no such file), U206 (not a costs file).
    """
    view = costs_view(path)
    if not is_tpu_costs(view):
        return None
    name, mhz = view.get("chip"), view.get("tensorcore_mhz")
    if not isinstance(name, str) or not is_chip(name):
        raise _refuse(path, f"chip is {name!r:.40}, not a TPU")
    if not _is_number(mhz) or not mhz:
        raise _refuse(path, f"tensorcore_mhz is {mhz!r:.40}, not a clock")
    limit = view.get("memory_limit_bytes")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int)):
        raise _refuse(path, f"memory_limit_bytes is {limit!r:.40}, not bytes")
    slices = view.get("slices", 1)
    if isinstance(slices, bool) or not isinstance(slices, int) or slices < 1:
        raise _refuse(path, f"slices is {slices!r:.40}, not a number of grids")
    return TpuCosts(
        chip(name).name,
        float(mhz),
        _numbers(path, view, "node_cost_cycles"),
        _numbers(path, view, "latency_cycles"),
        str(view.get("topology") or ""),
        limit,
        str(view.get("flags") or ""),
        edge_cycles=_edges(path, view),
        slices=slices,
    )


def require_tpu_costs(path: str) -> TpuCosts:
    """The costs of a file. Raises UsageError U206 if they are none of a TPU."""
    found = tpu_costs(path)
    if found is None:
        raise _refuse(path, "its costs are microseconds, not a TPU's cycles")
    return found


def _numbers(path: str, view: Mapping[str, Any], key: str) -> dict[str, float]:
    table = view.get(key) or {}
    if not isinstance(table, dict):
        raise _refuse(path, f"{key} is not a table of names")
    for name, cycles in table.items():
        if not _is_number(cycles):
            raise _refuse(path, f"{key}[{name!r}] is {cycles!r:.40}, not cycles")
    return {name: float(cycles) for name, cycles in table.items()}


def _edges(path: str, view: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    key = "edge_latency_cycles"
    table = view.get(key) or {}
    if not isinstance(table, dict):
        raise _refuse(path, f"{key} is not a table of names")
    return {str(name): _numbers(path, table, name) for name in table}


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= MOST_US


def _refuse(path: str, what: str) -> UsageError:
    return UsageError(
        f"{path}: {what}",
        code="U206",
        hint=how_to_price_tpus(),
    )
