"""Time of one collective on one target: classification, then formula or table.

    single partition     measured table, or the NVLink kernel formula
    across partitions    HBM traffic + ring or all-to-all + reduction

Options hold what the user set; the release says where the partition size comes from.
Source: openxla/xla `sol_latency_estimator.cc`, ComputeCollectiveTime (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.ir.shapes import BITS, Shape
from hlo_passes.scheduler.fusions.fused_graph import bit_width
from hlo_passes.scheduler.fusions.launch_dimensions import ceil_div, loop_launch
from hlo_passes.scheduler.fusions.roofline import compute_ticks
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.collective_table import builtin_table
from hlo_passes.scheduler.latency.collectives import Collective
from hlo_passes.scheduler.latency.communication import (
    CommunicationType,
    communication_type,
    permute_type,
)
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_PROFILE
from hlo_passes.scheduler.latency.durations import (
    memory_ticks,
    scaled,
    ticks_of_us,
    us_of_ticks,
)
from hlo_passes.scheduler.latency.estimate import Estimate
from hlo_passes.scheduler.latency.extended import ExtendedModel
from hlo_passes.scheduler.latency.matmul_table import Gemm, builtin_matmul_table
from hlo_passes.scheduler.latency.network import (
    NotEstimated,
    RingKind,
    WireTime,
    all_to_all_time,
    nvlink_kernel_ticks,
    ring_time,
)
from hlo_passes.scheduler.latency.options import (
    LatencyOptions,
    NetworkConfig,
    network_config,
)
from hlo_passes.xla_release import XlaRelease

#: Launch of an operation that the formulas do not know.
_UNKNOWN_LAUNCH_TICKS: Final = ticks_of_us(5.0)
_RING_KINDS: Final[dict[str, RingKind]] = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "collective-permute": "send-recv",
}
#: How prices of kernels over NVLink end, in the name of their model.
NVLINK_KERNEL: Final = "nvlink-kernel"
_UNROLL: Final = 4
_BYTE: Final = 8


class CollectiveTimes(Protocol):
    """A table of measured collectives."""

    def ticks(self, collective: Collective, gpus_per_node: int) -> int:
        """Time of a collective inside one partition. NotEstimated without a row."""
        ...


class GemmTimes(Protocol):
    """A table of measured matrix products."""

    def ticks(self, gemm: Gemm) -> int:
        """Time of a product."""
        ...

    def times_its_share(self, gemm: Gemm) -> int:
        """How often that time counts each flop; 1 is right."""
        ...


@dataclass(slots=True)
class CollectiveModel:
    """The analytical model of one target.

    Attributes:
        target: the GPU.
        options: what the user set.
        topology: of the machine; from 0.11 on XLA takes the partition size from it.
        release: of XLA. 0.10.2: the partition size is gpus_per_node unless given, and
            kernel annotations do not change the price. From 0.11 on it is the
            topology's, and annotated collectives are priced as NVLink kernels.
        extended: give a price where XLA's model gives up, see `extended`.
        op_profile: cycles of the reduction.
        collective_table: measured collectives instead of the built-in table.
        matmul_table: measured GEMMs instead of the built-in table.
        config: constants of the target with the user's options.
        partition_size: devices of one partition.
        off_reason: why XLA's model cannot be made for the target; '' if it can.
    """

    target: Target
    options: LatencyOptions = field(default_factory=LatencyOptions)
    topology: Topology | None = None
    release: XlaRelease = field(default_factory=followed_release)
    extended: bool = False
    op_profile: str = DEFAULT_OP_PROFILE
    collective_table: CollectiveTimes | None = None
    matmul_table: GemmTimes | None = None
    config: NetworkConfig = field(init=False)
    partition_size: int = field(init=False)
    off_reason: str = field(init=False, default="")
    _extension: ExtendedModel | None = field(init=False, default=None)
    _table_is_missing: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        """Fix the partition size and find the tables."""
        self.config = network_config(self.target, self.options)
        self.partition_size = self._partition_size()
        reason = (
            ""
            if self.target.has_analytical_model
            else (f"XLA's analytical model does not apply to {self.target.spec}")
        )
        try:
            if self.collective_table is None:
                self.collective_table = builtin_table(
                    self.target.table_key, self.config.gpus_per_node
                )
            if self.matmul_table is None:
                self.matmul_table = builtin_matmul_table(self.target.table_key)
        except NotEstimated as problem:
            reason = (
                reason
                or f"XLA's model cannot be made for {self.target.spec}: {problem}"
            )
        if self.extended:
            self._extension = ExtendedModel(self.target, self.config, self.topology)
            self._table_is_missing = bool(reason)
            reason = ""
        self.off_reason = reason

    def _partition_size(self) -> int:
        if self.config.partition_size:
            return self.config.partition_size
        if self.release.partition_from_topology and self.topology is not None:
            return self.topology.partition_size
        return self.config.gpus_per_node

    # -- GEMM -------------------------------------------------------------------

    def gemm_is_scaled(self, gemm: Gemm) -> bool:
        """Whether a product's time is not what XLA's table of the part says."""
        return self.matmul_table is None or (
            self._extension is not None and self.matmul_table.times_its_share(gemm) > 1
        )

    def gemm_times_its_share(self, gemm: Gemm) -> int:
        """How often XLA's table counts each flop of a product; 1 is right."""
        if self.matmul_table is None or self._extension is not None:
            return 1
        return self.matmul_table.times_its_share(gemm)

    def gemm_ticks(self, gemm: Gemm) -> int:
        """Time of a matrix product, ticks. NotEstimated without a table."""
        if self.matmul_table is not None:
            ticks = self.matmul_table.ticks(gemm)
            if self._extension is None:
                return ticks
            return scaled(ticks, 1 / self.matmul_table.times_its_share(gemm))
        if self._extension is None:
            raise NotEstimated(f"no GEMM table for {self.target.table_key}")
        return self._extension.gemm_ticks(gemm)

    # -- collectives ------------------------------------------------------------

    def estimate(self, collective: Collective) -> Estimate:
        """Time of a collective, from start to done. NotEstimated if XLA has none."""
        if self._extension is not None and self._table_is_missing:
            return self._extended(collective, "")
        try:
            return self._strict(collective)
        except NotEstimated as problem:
            if self._extension is None:
                raise
            return self._extended(collective, str(problem))

    def _strict(self, collective: Collective) -> Estimate:
        if collective.kind == "collective-permute":
            kind = permute_type(collective.pairs, self.partition_size)
            if kind.is_inter:
                return self._across(collective, hosts=2, communicators=1)
            return self._from_table(collective)
        where = communication_type(
            collective.listed_groups, self.partition_size, collective.replica_count
        )
        communicators, members = collective.count_and_size()
        if where is CommunicationType.SINGLE_PARTITION:
            if collective.kernel_strategy and self.release.prices_kernel_strategies:
                return self._nvlink_kernel(collective, members)
            return self._from_table(collective)
        hosts = members
        if where is CommunicationType.WORLD_LEVEL:
            hosts = members // self.partition_size
        return self._across(collective, hosts, communicators)

    def _extended(self, collective: Collective, reason: str) -> Estimate:
        assert self._extension is not None
        members = self._extension.members_of_a_domain(collective)
        if (
            members > 1
            and collective.kernel_strategy
            and self.release.prices_kernel_strategies
            and self.target.nvlink_links
        ):
            return self._nvlink_kernel(collective, members, "extended", reason)
        found = self._extension.collective_ticks(collective)
        if found.wire is not None:
            return self._with_memory(collective, found.wire, found.path, reason)
        return Estimate(us_of_ticks(found.ticks), found.path, reason)

    def _from_table(self, collective: Collective) -> Estimate:
        if self.collective_table is None:
            raise NotEstimated(f"no collective table for {self.target.table_key}")
        ticks = self.collective_table.ticks(collective, self.config.gpus_per_node)
        return Estimate(us_of_ticks(ticks), "sol/table")

    def _nvlink_kernel(
        self,
        collective: Collective,
        members: int,
        model: str = "sol",
        reason: str = "",
    ) -> Estimate:
        wire = nvlink_kernel_ticks(
            self.config,
            collective.transferred_bytes,
            members,
            self.target.nvlink_links,
            self.target.nvlink_gb_per_s,
        )
        memory = self._memory_ticks(collective)
        return Estimate(
            us_of_ticks(memory + wire),
            f"{model}/{NVLINK_KERNEL}",
            reason,
            {"memory": us_of_ticks(memory), "kernel": us_of_ticks(wire)},
        )

    def _across(
        self, collective: Collective, hosts: int, communicators: int
    ) -> Estimate:
        sent = collective.transferred_bytes
        if collective.kind in _RING_KINDS:
            kind = _RING_KINDS[collective.kind]
            wire = ring_time(self.config, sent, hosts, kind, communicators)
            return self._with_memory(collective, wire, "sol/ring")
        if collective.kind == "all-to-all":
            wire = all_to_all_time(self.config, sent, hosts, communicators)
            return self._with_memory(collective, wire, "sol/all-to-all")
        if self._extension is not None:
            raise NotEstimated(f"no formula for {collective.kind}")
        ticks = self._memory_ticks(collective) + _UNKNOWN_LAUNCH_TICKS
        return Estimate(
            us_of_ticks(ticks),
            "sol/constant",
            f"the model has no formula for {collective.kind}, only its launch",
        )

    def _with_memory(
        self, collective: Collective, wire: WireTime, path: str, reason: str = ""
    ) -> Estimate:
        memory = self._memory_ticks(collective)
        reduction = self.reduction_ticks(collective)
        return Estimate(
            us_of_ticks(memory + reduction + wire.total),
            path,
            reason,
            {
                "launch": us_of_ticks(wire.launch),
                "rtt": us_of_ticks(wire.rtt),
                "preparation": us_of_ticks(wire.preparation),
                "wire": us_of_ticks(wire.wire),
                "memory": us_of_ticks(memory),
                "reduction": us_of_ticks(reduction),
            },
        )

    def _memory_ticks(self, collective: Collective) -> int:
        return memory_ticks(
            collective.accessed_bytes, self.target.memory_bandwidth_bytes_per_s
        )

    def reduction_ticks(self, collective: Collective) -> int:
        """Arithmetic of an all-reduce or reduce-scatter, priced as a loop fusion."""
        flops = collective.reduction_flops(self.op_profile)
        if not flops:
            return 0
        first = collective.first_result
        unroll = _unroll(first, self.target)
        launch = loop_launch(first.element_count, unroll)
        return compute_ticks(flops, launch, self.target)


def _unroll(result: Shape, target: Target) -> int:
    """Elements per thread of the reduction's loop kernel."""
    elements = result.element_count
    unroll = 1
    if elements >= target.max_threads:
        while unroll < _UNROLL and elements % (unroll * 2) == 0:
            unroll *= 2
    return max(unroll, ceil_div(_BYTE, bit_width(result.element_type) or BITS["f32"]))
