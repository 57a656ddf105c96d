"""XLA's flags, and the options of passes that mean the same.

xla_flag("gpu-all-gather-combiner", "threshold-bytes")
    ->  "xla_gpu_all_gather_combine_threshold_bytes"
flag_setting("latency-hiding-scheduler", "parallel-collective-overlap-limit", "2")
    ->  "--xla_gpu_experimental_parallel_collective_overlap_limit=2"
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_passes.xla_release import RELEASES

SCHEDULER: Final = "latency-hiding-scheduler"
#: Schedules for a trial, with the scheduler's options.
_TRIAL: Final = "collective-combiner-annotator"
_IMPROVER: Final = "schedule-improver"
#: They simulate the schedule of what they try.
_TRIALS: Final = (
    "collective-backend-choice", "collective-matmul", "collective-ring-decomposer",
    "loop-invariant-collective-hoisting", "loop-multi-buffer",
    "ragged-all-to-all-chunker", "uneven-reduce-scatter-creator",
)  # fmt: skip
#: They read XLA's settings of an order that is there, and make none for XLA.
_OF_THE_ORDER: Final = ("schedule-checker", _IMPROVER)
_SPACES: Final = "gpu-memory-space-assignment"
#: The pipelines around it; the second one combines, too.
_PIPELINES: Final = ("gpu-schedule", "xla-gpu")
_EXPERIMENTAL: Final = "xla_gpu_experimental_"
#: Opens the values of the flag of that name: `..._ENABLE`.
_OPT_LEVEL: Final = "PIPELINE_PARALLELISM_OPT_LEVEL"
#: Before the words of a flag's value, which an option leaves out, by option.
_BEFORE_WORDS: Final = {
    "pipeline-parallelism-opt-level": f"{_OPT_LEVEL}_",
    "enable-while-loop-unrolling": "WHILE_LOOP_UNROLLING_",
    "use-collective-kernels": "COLLECTIVE_KERNEL_",
}
#: Words of a flag's value that an option spells otherwise: where buffers lie.
_WORDS: Final = {
    f"COLLECTIVES_{memory}_MEMORY": memory.lower()
    for memory in ("PRIVATE", "PEER", "SYMMETRIC")
}
#: Passes that XLA runs, but that do nothing unless a flag is set.
SWITCHES: Final = {
    "dus-accumulator-zero-init-elimination": (
        "xla_gpu_enable_dus_accumulator_zero_init_elimination"
    ),
}
_COMBINERS: Final = (
    "collective-permute-combiner",
    "gpu-all-gather-combiner",
    "gpu-all-reduce-combiner",
    "gpu-reduce-scatter-combiner",
)
#: Flag -> (passes that it steers, their option): what a recording may have set.
#: Source: openxla/xla `xla/xla.proto`, `xla/service/gpu/gpu_compiler.cc`.
FLAG_OPTIONS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "xla_gpu_collective_permute_combine_threshold_bytes": (
        ("collective-permute-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_collective_permute_decomposer_threshold": (
        ("collective-permute-cycle-decomposer", "collective-permute-decomposer"),
        "threshold-bytes",
    ),
    "xla_gpu_all_gather_combine_threshold_bytes": (
        ("gpu-all-gather-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_all_reduce_combine_threshold_bytes": (
        ("gpu-all-reduce-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_reduce_scatter_combine_threshold_bytes": (
        ("gpu-reduce-scatter-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_collective_combine_threshold_count": (_COMBINERS, "threshold-count"),
    "xla_gpu_enable_all_gather_combine_by_dim": (
        ("gpu-all-gather-combiner",),
        "combine-by-dim",
    ),
    "xla_gpu_enable_reduce_scatter_combine_by_dim": (
        ("gpu-reduce-scatter-combiner",),
        "combine-by-dim",
    ),
    "xla_gpu_enable_while_loop_reduce_scatter_code_motion": (
        ("while-loop-all-reduce-code-motion",),
        "reduce-scatter",
    ),
    "xla_while_loop_all_reduce_dus_code_motion_max_size_bytes": (
        ("while-loop-all-reduce-code-motion",),
        "most-stored-bytes",
    ),
    "xla_gpu_enable_reassociation_for_converted_ar": (
        ("all-reduce-reassociate",),
        "reassociate-converted",
    ),
    "xla_gpu_all_reduce_blueconnect_num_devices_per_host": (
        ("all-reduce-blueconnect",),
        "devices-per-host",
    ),
    "xla_gpu_unsupported_override_fast_interconnect_slice_size": (
        ("ragged-all-to-all-multi-host-decomposer",),
        "slice-size",
    ),
    f"{_EXPERIMENTAL}collective_cse_distance_threshold": (
        ("schedule-aware-collective-cse",),
        "distance-threshold",
    ),
    "xla_gpu_disable_async_collectives": (
        ("async-collective-annotator", _TRIAL),
        "disable-async-collectives",
    ),
    "xla_gpu_memory_limit_slop_factor": (
        (SCHEDULER, _TRIAL),
        "memory-limit-slop-factor",
    ),
    "xla_gpu_enable_pipelined_p2p": ((SCHEDULER, _TRIAL), "enable-pipelined-p2p"),
    "xla_gpu_enable_approx_costly_collectives": (
        (SCHEDULER, _TRIAL),
        "enable-approx-costly-collectives",
    ),
    f"{_EXPERIMENTAL}{_OPT_LEVEL.lower()}": (
        (SCHEDULER, _TRIAL, "collective-permute-decomposer"),
        "pipeline-parallelism-opt-level",
    ),
    "xla_gpu_enable_nccl_user_buffers": ((_SPACES,), "enable-nccl-user-buffers"),
    f"{_EXPERIMENTAL}enable_nccl_symmetric_buffers": (
        (_SPACES,),
        "enable-nccl-symmetric-buffers",
    ),
    "xla_enable_nccl_symmetric_buffers_for_collectives": (
        (_SPACES,),
        "enable-nccl-symmetric-buffers-for-collectives",
    ),
    f"{_EXPERIMENTAL}ragged_all_to_all_use_barrier_with_nccl": (
        (_SPACES,),
        "ragged-all-to-all-use-barrier-with-nccl",
    ),
    **{
        f"xla_gpu_{kind}_mode": (
            ("collective-backend-assigner",),
            f"{kind.replace('_', '-')}-mode",
        )
        for kind in ("collective_permute", "all_gather")
    },
    f"{_EXPERIMENTAL}use_collective_kernels": (
        ("collective-kernel-strategy-annotator",),
        "use-collective-kernels",
    ),
    f"{_EXPERIMENTAL}enable_alltoall_windowed_einsum": (
        ("windowed-einsum-handler",),
        "alltoall-windowed-einsum",
    ),
    "xla_enable_enzyme_comms_opt": (
        ("collective-permute-combiner",),
        "past-dependence",
    ),
    "xla_gpu_autotune_level": (
        ("collectives-schedule-linearizer",),
        "autotune-level",
    ),
    **{
        f"{_EXPERIMENTAL}{option.replace('-', '_')}": ((SCHEDULER, _TRIAL), option)
        for option in (
            "parallel-collective-overlap-limit",
            "parallel-async-compute-limit",
            "collective-start-as-early-as-possible",
            "enable-collective-multi-streaming",
            "enable-selective-memcpy-overlap",
        )
    },
}
#: The same for flags that no recording sets: other passes, files, XLA's streams.
_OTHER_FLAG_OPTIONS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "xla_gpu_enable_latency_hiding_scheduler": (
        (*_PIPELINES, _TRIAL),
        "enable-latency-hiding-scheduler",
    ),
    "xla_gpu_enable_pipelined_p2p": (_PIPELINES, "enable-pipelined-p2p"),
    "xla_gpu_multi_streamed_windowed_einsum": (
        _PIPELINES,
        "multi-streamed-windowed-einsum",
    ),
    f"{_EXPERIMENTAL}stream_annotation": (_PIPELINES, "stream-annotation"),
    f"{_EXPERIMENTAL}scheduler_memory_fencing_threshold_bytes": (
        (*_PIPELINES, "scheduler-memory-fencing", _TRIAL),
        "scheduler-memory-fencing-threshold-bytes",
    ),
    f"{_EXPERIMENTAL}scheduler_memory_fencing_slack_windows": (
        ("scheduler-memory-fencing", _TRIAL),
        "scheduler-memory-fencing-slack-windows",
    ),
    "xla_gpu_memory_limit_slop_factor": (
        ("scheduler-memory-fencing",),
        "memory-limit-slop-factor",
    ),
    f"{_EXPERIMENTAL}parallel_collective_overlap_limit": (
        ("execution-stream-assignment", *_TRIALS, *_OF_THE_ORDER),
        "parallel-collective-overlap-limit",
    ),
    "xla_gpu_disable_async_collectives": (_TRIALS, "disable-async-collectives"),
    f"{_EXPERIMENTAL}parallel_async_compute_limit": (
        _OF_THE_ORDER,
        "parallel-async-compute-limit",
    ),
    f"{_EXPERIMENTAL}enable_collective_multi_streaming": (
        _OF_THE_ORDER,
        "enable-collective-multi-streaming",
    ),
    "xla_gpu_executable_num_communication_streams": (
        ("execution-stream-assignment",),
        "xla-communication-streams",
    ),
    **{
        f"xla_gpu_{option.replace('-', '_')}": (("xla-gpu",), option)
        for option in (
            "all-gather-combine-threshold-bytes",
            "all-reduce-blueconnect-num-devices-per-host",
            "all-reduce-combine-threshold-bytes",
            "collective-permute-combine-threshold-bytes",
            "enable-dus-accumulator-zero-init-elimination",
            "enable-pipelined-host-offloading",
            "enable-while-loop-double-buffering",
            "enable-while-loop-unrolling",
            "pipeline-all-gather",
            "pipeline-all-reduce",
            "pipeline-reduce-scatter",
            "reduce-scatter-combine-threshold-bytes",
            "unsupported-enable-all-reduce-decomposer",
            "unsupported-enable-ragged-all-to-all-decomposer",
            "unsupported-enable-ragged-all-to-all-multi-host-decomposer",
        )
    },
    f"{_EXPERIMENTAL}{_OPT_LEVEL.lower()}": (
        ("xla-gpu",),
        "pipeline-parallelism-opt-level",
    ),
    f"{_EXPERIMENTAL}collective_cse_distance_threshold": (
        ("xla-gpu",),
        "collective-cse-distance-threshold",
    ),
    f"{_EXPERIMENTAL}enable_heuristic_collective_combining": (
        ("xla-gpu",),
        "enable-heuristic-collective-combining",
    ),
    "xla_gpu_pgle_profile_file_or_directory_path": (
        (SCHEDULER, _TRIAL, _IMPROVER),
        "profile",
    ),
    "xla_gpu_analytical_latency_estimator_options": (
        (SCHEDULER, _TRIAL, _IMPROVER),
        "latency-options",
    ),
}


#: The first release that knows a flag, where the oldest one does not.
FIRST_RELEASE: Final = {
    flag: release.name for release in RELEASES for flag in release.new_flags
}


def _rows() -> Iterator[tuple[str, str, str]]:
    for table in (FLAG_OPTIONS, _OTHER_FLAG_OPTIONS):
        for flag, (passes, option) in table.items():
            for name in passes:
                yield name, option, flag


_FLAGS: Final = {(name, option): flag for name, option, flag in _rows()}


def all_flags() -> dict[tuple[str, str], str]:
    """All flags by (pass, option)."""
    return dict(_FLAGS)


def xla_flag(pass_name: str, option: str) -> str:
    """The flag of XLA that an option of a pass stands for; '' where there is none."""
    return _FLAGS.get((pass_name, option), "")


def flag_setting(pass_name: str, option: str, text: str) -> str:
    """The option with its value as XLA_FLAGS spells it; '' where there is no flag."""
    flag = xla_flag(pass_name, option)
    if not flag:
        return ""
    if option in _BEFORE_WORDS:
        opening = _BEFORE_WORDS[option]
        text = ",".join(f"{opening}{word.upper()}" for word in text.split())
    elif option not in ("profile", "latency-options"):
        # A list has commas in a flag and blanks in an option.
        text = text.replace(" ", ",")
    return f"--{flag}={text}"


def option_text(flag_value: str) -> str:
    """The value of a flag as the option's text has it."""
    return " ".join(map(_word, flag_value.split(",")))


def _word(spelled: str) -> str:
    """A word of a flag's value without what is before it: 'ENABLE'."""
    if spelled in _WORDS:
        return _WORDS[spelled]
    for opening in _BEFORE_WORDS.values():
        spelled = spelled.removeprefix(opening)
    return spelled
