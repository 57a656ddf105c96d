"""Does what XLA's GPU compiler does to collectives and their order, as far as it goes.

    Before:  %a = f32[16] all-gather(%x), ...           (partitioned, no schedule)
             %b = f32[8] all-gather(%y), ...
             %c = f32[8] negate(%z)
    After:   %s = (...) all-gather-start(%x, %y), ...
             %c = f32[8] negate(%z)
             %d = (f32[16], f32[8]) all-gather-done(%s)      is_scheduled=true

The input is the module as XLA has it right after its partitioner, or at any later point
before its scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

from hlo_passes.passes.combining.combining import DEFAULT_THRESHOLD_BYTES
from hlo_passes.passes.framework.base import Pass
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.xla_gpu_order import LEFT_OUT, Step, steps

#: The field of each combiner.
_THRESHOLD: Final = "threshold_bytes"
#: From this effort on, and from level 1 on, XLA pipelines and unrolls loops.
_EFFORT: Final = 0.2
#: Values of XLA's flag for unrolling -> the strategy of the pass.
_STRATEGIES: Final = {
    "DOUBLE_BUFFER": "double-buffer",
    "FULL_UNROLL": "full-unroll",
    "AUTO_UNROLL": "auto",
    "MANUAL_UNROLL": "manual",
}

Mode = Literal["default", "off", "on", "explicit"]
Unrolling = Literal[
    "NO_UNROLL", "DOUBLE_BUFFER", "FULL_UNROLL", "AUTO_UNROLL", "MANUAL_UNROLL"
]


@dataclass(frozen=True, slots=True)
class XlaGpu(GpuSchedule):
    """Do what XLA's GPU compiler does to collectives and their order; fuse nothing.

    `xla-gpu` runs all passes over collectives and loops that this project has and that
    XLA runs by default or with the options below. It runs them where XLA runs them, in
    XLA's order, and then runs the passes of `gpu-schedule`. The page about flags lists
    them all (docs/flags.md).

    `xla-gpu` accepts every option of these passes, and gives it to all passes that have
    it. `threshold-bytes` is for all four combiners; each of the four threshold options
    below is for one combiner.

    `xla-gpu` leaves out everything else that XLA does with a partitioned module:
    simplification, layouts, libraries for products and convolutions, fusion, copy
    insertion, rematerialization. So compute is priced instruction by instruction where
    XLA fuses, and a pass may see another form than in XLA. `hlo-passes lower --target`
    runs XLA itself.

    Source: openxla/xla `xla/service/gpu/gpu_compiler.cc` (RunPostFusionPasses,
    RunCollectiveOptimizationPasses, AddCollectiveCombinerPasses,
    AddDoubleBufferingPasses), `xla/service/gpu/flag_utils.h`,
    `xla/service/gpu/gpu_hlo_schedule.cc`.

    Attributes:
        all_gather_combine_threshold_bytes: the most bytes of a combined all-gather. If
            this option has its default, which is XLA's, `threshold-bytes` decides; the
            same holds for the next three options.
        all_reduce_combine_threshold_bytes: the most bytes of a combined all-reduce.
        reduce_scatter_combine_threshold_bytes: the most bytes of a combined
            reduce-scatter.
        collective_permute_combine_threshold_bytes: the most bytes of a combined
            permute.
        optimization_level: from O1 on, loops are pipelined and unrolled, unless the
            option for that says otherwise. `JAX_OPTIMIZATION_LEVEL=O1` sets the level
            in a job.
        exec_time_optimization_effort: the older form of `optimization-level`; 0.2 does
            the same as O1.
        pipeline_all_reduce: run `collective-pipeliner-forward` for all-reduces.
            `default` asks the optimization level; `explicit` moves only those with the
            frontend attribute `is_pipelineable`.
        pipeline_all_gather: the same for all-gathers, with
            `collective-pipeliner-backward`.
        pipeline_reduce_scatter: the same for reduce-scatters, with
            `collective-pipeliner-forward`.
        enable_pipelined_host_offloading: run both pipeliners for slices that move from
            and to the host; the optimization level from O1 on does so, too.
        enable_pipelined_p2p: cut cycles of permutes open, turn the permutes into sends
            and recvs, and order these first.
        pipeline_parallelism_opt_level: turn permutes into sends and recvs even without
            `enable-pipelined-p2p`.
        collective_cse_distance_threshold: compute equal collectives only once if they
            are at most this many instructions apart; 0: leave them alone.
        enable_dus_accumulator_zero_init_elimination: run
            `dus-accumulator-zero-init-elimination`.
        all_reduce_blueconnect_num_devices_per_host: cut all-reduces into steps within
            and between hosts of this many GPUs; 0: leave them alone.
        enable_while_loop_unrolling: how to unroll loops; AUTO_UNROLL and MANUAL_UNROLL
            work only from `optimization-level=O1` on.
        enable_while_loop_double_buffering: the older form of
            `enable-while-loop-unrolling=DOUBLE_BUFFER`.
        enable_heuristic_collective_combining: run `collective-combiner-annotator`, so
            that collectives that no work hides are combined as far as memory allows.
        unsupported_enable_all_reduce_decomposer: run `all-reduce-decomposer`.
        unsupported_enable_ragged_all_to_all_decomposer: run
            `ragged-all-to-all-decomposer`.
        unsupported_enable_ragged_all_to_all_multi_host_decomposer: run
            `ragged-all-to-all-multi-host-decomposer`; none: as the release does.
    """

    name: ClassVar[str] = "xla-gpu"
    reorders_sums: ClassVar[bool] = True
    members: ClassVar[tuple[str, ...]] = (
        *(step.name for step in steps()),
        *GpuSchedule.members,
    )
    left_out: ClassVar[tuple[str, ...]] = LEFT_OUT

    all_gather_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    all_reduce_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    reduce_scatter_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    collective_permute_combine_threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    optimization_level: Literal["O0", "O1", "O2", "O3"] = "O0"
    exec_time_optimization_effort: float = 0.0
    pipeline_all_reduce: Mode = "default"
    pipeline_all_gather: Mode = "default"
    pipeline_reduce_scatter: Mode = "on"
    enable_pipelined_host_offloading: bool = False
    pipeline_parallelism_opt_level: Literal["DISABLE", "ENABLE"] = "DISABLE"
    collective_cse_distance_threshold: int = 0
    enable_dus_accumulator_zero_init_elimination: bool = False
    all_reduce_blueconnect_num_devices_per_host: int = 0
    enable_while_loop_unrolling: Unrolling = "AUTO_UNROLL"
    enable_while_loop_double_buffering: bool = False
    enable_heuristic_collective_combining: bool = False
    unsupported_enable_all_reduce_decomposer: bool = False
    unsupported_enable_ragged_all_to_all_decomposer: bool = False
    unsupported_enable_ragged_all_to_all_multi_host_decomposer: bool | None = None

    def passes(self) -> tuple[Pass, ...]:
        """The passes that are on, in XLA's order."""
        on = self._switches()
        before = [
            self.member(step.name, **(dict(step.fixed) | self._settings(step)))
            for step in steps()
            if not step.switch or on[step.switch]
        ]
        return (*before, *GpuSchedule.passes(self))

    def member(self, name: str, **fixed: object) -> Pass:
        """One pass with the options for it; a combiner's own threshold comes first."""
        made = GpuSchedule.member(self, name, **fixed)
        threshold = {
            "gpu-all-gather-combiner": self.all_gather_combine_threshold_bytes,
            "gpu-all-reduce-combiner": self.all_reduce_combine_threshold_bytes,
            "gpu-reduce-scatter-combiner": self.reduce_scatter_combine_threshold_bytes,
            "collective-permute-combiner": (
                self.collective_permute_combine_threshold_bytes
            ),
        }.get(name)
        if threshold in (None, DEFAULT_THRESHOLD_BYTES):
            return made
        changed: dict[str, Any] = {_THRESHOLD: threshold}
        return replace(made, **changed)

    @property
    def _effort(self) -> bool:
        """Whether XLA spends time on loops with collectives."""
        effort = self.exec_time_optimization_effort
        return self.optimization_level != "O0" or effort >= _EFFORT

    def _switches(self) -> dict[str, bool]:
        """Switch -> whether it is on."""
        effort = self._effort
        modes = self._modes()
        offloads = self.enable_pipelined_host_offloading or effort
        return {
            **{
                f"pipelines-{op}": mode in ("on", "explicit")
                or (mode == "default" and effort)
                for op, mode in modes.items()
            },
            "pipelines-move-to-host": offloads,
            "pipelines-move-to-device": offloads,
            "enable-pipelined-p2p": self.enable_pipelined_p2p,
            "decomposes-permutes": self.enable_pipelined_p2p
            or self.pipeline_parallelism_opt_level != "DISABLE",
            "shares-collectives": self.collective_cse_distance_threshold > 0,
            "connects-hosts": self.all_reduce_blueconnect_num_devices_per_host > 0,
            "unrolls-loops": bool(self._strategy()),
            "enable-dus-accumulator-zero-init-elimination": (
                self.enable_dus_accumulator_zero_init_elimination
            ),
            "enable-heuristic-collective-combining": (
                self.enable_heuristic_collective_combining
            ),
            "unsupported-enable-all-reduce-decomposer": (
                self.unsupported_enable_all_reduce_decomposer
            ),
            "unsupported-enable-ragged-all-to-all-decomposer": (
                self.unsupported_enable_ragged_all_to_all_decomposer
            ),
            "unsupported-enable-ragged-all-to-all-multi-host-decomposer": (
                self.unsupported_enable_ragged_all_to_all_multi_host_decomposer
                is not False
            ),
        }

    def _modes(self) -> dict[str, Mode]:
        """Opcode -> how its pipelining was asked for."""
        return {
            "all-reduce": self.pipeline_all_reduce,
            "all-gather": self.pipeline_all_gather,
            "reduce-scatter": self.pipeline_reduce_scatter,
        }

    def _strategy(self) -> str:
        """How loops are unrolled; '' if they are not."""
        asked = self.enable_while_loop_unrolling
        if asked in ("DOUBLE_BUFFER", "FULL_UNROLL"):
            return _STRATEGIES[asked]
        if self.enable_while_loop_double_buffering:
            return _STRATEGIES["DOUBLE_BUFFER"]
        return _STRATEGIES.get(asked, "") if self._effort else ""

    def _settings(self, step: Step) -> dict[str, object]:
        """The options of a pass that are options of this one by another name."""
        if step.name.startswith("collective-pipeliner"):
            mode = self._modes().get(str(step.fixed["op"]))
            return {"only_marked": True} if mode == "explicit" else {}
        if step.name == "loop-double-buffer-transformer":
            return {"strategy": self._strategy()}
        if step.name == "schedule-aware-collective-cse":
            return {"distance_threshold": self.collective_cse_distance_threshold}
        if step.name == "all-reduce-blueconnect":
            per_host = self.all_reduce_blueconnect_num_devices_per_host
            return {"devices_per_host": per_host}
        if step.name == "ragged-all-to-all-multi-host-decomposer":
            asked = self.unsupported_enable_ragged_all_to_all_multi_host_decomposer
            return {"only_by_default": asked is None}
        return {}
