"""Flags of XLA that NVIDIA, OpenXLA, JAX and MaxText publish, and our lever for each.

    PUBLISHED["maxtext-a3-1vm"].flags    (("xla_gpu_enable_triton_gemm", "false"), ...)
    FLAGS["xla_gpu_enable_triton_gemm"].lever, .why    '', 'it chooses kernels: ...'

Read as of July and August 2026, JAX's page as of its review of March 2025. Folders for
dumps are left out.
`docs/flag_lists.md` is made from these tables; `tests/scheduler/tuning` asks jaxlib
about every name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from hlo_passes.xla_release import RELEASES, XlaRelease

_GPU: Final = "xla_gpu_"
_MIB: Final = 1 << 20
_TOOLBOX: Final = "https://github.com/NVIDIA/JAX-Toolbox/blob/main"
_MAXTEXT: Final = "https://github.com/AI-Hypercomputer/maxtext/blob/main"
_TIPS: Final = (
    "https://docs.nvidia.com/jax-toolbox/performance-profiling/gpu-performance",
    f"{_TOOLBOX}/docs/GPU_performance.md",
)


@dataclass(frozen=True, slots=True)
class FlagList:
    """Flags that somebody recommends to set together.

    Attributes:
        who: publishes it, and for what.
        sources: public addresses.
        flags: (name, value).
    """

    who: str
    sources: tuple[str, ...]
    flags: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PublishedFlag:
    """A flag of a published list, or one that a list names without a value.

    Attributes:
        lever: of ours that sets it, '' for none.
        why: there is no lever.
        releases: of ours that know it.
        before: the switch that it was in the others, '' for none; `on` is `true`.
    """

    lever: str = ""
    why: str = ""
    releases: tuple[str, ...] = tuple(each.name for each in RELEASES)
    before: str = ""

    @property
    def chooses_kernels(self) -> bool:
        """Whether it changes which kernels run: no cost model compares those."""
        return self.why == _KERNELS

    def is_in(self, release: XlaRelease) -> bool:
        """Whether a release knows it; XLA ends a process with one it does not know."""
        return release.name in self.releases


def _gpu(*flags: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Flags without the `xla_gpu_` that they begin with."""
    return tuple((f"{_GPU}{name}", value) for name, value in flags)


def _combined(
    all_reduce: int, all_gather: int, reduce_scatter: int
) -> tuple[tuple[str, str], ...]:
    return (
        ("all_reduce_combine_threshold_bytes", str(all_reduce)),
        ("all_gather_combine_threshold_bytes", str(all_gather)),
        ("reduce_scatter_combine_threshold_bytes", str(reduce_scatter)),
    )


_SCHEDULER: Final = ("enable_latency_hiding_scheduler", "true")
_UNROLLED: Final = ("enable_while_loop_double_buffering", "true")
_NOT_UNROLLED: Final = ("enable_while_loop_double_buffering", "false")
_NO_GRAPHS: Final = ("enable_command_buffer", "")
_NO_TRITON: Final = ("enable_triton_gemm", "false")
_STREAM: Final = ("enable_highest_priority_async_stream", "true")
_KINDS: Final = ("all_gather", "reduce_scatter", "all_reduce")
#: Pipelining by its names before XLA 0.11, and by those of today.
_PIPELINED: Final = tuple((f"enable_pipelined_{kind}", "true") for kind in _KINDS)
_PIPELINED_NOW: Final = tuple((f"pipeline_{kind}", "on") for kind in _KINDS)
_PIPELINED_BY_LEVEL: Final = tuple((f"pipeline_{kind}", "default") for kind in _KINDS)
_ANY_DIMENSION: Final = (
    ("enable_all_gather_combine_by_dim", "false"),
    ("enable_reduce_scatter_combine_by_dim", "false"),
)
_NO_PERMUTE_MOTION: Final = (("xla_disable_hlo_passes", "collective-permute-motion"),)
_NO_REMATERIALIZATION: Final = (("xla_disable_hlo_passes", "rematerialization"),)


def _a3(machines: str, file: str, all_reduce: int, reduce_scatter: int) -> FlagList:
    """MaxText's list for A3, which differs by the number of machines."""
    return FlagList(
        f"MaxText: {machines} with 8 H100 each (A3)",
        (f"{_MAXTEXT}/src/maxtext/configs/gpu/a3/{file}",),
        _gpu(
            _SCHEDULER,
            _NO_TRITON,
            _NO_GRAPHS,
            _STREAM,
            *_combined(all_reduce, 128 * _MIB, reduce_scatter),
            *_PIPELINED_NOW,
            _UNROLLED,
            *_ANY_DIMENSION,
        )
        + _NO_REMATERIALIZATION,
    )


#: By the name that `tune --also` takes.
PUBLISHED: Final[Mapping[str, FlagList]] = {
    "nvidia-image": FlagList(
        "NVIDIA: set in its container images of JAX, on NGC too",
        (
            "https://docs.nvidia.com/jax-toolbox/environment-variables",
            f"{_TOOLBOX}/.github/container/Dockerfile.jax",
        ),
        _gpu(_SCHEDULER),
    ),
    "nvidia-maxtext": FlagList(
        "NVIDIA: MaxText in its containers, LLaMA on DGX H100",
        (
            "https://docs.nvidia.com/jax-toolbox/frameworks/max-text/overview",
            f"{_TOOLBOX}/docs/frameworks/maxtext/README.md",
        ),
        _gpu(
            _SCHEDULER,
            _NO_GRAPHS,
            *_combined(1024 * _MIB, 1024 * _MIB, 128 * _MIB),
            *_PIPELINED,
            _UNROLLED,
            *_ANY_DIMENSION,
        )
        + _NO_REMATERIALIZATION,
    ),
    "nvidia-maxtext-nvfp4": FlagList(
        "NVIDIA: MaxText with NVFP4, four GPUs",
        (f"{_TOOLBOX}/docs/frameworks/maxtext/nvfp4/nvfp4_example.sh",),
        _gpu(
            _SCHEDULER,
            _NO_TRITON,
            _NO_GRAPHS,
            *_combined(2048 * _MIB, 2048 * _MIB, 2048 * _MIB),
            *_PIPELINED,
            _NOT_UNROLLED,
            *_ANY_DIMENSION,
        )
        + _NO_REMATERIALIZATION,
    ),
    "nvidia-fsdp": FlagList(
        "NVIDIA: its page of tips, overlap and FSDP",
        _TIPS,
        _gpu(
            _SCHEDULER,
            *_PIPELINED,
            ("enable_analytical_sol_latency_estimator", "true"),
            _UNROLLED,
            *_combined(8192 * _MIB, 8192 * _MIB, 8192 * _MIB),
        ),
    ),
    "nvidia-permute": FlagList(
        "NVIDIA: its page of tips, asynchronous permutes",
        _TIPS,
        _gpu(
            ("enable_pipelined_p2p", "true"),
            ("collective_permute_decomposer_threshold", "1024"),
            ("lhs_enable_gpu_async_tracker", "true"),
        ),
    ),
    "nvidia-matmul": FlagList(
        "NVIDIA: its page of tips, collective matmul",
        _TIPS,
        _gpu(
            ("multi_streamed_windowed_einsum", "true"),
            ("threshold_for_windowed_einsum_mib", "0"),
        ),
    ),
    "nvidia-others": FlagList(
        "NVIDIA: its page of tips, copies, graphs, NCCL and kernels",
        _TIPS,
        _gpu(
            ("use_memcpy_local_p2p", "true"),
            ("enable_command_buffer", "FUSION,CUSTOM_CALL"),
            ("enable_custom_fusions", "true"),
            ("enable_address_computation_fusion", "true"),
            ("enable_nccl_user_buffers", "true"),
            ("enable_nccl_comm_splitting", "true"),
            ("enable_nccl_per_stream_comms", "false"),
            ("cudnn_gemm_fusion", "true"),
            ("enable_cudnn_fmha", "false"),
        ),
    ),
    "openxla-o1": FlagList(
        "OpenXLA: what its optimization level O1 turns on",
        (
            "https://openxla.org/xla/effort_levels",
            "https://openxla.org/xla/gpu_optimization_levels",
        ),
        _gpu(*_PIPELINED_NOW, _UNROLLED, _SCHEDULER),
    ),
    "openxla-memory": FlagList(
        "OpenXLA: its guidance, where memory runs out",
        ("https://openxla.org/xla/flags_guidance",),
        _gpu(("enable_analytical_sol_latency_estimator", "false")),
    ),
    "jax-tips": FlagList(
        "JAX: its page of tips for GPUs",
        ("https://docs.jax.dev/en/latest/gpu_performance_tips.html",),
        _gpu(("triton_gemm_any", "true"), _SCHEDULER),
    ),
    "jax-pipeline": FlagList(
        "JAX: the same page, pipeline parallelism",
        ("https://docs.jax.dev/en/latest/gpu_performance_tips.html",),
        _gpu(
            _SCHEDULER,
            _NO_GRAPHS,
            (
                "experimental_pipeline_parallelism_opt_level",
                "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
            ),
        )
        + _NO_PERMUTE_MOTION,
    ),
    "maxtext-a3-1vm": _a3(
        "LLaMA 2 7B on one machine", "llama_2_7b/1vm.sh", 128 * _MIB, 64 * _MIB
    ),
    "maxtext-a3-2vm": _a3(
        "LLaMA 2 7B on two machines", "llama_2_7b/2vm.sh", 64 * _MIB, 64 * _MIB
    ),
    "maxtext-a3-4vm": _a3(
        "LLaMA 2 7B on four machines", "llama_2_7b/4vm.sh", 512 * _MIB, 64 * _MIB
    ),
    "maxtext-a3-8vm": _a3(
        "LLaMA 2 7B on eight machines", "llama_2_7b/8vm.sh", 1024 * _MIB, 64 * _MIB
    ),
    "maxtext-a3-16vm": _a3(
        "LLaMA 2 7B on 16 machines, LLaMA 3.1 405B on 128",
        "llama_2_7b/16vm.sh",
        1024 * _MIB,
        128 * _MIB,
    ),
    "maxtext-matmul": FlagList(
        "MaxText: its test of collective matmul, LLaMA 2 7B",
        (f"{_MAXTEXT}/tests/end_to_end/gpu/test_collective_matmul_llama2_7b.sh",),
        _gpu(
            _SCHEDULER,
            _NO_TRITON,
            _NO_GRAPHS,
            _STREAM,
            *_combined(128 * _MIB, 128 * _MIB, 64 * _MIB),
            *_PIPELINED_BY_LEVEL,
            _NOT_UNROLLED,
            *_ANY_DIMENSION,
            ("threshold_for_windowed_einsum_mib", "0"),
            ("multi_streamed_windowed_einsum", "true"),
        )
        + _NO_REMATERIALIZATION,
    ),
}

_KERNELS: Final = "it chooses kernels: only a GPU tells which are faster"
_AT_RUN_TIME: Final = "it acts when the step runs: only a GPU tells what it gives"
_NOT_YET: Final = "it is about overlap, and no lever yet: `--also` tries it"
_THE_MACHINE: Final = "it describes the machine: `--target` and `--topology` do"
#: Releases with the names of today for pipelining.
_NOW: Final = tuple(each.name for each in RELEASES[1:])


_ALL: Final = tuple(each.name for each in RELEASES)


def _levers(
    name: str, *flags: str, releases: tuple[str, ...] = _ALL
) -> dict[str, PublishedFlag]:
    return {f"{_GPU}{flag}": PublishedFlag(name, "", releases) for flag in flags}


def _renamed(lever: str, kind: str) -> PublishedFlag:
    return PublishedFlag(lever, "", _NOW, f"{_GPU}enable_pipelined_{kind}")


def _without(
    why: str, *flags: str, releases: tuple[str, ...] = _ALL
) -> dict[str, PublishedFlag]:
    return {f"{_GPU}{flag}": PublishedFlag("", why, releases) for flag in flags}


#: Every flag of the lists, and those that the pages name without a value.
FLAGS: Final[Mapping[str, PublishedFlag]] = {
    **_levers("scheduler", "enable_latency_hiding_scheduler"),
    **_levers("coarse costs", "enable_analytical_sol_latency_estimator"),
    **_levers("scheduler memory", "memory_limit_slop_factor"),
    **_levers("loop unrolling", "enable_while_loop_double_buffering"),
    **_levers("windowed einsum", "threshold_for_windowed_einsum_mib"),
    **_levers("pipelined send and recv", "enable_pipelined_p2p"),
    **_levers("pipeline parallelism", "experimental_pipeline_parallelism_opt_level"),
    **{
        name: row
        for kind in _KINDS
        for lever in (f"pipelined {kind.replace('_', '-')}",)
        for name, row in (
            *_levers(lever, f"enable_pipelined_{kind}").items(),
            (f"{_GPU}pipeline_{kind}", _renamed(lever, kind)),
            *_levers(
                f"combined {kind.replace('_', '-')}",
                f"{kind}_combine_threshold_bytes",
            ).items(),
        )
    },
    **_levers("all-gather by dimension", "enable_all_gather_combine_by_dim"),
    **_levers("reduce-scatter by dimension", "enable_reduce_scatter_combine_by_dim"),
    **_without(
        _NOT_YET,
        "multi_streamed_windowed_einsum",
        "collective_permute_decomposer_threshold",
        "enable_pipelined_host_offloading",
    ),
    **_without(
        _KERNELS,
        "enable_triton_gemm",
        "triton_gemm_any",
        "enable_cudnn_fmha",
    ),
    **_without(
        _AT_RUN_TIME,
        "enable_command_buffer",
        "enable_highest_priority_async_stream",
        "use_memcpy_local_p2p",
        "enable_nccl_user_buffers",
        "enable_nccl_comm_splitting",
        "nccl_collective_max_nchannels",
        "nccl_p2p_max_nchannels",
    ),
    **_without(
        _THE_MACHINE,
        "analytical_latency_estimator_options",
        "experimental_collective_perf_table_path",
    ),
    **_without(
        "it needs times measured on your GPUs",
        "pgle_profile_file_or_directory_path",
    ),
    **_without(
        "it undoes overlap, for a run that measures",
        "disable_async_collectives",
    ),
    **_without(
        "XLA no longer has it",
        "lhs_enable_gpu_async_tracker",
        "enable_custom_fusions",
        "enable_address_computation_fusion",
        "enable_nccl_per_stream_comms",
        "cudnn_gemm_fusion",
        "enable_triton_softmax_fusion",
        "graph_level",
        "enable_async_collectives",
        releases=(),
    ),
    "xla_disable_hlo_passes": PublishedFlag(
        why="it is about memory, or takes a pass away: `--also` tries it"
    ),
}
