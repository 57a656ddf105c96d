"""XLA's two coarse estimators: they know a few sizes only.

Every back end has `approximate`; `gpu-approximate` adds what the GPU knows: free
instructions, custom calls, the point-to-point stream.

Source: openxla/xla `latency_hiding_scheduler.cc`, ApproximateLatencyEstimator, and
`gpu_latency_hiding_scheduler.cc`, GpuLatencyEstimator (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.transfer_attributes import is_on_p2p_stream
from hlo_passes.ir.async_form import is_pair, work_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.estimators.base import (
    HIGH,
    LOW,
    MEDIUM,
    is_nop,
    latency_of_metadata,
)
from hlo_passes.scheduler.latency.collectives import leaf_bytes
from hlo_passes.scheduler.latency.estimate import Estimate

#: All-reduces above this size take longer, if that is asked for.
_COSTLY_ALL_REDUCE_BYTES: Final = 30 * 1024 * 1024
_COSTLY_ALL_REDUCE: Final = 4
_P2P_SEND: Final = 1024
_P2P_RECV: Final = 6
_P2P_PERMUTE: Final = 14
_PARTITIONS_PER_CYCLE: Final = 8


def _node_cost(instruction: Instruction) -> float:
    if instruction.opcode == "fusion":
        kind = instruction.attributes.get("kind")
        return {"kLoop": MEDIUM, "kOutput": HIGH}.get(kind or "", LOW)
    return HIGH if instruction.opcode == "convolution" else LOW


@dataclass(frozen=True, slots=True)
class ApproximateEstimator:
    """5000 from start to done; 1, 1000 or 5000 per instruction."""

    name: str = "approximate"

    def node_cost(self, instruction: Instruction) -> Estimate:
        """1000 for loop fusions, 5000 for output fusions and convolutions, else 1."""
        return Estimate(_node_cost(instruction), self.name)

    def latency(self, start: Instruction, user: Instruction) -> Estimate:
        """5000 for an asynchronous pair, else 1."""
        return Estimate(HIGH if is_pair(start, user) else LOW, self.name)


@dataclass(frozen=True, slots=True)
class GpuApproximateEstimator:
    """The GPU's coarse estimator.

    Attributes:
        costly_collectives: XLA's `xla_gpu_enable_approx_costly_collectives`.
    """

    name: str = "gpu-approximate"
    costly_collectives: bool = False

    def node_cost(self, instruction: Instruction) -> Estimate:
        """0 if it generates no code, 1000 for custom calls, else as `approximate`."""
        if is_nop(instruction):
            return Estimate(0.0, self.name)
        if instruction.opcode == "custom-call":
            known = latency_of_metadata(instruction)
            return Estimate(MEDIUM if known is None else known, self.name)
        return Estimate(_node_cost(instruction), self.name)

    def latency(self, start: Instruction, user: Instruction) -> Estimate:
        """5000 for an asynchronous pair; more on the point-to-point stream."""
        return Estimate(self._latency(start, user), self.name)

    def _latency(self, start: Instruction, user: Instruction) -> float:
        if not is_pair(start, user):
            return LOW
        if is_on_p2p_stream(start):
            return _p2p_latency(start)
        if (
            self.costly_collectives
            and start.opcode == "all-reduce-start"
            and leaf_bytes(start.shape) > _COSTLY_ALL_REDUCE_BYTES
        ):
            return HIGH * _COSTLY_ALL_REDUCE
        return HIGH


def _p2p_latency(start: Instruction) -> float:
    kind = work_of(start)
    if kind == "send":
        return _P2P_SEND * HIGH
    if kind == "collective-permute":
        partitions = start.computation.module.num_partitions
        stagger = max(partitions // _PARTITIONS_PER_CYCLE - 1, 1)
        return stagger * _P2P_RECV * HIGH + _P2P_PERMUTE * HIGH
    return _P2P_RECV * HIGH
