"""`sol`: XLA's analytical ("speed of light") estimator.

    all-gather across hosts      S-curve of ring steps           sol/ring
    all-gather inside one        measured NCCL table             sol/table
    dot, Triton GEMM             measured GEMM table             sol/gemm-table
    loop or input fusion         roofline                        sol/roofline
    all else                     0.01 of the coarse estimator    sol/constant
    what it does not know        the coarse estimator            gpu-approximate

Source: openxla/xla `sol_latency_estimator.cc` (Aug 2026).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Final

from hlo_passes.ir.async_form import begun_collective, is_pair, work_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import fusion_kind, gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.base import (
    LOW,
    NEXT_TO_NOTHING_US,
    is_async_collective,
    is_constant,
    is_nop,
    latency_of_metadata,
)
from hlo_passes.scheduler.estimators.fingerprint import Fingerprints
from hlo_passes.scheduler.fusions.kernel_bytes import is_kernel, least_ticks
from hlo_passes.scheduler.fusions.roofline import fusion_time
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.collectives import describe, describe_transfer
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_PROFILE, op_cycles
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency.gemm import gemm_of, is_grouped_product
from hlo_passes.scheduler.latency.network import NotEstimated

#: Share of the coarse cost for an instruction without a model.
_FALLBACK_SHARE: Final = 0.01
_ROOFLINE_KINDS: Final = ("kLoop", "kInput")
#: Collectives that the model knows; any other kind turns it off for the module.
_SUPPORTED: Final = frozenset(
    "all-reduce all-gather reduce-scatter all-to-all collective-permute".split()
)
_HOST: Final = "DEVICE_TYPE_HOST"
_FREE: Final = frozenset("get-tuple-element bitcast parameter tuple constant".split())


def unsupported_reason(module: Module) -> str:
    """Why XLA does not use its model for a module; '' if it does."""
    return _Unsupported(module).reason()


def _reason_in(computation: Computation) -> str:
    """The reason that a computation gives, '' for none."""
    for instruction in computation.instructions:
        opcode = instruction.opcode
        kind = begun_collective(opcode)
        if kind and kind not in _SUPPORTED:
            return f"%{instruction.name} is a {kind}, which the model does not know"
        if (
            instruction.mentions(_HOST)
            and gpu_config(instruction).get("device_type") == _HOST
        ):
            return f"%{instruction.name} is offloaded to the host"
    return ""


class _Unsupported:
    """The first instruction of a module that XLA's model does not know.

    Only a change of the module makes it be searched for again. A new order only
    matters in the computation that has it: others may have become the first there.
    """

    def __init__(self, module: Module) -> None:
        self._module, self._edits = module, module.edits
        self._order: tuple[Instruction, ...] = ()
        self._computation: Computation | None = None
        self._reason = ""
        for computation in module.computations:
            self._reason = _reason_in(computation)
            if self._reason:
                self._computation, self._order = computation, computation.instructions
                break

    def is_of(self, module: Module) -> bool:
        """Whether it is still what there is to know of a module."""
        return self._module is module and self._edits == module.edits

    def reason(self) -> str:
        """Why XLA does not use its model for the module; '' if it does."""
        found = self._computation
        if found is not None and found.instructions is not self._order:
            self._reason, self._order = _reason_in(found), found.instructions
        return self._reason


@dataclass(slots=True)
class SolEstimator:
    """XLA's analytical estimator for one target.

    Attributes:
        model: of collectives and GEMMs.
        always: also price modules that XLA leaves to the coarse estimator
            (`exec_time_optimization_effort` of 0.2 and more does that).
    """

    model: CollectiveModel
    always: bool = False
    name: str = "sol"
    _coarse: GpuApproximateEstimator = field(default_factory=GpuApproximateEstimator)
    _prints: Fingerprints = field(default_factory=Fingerprints)
    _costs: dict[Hashable, Estimate] = field(default_factory=dict)
    _least: dict[Hashable, float] = field(default_factory=dict)
    _latencies: dict[Hashable, Estimate] = field(default_factory=dict)
    _unsupported: _Unsupported | None = None

    def off_reason(self, module: Module) -> str:
        """Why the coarse estimator prices the whole module; '' if it does not."""
        reason = self.model.off_reason
        if reason or self.always or self.model.extended:
            return reason
        if self._unsupported is None or not self._unsupported.is_of(module):
            self._unsupported = _Unsupported(module)
        return self._unsupported.reason()

    def node_cost(self, instruction: Instruction) -> Estimate:
        """Cost of an instruction, us."""
        reason = self.off_reason(instruction.computation.module)
        if reason:
            coarse = self._coarse.node_cost(instruction)
            return Estimate(coarse.us, coarse.model, reason)
        if instruction.opcode in _FREE and not instruction.mentions("latency_metadata"):
            return _FREE_ESTIMATE
        key: Hashable = self._prints.key(instruction)
        if self.model.extended:
            # Whether it is a kernel depends on nothing else that the key does not tell.
            is_scheduled = instruction.computation.module.is_scheduled
            key = key, is_scheduled, self._sources(instruction)
        known = self._costs.get(key)
        if known is None:
            known = self._costs[key] = self._node_cost(instruction)
        return known

    def _node_cost(self, instruction: Instruction) -> Estimate:
        # A cost in the metadata overrides every model.
        annotated = latency_of_metadata(instruction)
        if annotated is not None:
            return Estimate(annotated, "latency-metadata")
        # An asynchronous collective has its kernel's cost.
        if is_async_collective(instruction) and not self._is_any_fusion(instruction):
            return self.kernel_time(instruction) or Estimate(LOW, "sol/constant")
        # A matrix product costs what the table says, a fusion what the roofline says.
        gemm = gemm_of(instruction)
        if gemm is not None:
            is_scaled = self.model.gemm_is_scaled(gemm)
            path = "extended/gemm-table" if is_scaled else "sol/gemm-table"
            ticks = self.model.gemm_ticks(gemm)
            if self.model.extended:
                floor = self._floor_ticks(instruction)
                if floor > ticks:
                    return Estimate(us_of_ticks(floor), "extended/bytes")
            times = self.model.gemm_times_its_share(gemm)
            return Estimate(us_of_ticks(ticks), path, times_its_share=times)
        if (
            instruction.opcode == "fusion"
            and instruction.attributes.get("kind") in _ROOFLINE_KINDS
            and instruction.called_computations
        ):
            cycles = op_cycles(DEFAULT_OP_PROFILE)
            time = fusion_time(
                instruction,
                self.model.target,
                cycles,
                broadcasts_join=self.model.release.broadcasts_join,
            )
            return Estimate(
                us_of_ticks(time.ticks),
                "sol/roofline",
                parts_us={
                    "compute": us_of_ticks(time.compute_ticks),
                    "read": us_of_ticks(time.read_ticks),
                    "write": us_of_ticks(time.write_ticks),
                },
            )
        # A no-op is free; anything else has a share of its coarse cost.
        if is_nop(instruction):
            return _FREE_ESTIMATE
        coarse = _FALLBACK_SHARE * self._coarse.node_cost(instruction).us
        is_small = coarse <= NEXT_TO_NOTHING_US
        if self.model.extended and is_small and is_kernel(instruction):
            ticks = self._floor_ticks(instruction)
            return Estimate(max(coarse, us_of_ticks(ticks)), "extended/bytes")
        reason = f"XLA has no model for {_described(instruction)}"
        return Estimate(coarse, "sol/constant", reason)

    def least_us(self, instruction: Instruction) -> float:
        """What a kernel takes at least, us, if XLA's price is less; else 0.

        By the bytes that it moves. XLA gives such a kernel next to nothing, or it is a
        matrix product, whose price counts its arithmetic.
        """
        found = self.node_cost(instruction)
        if found.model == "sol/gemm-table":
            least = self._least_us(instruction)
            return least if least > found.us else 0.0
        if found.reason == "" or not is_constant(found.model):
            return 0.0
        if found.us > NEXT_TO_NOTHING_US or not is_kernel(instruction):
            return 0.0
        return self._least_us(instruction)

    def _least_us(self, kernel: Instruction) -> float:
        key = self._prints.key(kernel), self._sources(kernel)
        known = self._least.get(key)
        if known is None:
            known = self._least[key] = us_of_ticks(self._floor_ticks(kernel))
        return known

    def _sources(self, instruction: Instruction) -> int:
        """What a product that is not fused yet reads, which its shapes do not tell."""
        return self._floor_ticks(instruction) if instruction.opcode == "dot" else 0

    def _floor_ticks(self, kernel: Instruction) -> int:
        """By the bytes of a kernel; 0 where some of them may not be moved."""
        if is_grouped_product(kernel) or kernel.shape.element_count == 0:
            return 0
        return least_ticks(kernel, self.model.target)

    def _is_any_fusion(self, half: Instruction) -> bool:
        """Whether the release does not see the collective in an asynchronous fusion."""
        return (
            not self.model.release.prices_collective_fusions
            and work_of(half) == "fusion"
        )

    def kernel_time(self, instruction: Instruction) -> Estimate | None:
        """Time of a collective kernel that blocks the compute stream, or of its start.

        None for anything else. A kernel may be a fusion, whatever it says of itself.
        XLA asks only for starts: what it schedules has no others.
        """
        try:
            collective = describe(instruction)
            if collective is None:
                return None
            is_kernel = collective.is_sync and collective.kernel_strategy
            if not is_kernel and instruction.opcode != "fusion":
                return None
            return self.model.estimate(collective)
        except NotEstimated:
            return None

    def latency(self, start: Instruction, user: Instruction) -> Estimate:
        """Latency between two instructions, us."""
        reason = self.off_reason(start.computation.module)
        if reason:
            coarse = self._coarse.latency(start, user)
            return Estimate(coarse.us, coarse.model, reason)
        pair = is_pair(start, user)
        kind = begun_collective(start.opcode)
        known_kind = bool(kind) if self.model.extended else kind in _SUPPORTED
        if not pair and not known_kind:
            return self._coarse.latency(start, user)
        key = (pair, self._prints.key(start))
        known = self._latencies.get(key)
        if known is None:
            known = self._latencies[key] = self._latency(start, user)
        return known

    def _latency(self, start: Instruction, user: Instruction) -> Estimate:
        try:
            if self._is_any_fusion(start):
                raise NotEstimated("this release prices it as any fusion")
            collective = describe(start)
            if collective is None:
                return self._transfer(start)
            if collective.is_sync and collective.kernel_strategy:
                return Estimate(LOW, "sol/constant")
            return self.model.estimate(collective)
        except NotEstimated as problem:
            coarse = self._coarse.latency(start, user)
            return Estimate(coarse.us, coarse.model, str(problem))

    def _transfer(self, start: Instruction) -> Estimate:
        """A send or recv priced as a permute, if that is asked for."""
        transfer = describe_transfer(start) if self.model.extended else None
        if transfer is None:
            raise NotEstimated("the model does not know this operation")
        found = self.model.estimate(transfer)
        return replace(found, model=f"extended/{found.model.partition('/')[2]}")


def _described(instruction: Instruction) -> str:
    if instruction.opcode == "custom-call":
        target = instruction.attributes.get("custom_call_target", "")
        return f"custom-call {target}"
    if instruction.opcode == "fusion":
        return f"fusions of kind {fusion_kind(instruction) or 'unknown'}"
    return instruction.opcode


_FREE_ESTIMATE: Final = Estimate(0.0, "sol/constant")
