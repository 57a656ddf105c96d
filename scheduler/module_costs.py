"""Prices for every instruction of a module.

    report = estimate(module, target="h100_sxm", topology="1x2x8")
    report.rows[0].node_cost_us, report.rows[0].model

It prices the computations that XLA schedules: the entry, bodies and conditions of
loops, branches, called computations; not the bodies of fusions and reductions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hlo_passes.analysis.call_graph import scheduled_computations
from hlo_passes.analysis.followed_release import release_asked_for
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import done_of, is_start
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.choice import EstimatorSettings, estimator_for
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency.options import LatencyOptions


@dataclass(frozen=True, slots=True)
class EstimateRow:
    """One instruction and its price.

    Attributes:
        computation: its name.
        name: of the instruction.
        opcode: as printed.
        node_cost_us: how long it holds its resource; for a synchronous collective its
            whole time.
        latency_us: from an async start to its done, None for anything else.
        model: that gave the price: for a start that of the latency, else of the cost.
        reason: why a better model had no answer, '' where it had.
    """

    computation: str
    name: str
    opcode: str
    node_cost_us: float
    latency_us: float | None
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class EstimateReport:
    """All instructions of a module, in text order."""

    target: str
    topology: str
    estimator: str
    rows: tuple[EstimateRow, ...]

    def to_json(self) -> dict[str, object]:
        """The machine-readable form of `hlo-passes estimate`."""
        return {
            "target": self.target,
            "topology": self.topology,
            "estimator": self.estimator,
            "instructions": [
                {
                    "computation": row.computation,
                    "name": row.name,
                    "opcode": row.opcode,
                    "node_cost_us": row.node_cost_us,
                    "latency_us": row.latency_us,
                    "model": row.model,
                    **({"reason": row.reason} if row.reason else {}),
                }
                for row in self.rows
            ],
        }


def estimate(
    module: Module,
    *,
    target: str = "h100_sxm",
    topology: str | Topology = "",
    estimator: str | Estimator = "",
    options: LatencyOptions | None = None,
    costs: str = "",
    profile: str = "",
    extended: bool = False,
    always: bool = False,
    xla: str = "",
    devices: int | None = None,
) -> EstimateReport:
    """Price a module.

    Args:
        module: any HLO module, scheduled or not.
        target: name of a GPU, or a description file.
        topology: `PxHxG`; if empty, one host with the module's devices.
        estimator: names joined by '+', or an estimator object.
        options: of the analytical model.
        costs: file of the table estimator.
        profile: file of the profile estimator.
        extended: give a price where XLA's model gives up.
        always: price modules that XLA leaves to the coarse estimator.
        xla: the release of XLA to follow, as '0.12'; '': what the module says, else the
            jaxlib installed.
        devices: instead of the number that the module asks for.

    Raises UsageError for unknown names and values out of range.
    """
    release = release_asked_for(module, xla)
    settings = EstimatorSettings(
        target=target,
        options=options or LatencyOptions(),
        costs=costs,
        profile=profile,
        extended=extended,
        always=always,
        release=release,
    )
    model, machine = estimator_for(
        module, estimator, settings, topology=topology, devices=devices
    )
    rows = tuple(_rows(module, model))
    return EstimateReport(target, machine.to_text(), model.name, rows)


_UNKNOWN = Estimate(0.0, "none", "no estimator of the stack knows it")


def _rows(module: Module, estimator: Estimator) -> Iterator[EstimateRow]:
    synchronous = opcodes.SYNC_COLLECTIVES
    for computation in scheduled_computations(module):
        for instruction in computation.instructions:
            opcode = instruction.opcode
            node = estimator.node_cost(instruction) or _UNKNOWN
            latency = None
            if opcode in synchronous and instruction.users:
                node = estimator.latency(instruction, instruction.users[0]) or node
            elif is_start(instruction):
                done = done_of(instruction)
                if done is not None:
                    latency = estimator.latency(instruction, done) or _UNKNOWN
            told = latency or node
            yield EstimateRow(
                computation.name,
                instruction.name,
                opcode,
                node.us,
                None if latency is None else latency.us,
                told.model,
                told.reason,
            )
