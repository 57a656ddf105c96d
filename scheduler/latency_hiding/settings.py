"""The scheduler's settings: XLA's settings under XLA's names, with units.

    SchedulerSettings()                  as XLA's GPU back end sets them
    SchedulerSettings.generic()          XLA's bare defaults, as its unit tests use them
    tpu.settings.tpu_settings("v5e")     as XLA:TPU's scheduler runs for that chip

Source: openxla/xla `latency_hiding_scheduler.h` (SchedulerConfig) and
`gpu_hlo_schedule.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.scheduler.memory.tpu_sizes import tpu_sizes
from hlo_passes.xla_release import XlaRelease, xla_release

if TYPE_CHECKING:
    from hlo_passes.scheduler.memory.buffer_sizes import PartSizes

#: Whose resources, hints and target rules are used.
Flavour = Literal["gpu", "generic", "tpu"]
#: Rule E2: `flag` as released (flag and overlap limit above 1); `auto` its first form
#: (limit above 1, no profile); else as said.
StartDelay = Literal["flag", "auto", "on", "off"]
#: XLA's `PIPELINE_PARALLELISM_OPT_LEVEL_*`.
OptLevel = Literal["DISABLE", "ENABLE"]
#: What happens to a schedule above `memory_limit_bytes`.
HardMemoryLimit = Literal["off", "fail", "input-order"]


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """Settings of one run; the defaults are those of XLA's GPU back end.

    Attributes:
        flavour: which resources and target rules to use: `gpu`, `generic` or `tpu`.
        chip: the TPU, for the flavour `tpu`; it decides how memory is counted.
        xla: the release of XLA to follow; none: the release that the run follows. In
            0.10.2, a wrapped dynamic-slice copy counts as an asynchronous computation,
            and a slice written to any memory counts as a slice to the host. Before
            0.12, a large fill is not special.
        parallel_collective_overlap_limit: the most collectives in flight (GPU).
        parallel_async_compute_limit: the most asynchronous computations and copies in
            flight.
        all_gather_overlap_limit: the most all-gathers in flight at once, for the
            generic flavour. The following limits do the same for their kinds.
        memory_limit_bytes: limit of the memory rules; it is only advice. None: no
            limit.
        hard_memory_limit: what to do with a schedule above that limit.
        rerun: run at most this many further rounds while the peak is above the limit,
            each with 0.9 of the limit.
        estimate_fragmentation_size: count fragmentation when deciding about a further
            round.
        start_delay: whether starts yield to compute (rule E2).
        collective_start_as_early_as_possible: XLA's flag for `start-delay=flag`.
        enable_collective_multi_streaming: test overlaps in flight, including shared
            ranks, instead of only counting.
        enable_selective_memcpy_overlap: let copies on the GPU overlap only
            compute-bound work.
        max_hops_to_closest_selective_overlap: how near such a copy must be, in edges of
            the graph.
        enable_pipelined_p2p: keep the receive of a pipelined loop next to its done.
        pipeline_parallelism_opt_level: ENABLE delays sends and receives whose done is
            in another iteration of the loop.
        aggressive_scheduling_policies: use the rules of depth, waste and unlocking.
        prioritize_async_depth_over_stall: use kStartAtZeroDepth before kLessStall.
        enable_release_start_policy: use kScheduleStart.
        enable_schedule_by_structure: use kDelayAsyncStartOfSamePreference.
        depth_based_memory_pressure_reduction: use kNoIncreaseMemoryOverLimit and
            kDepthOverLimit.
        force_delay_over_memory_pressure: use target rules before memory rules.
        schedule_send_recvs: count send and recv as asynchronous (generic flavour).
        force_send_recv_to_use_same_resource: count host receives as host sends.
        track_sync_op_resource_usage: let synchronous collectives use their resource.
        sparse_core_overlap_limit: the most calls in flight on each SparseCore of a TPU;
            None: no limit.
        sparse_core_queue: calls on a TPU's SparseCores wait for each other in the order
            of their starts; their kinds then have no limit.
        resource_serializing: use kLessSerialResourceConflict; no resource is serial
            unless your own tracker says so.
        deannotate_group_if_blocked: give up a scheduling group that blocks.
        flexible_scheduling_annotation_scheduling: leave the last start of a scheduling
            group free.
        aggressive_flexible_annotation_scheduling: also delay that start as long as
            possible.
        top_down_scheduling: place the first instruction first.
    """

    flavour: Flavour = "gpu"
    chip: str = ""
    xla: str = ""
    parallel_collective_overlap_limit: int = 1
    parallel_async_compute_limit: int = 2
    all_gather_overlap_limit: int = 1
    all_reduce_overlap_limit: int = 1
    all_to_all_overlap_limit: int = 1
    collective_broadcast_overlap_limit: int = 1
    collective_permute_overlap_limit: int = 1
    ragged_all_to_all_overlap_limit: int = 1
    reduce_scatter_overlap_limit: int = 1
    copy_overlap_limit: int = 1
    send_recv_overlap_limit: int = 1
    send_recv_host_overlap_limit: int = 1
    sparse_core_overlap_limit: int | None = 1
    sparse_core_queue: bool = False
    memory_limit_bytes: int | None = None
    hard_memory_limit: HardMemoryLimit = "off"
    rerun: int = 0
    estimate_fragmentation_size: bool = False
    start_delay: StartDelay = "flag"
    collective_start_as_early_as_possible: bool = False
    enable_collective_multi_streaming: bool = False
    enable_selective_memcpy_overlap: bool = False
    max_hops_to_closest_selective_overlap: int = 1
    enable_pipelined_p2p: bool = False
    pipeline_parallelism_opt_level: OptLevel = "DISABLE"
    aggressive_scheduling_policies: bool = True
    prioritize_async_depth_over_stall: bool = False
    enable_release_start_policy: bool = False
    enable_schedule_by_structure: bool = False
    depth_based_memory_pressure_reduction: bool = False
    force_delay_over_memory_pressure: bool = False
    schedule_send_recvs: bool = True
    force_send_recv_to_use_same_resource: bool = False
    track_sync_op_resource_usage: bool = False
    resource_serializing: bool = False
    deannotate_group_if_blocked: bool = False
    flexible_scheduling_annotation_scheduling: bool = False
    aggressive_flexible_annotation_scheduling: bool = False
    top_down_scheduling: bool = False

    def __post_init__(self) -> None:
        """Refuse values out of range (U013 in a pipeline's text)."""
        for name in self.__dataclass_fields__:
            is_limit = name.endswith("_limit") and name != "hard_memory_limit"
            number = getattr(self, name) if is_limit else None
            if number is not None and number < 1:
                raise ValueError(f"{_kebab(name)} must be 1 or more")
        if self.xla:
            xla_release(self.xla)
        if self.rerun < 0 or (self.memory_limit_bytes or 0) < 0:
            raise ValueError("rerun and memory-limit-bytes must not be negative")
        if self.max_hops_to_closest_selective_overlap < 0:
            raise ValueError("max-hops-to-closest-selective-overlap must be 0 or more")

    @property
    def release(self) -> XlaRelease:
        """The release that `xla` names; if empty, that of the installed jaxlib."""
        return xla_release(self.xla) if self.xla else followed_release()

    @classmethod
    def generic(cls, **changes: Any) -> SchedulerSettings:
        """XLA's bare defaults: generic resources, no policies beyond the basic ones."""
        bare: dict[str, Any] = {
            "flavour": "generic",
            "aggressive_scheduling_policies": False,
            "schedule_send_recvs": False,
            "max_hops_to_closest_selective_overlap": 0,
        }
        return cls(**(bare | changes))

    @property
    def time_unit(self) -> str:
        """The unit of all costs: a TPU's are cycles, as its compiler counts them."""
        return "cycles" if self.flavour == "tpu" else "us"

    @property
    def part_sizes(self) -> PartSizes | None:
        """Bytes of parts of values on a TPU, in whole tiles; None for a GPU's."""
        return tpu_sizes(self.chip) if self.flavour == "tpu" else None

    @property
    def by_name(self) -> dict[str, Any]:
        """All settings, also those of a pass that has them as its options."""
        names = SchedulerSettings.__dataclass_fields__
        return {name: getattr(self, name) for name in names}

    def delays_starts(self, estimator_names: str = "") -> bool:
        """Whether rule E2 is on.

        Args:
            estimator_names: of the stack in use, joined by '+': `auto` asks for the
                default cost model, which a profile is not.
        """
        if self.flavour != "gpu" or not self.aggressive_scheduling_policies:
            return False
        if self.start_delay in ("on", "off"):
            return self.start_delay == "on"
        if self.parallel_collective_overlap_limit <= 1:
            return False
        if self.start_delay == "auto":
            return "profile" not in estimator_names.split("+")
        return self.collective_start_as_early_as_possible


def _kebab(name: str) -> str:
    return name.replace("_", "-")
