"""All levers: the flags of XLA that change how collectives and compute overlap.

    LEVERS["overlap limit"].settings     2, 4, 8

A row is data: what may be set, which releases have it, what a program must have for it
to matter, and with which others it belongs together. `tests/scheduler/tuning` asks
jaxlib about every flag.

Source of names, values and defaults: openxla/xla `xla/debug_options_flags.cc`,
`xla/xla.proto` (Aug 2026); what each does: `gpu_compiler.cc`, `gpu_hlo_schedule.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hlo_passes.scheduler.tuning.lever import (
    OPTIMIZATION_LEVEL,
    Candidate,
    Flag,
    Lever,
)
from hlo_passes.xla_flags import FIRST_RELEASE
from hlo_passes.xla_release import OLDEST, RELEASES

_EXPERIMENTAL: Final = "xla_gpu_experimental_"
_MIB: Final = 1 << 20
#: Bytes of a combined collective: none is combined, and up to all of a layer or model.
_THRESHOLDS: Final = (
    ("off", 0),
    ("1 GiB", 1024 * _MIB),
    ("8 MiB", 8 * _MIB),
    ("128 MiB", 128 * _MIB),
)
#: The kinds that XLA combines.
_COMBINED: Final = ("all-gather", "reduce-scatter", "all-reduce", "collective-permute")
_OVERLAP: Final = "overlap limit"
#: Where XLA's scheduler does not run, nothing that tells it how means anything; and
#: nothing keeps collectives on two streams from waiting for each other.
_UNORDERED: Final = (("scheduler", "off"),)


def _on(flag: str, option: str = "") -> tuple[Candidate, ...]:
    """The one setting of a switch; `option`: of our passes, that means the same."""
    options = ((option, "true"),) if option else ()
    return (Candidate("on", (Flag(flag, "true"),), options),)


def _numbers(flag: str, option: str, *values: int) -> tuple[Candidate, ...]:
    return tuple(
        Candidate(str(n), (Flag(flag, str(n)),), ((option, str(n)),)) for n in values
    )


def _pipelining(kind: str) -> Lever:
    """A pipelined collective; XLA 0.10.2 has another name for it."""
    word = kind.replace("-", "_")
    is_default = kind == "reduce-scatter"
    return Lever(
        name=f"pipelined {kind}",
        what=f"a loop's {kind} runs beside another iteration's compute",
        settings=(
            Candidate(
                "on",
                (
                    Flag(f"xla_gpu_enable_pipelined_{word}", "true", last=OLDEST.name),
                    Flag(
                        f"xla_gpu_pipeline_{word}",
                        "on",
                        option="COLLECTIVE_PIPELINING_MODE_ON",
                        first=FIRST_RELEASE[f"xla_gpu_pipeline_{word}"],
                    ),
                ),
                ((f"pipeline-{kind}", "on"),),
            ),
            *(
                (
                    Candidate(
                        "off",
                        (
                            Flag(
                                f"xla_gpu_pipeline_{word}",
                                "off",
                                option="COLLECTIVE_PIPELINING_MODE_OFF",
                                first=FIRST_RELEASE[f"xla_gpu_pipeline_{word}"],
                            ),
                        ),
                        ((f"pipeline-{kind}", "off"),),
                    ),
                )
                if is_default
                else ()
            ),
        ),
        default="as the optimization level says"
        + (" (0.12: on)" if is_default else ""),
        needs=(("looped", kind),),
        interacts=(_OVERLAP, "loop unrolling", f"combined {kind}"),
    )


def _combining(kind: str) -> Lever:
    """How large a combined collective may be."""
    word = kind.replace("-", "_")
    return Lever(
        name=f"combined {kind}",
        what=f"how many bytes of several {kind}s become one",
        settings=tuple(
            Candidate(
                setting,
                (Flag(f"xla_gpu_{word}_combine_threshold_bytes", str(size)),),
                ((f"{kind}-combine-threshold-bytes", str(size)),),
            )
            for setting, size in _THRESHOLDS
        ),
        default="30 MiB",
        needs=(("two", kind),),
        interacts=(_OVERLAP,),
    )


def _by_dimension(kind: str) -> Lever:
    word = kind.replace("-", "_")
    flag = f"xla_gpu_enable_{word}_combine_by_dim"
    return Lever(
        name=f"{kind} by dimension",
        what=f"{kind}s become one only if they have the same dimension",
        settings=_on(flag),
        default="off",
        needs=(("two", kind),),
        interacts=(f"combined {kind}",),
    )


_ROWS: Final = (
    # What moves collectives from one iteration to another.
    *(_pipelining(k) for k in ("all-gather", "reduce-scatter", "all-reduce")),
    # The order alone.
    Lever(
        name=_OVERLAP,
        what="how many collectives may be in flight at once",
        settings=_numbers(
            f"{_EXPERIMENTAL}parallel_collective_overlap_limit",
            "parallel-collective-overlap-limit",
            2,
            4,
            8,
        ),
        default="1",
        scope="schedule",
        not_with=_UNORDERED,
        needs=(("two", ""),),
        interacts=("combined all-gather", "combined reduce-scatter"),
    ),
    Lever(
        name="early starts",
        what="collectives start as early as possible",
        settings=_on(
            f"{_EXPERIMENTAL}collective_start_as_early_as_possible",
            "collective-start-as-early-as-possible",
        ),
        default="off",
        scope="schedule",
        not_with=_UNORDERED,
        needs=(("two", ""),),
        only_with=(_OVERLAP,),
        interacts=(_OVERLAP,),
    ),
    Lever(
        name="several streams",
        what="collectives that share at most one device run on two streams",
        settings=_on(
            f"{_EXPERIMENTAL}enable_collective_multi_streaming",
            "enable-collective-multi-streaming",
        ),
        default="off",
        scope="schedule",
        not_with=_UNORDERED,
        needs=(("two", ""),),
        only_with=(_OVERLAP,),
        interacts=(_OVERLAP,),
        streams=2,
    ),
    Lever(
        name="async compute limit",
        what="how many asynchronous computations and copies may be in flight at once",
        settings=_numbers(
            f"{_EXPERIMENTAL}parallel_async_compute_limit",
            "parallel-async-compute-limit",
            1,
            4,
        ),
        default="2",
        scope="schedule",
        not_with=_UNORDERED,
        needs=(("async", ""),),
    ),
    Lever(
        name="scheduler memory",
        what="percent of the free memory that the scheduler may fill",
        settings=_numbers(
            "xla_gpu_memory_limit_slop_factor",
            "memory-limit-slop-factor",
            110,
            80,
            60,
        ),
        default="95",
        scope="schedule",
        not_with=_UNORDERED,
        needs=(("any", ""),),
        interacts=(_OVERLAP,),
    ),
    # Loops.
    Lever(
        name="loop unrolling",
        what="iterations of a loop become one, so that they overlap",
        settings=(
            Candidate(
                "double buffering",
                (
                    Flag(
                        "xla_gpu_enable_while_loop_unrolling",
                        "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER",
                    ),
                ),
                (("enable-while-loop-unrolling", "DOUBLE_BUFFER"),),
            ),
            Candidate(
                "full",
                (
                    Flag(
                        "xla_gpu_enable_while_loop_unrolling",
                        "WHILE_LOOP_UNROLLING_FULL_UNROLL",
                    ),
                ),
                (("enable-while-loop-unrolling", "FULL_UNROLL"),),
            ),
        ),
        default="as the optimization level says",
        needs=(("looped", ""),),
        interacts=(_OVERLAP, "pipelined all-gather", "pipelined reduce-scatter"),
    ),
    Lever(
        name="optimization level",
        what="XLA pipelines and unrolls loops where no flag says otherwise",
        settings=(
            Candidate(
                "O1",
                (
                    Flag(OPTIMIZATION_LEVEL, "O1", option="19", last=OLDEST.name),
                    Flag(OPTIMIZATION_LEVEL, "O1", first=RELEASES[1].name),
                ),
                (("optimization-level", "O1"),),
            ),
        ),
        default="O0",
        needs=(("loops", ""),),
        interacts=("loop unrolling", "pipelined all-gather"),
    ),
    # How large collectives are.
    *(_combining(kind) for kind in _COMBINED),
    *(_by_dimension(kind) for kind in ("all-gather", "reduce-scatter")),
    Lever(
        name="combining by heuristics",
        what="XLA chooses how much to combine, from its prices and the free memory",
        settings=_on(f"{_EXPERIMENTAL}enable_heuristic_collective_combining"),
        default="off",
        needs=(("two", ""),),
        interacts=tuple(f"combined {kind}" for kind in _COMBINED),
    ),
    # What collectives become.
    Lever(
        name="windowed einsum",
        what="a product and its all-gather or reduce-scatter become a ring of parts",
        settings=(
            Candidate("all", (Flag("xla_gpu_threshold_for_windowed_einsum_mib", "0"),)),
            Candidate(
                "from 64 MiB",
                (Flag("xla_gpu_threshold_for_windowed_einsum_mib", "64"),),
            ),
        ),
        default="from 100 GiB",
        needs=(("products", ""),),
        interacts=(_OVERLAP, "loop unrolling", "async compute limit"),
    ),
    Lever(
        name="reduce-scatter after the loop",
        what="a reduce-scatter that a loop adds up runs once, after it",
        settings=_on("xla_gpu_enable_while_loop_reduce_scatter_code_motion"),
        default="off",
        needs=(("looped", "reduce-scatter"),),
    ),
    Lever(
        name="all-reduce in steps",
        what="an all-reduce becomes steps within a host and between hosts",
        settings=(
            Candidate(
                "by hosts of 8",
                (Flag("xla_gpu_all_reduce_blueconnect_num_devices_per_host", "8"),),
                (("all-reduce-blueconnect-num-devices-per-host", "8"),),
            ),
        ),
        default="off",
        needs=(("any", "all-reduce"), ("hosts", "")),
    ),
    Lever(
        name="pipelined send and recv",
        what="cycles of permutes are cut open and sent ahead of the compute",
        settings=_on("xla_gpu_enable_pipelined_p2p", "enable-pipelined-p2p"),
        default="off",
        needs=(("looped", "collective-permute"),),
        interacts=(_OVERLAP,),
    ),
    Lever(
        name="pipeline parallelism",
        what="permutes become sends and recvs, in the order that a pipeline needs",
        settings=(
            Candidate(
                "on",
                (
                    Flag(
                        f"{_EXPERIMENTAL}pipeline_parallelism_opt_level",
                        "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
                    ),
                ),
                (("pipeline-parallelism-opt-level", "ENABLE"),),
            ),
        ),
        default="off",
        needs=(("looped", "collective-permute"),),
        interacts=("pipelined send and recv",),
    ),
    # The scheduler itself.
    Lever(
        name="scheduler",
        what="XLA's latency-hiding scheduler orders the instructions",
        settings=(
            Candidate(
                "on",
                (Flag("xla_gpu_enable_latency_hiding_scheduler", "true"),),
                (("enable-latency-hiding-scheduler", "true"),),
            ),
            Candidate(
                "off",
                (
                    Flag("xla_gpu_enable_latency_hiding_scheduler", "false"),
                    Flag("xla_gpu_enable_analytical_sol_latency_estimator", "false"),
                ),
                (("enable-latency-hiding-scheduler", "false"),),
            ),
        ),
        default="on where XLA has a model for the GPU",
        needs=(("any", ""),),
    ),
    Lever(
        name="coarse costs",
        what="the scheduler orders by constants in place of XLA's model of the network",
        settings=(
            Candidate(
                "on",
                (
                    Flag("xla_gpu_enable_latency_hiding_scheduler", "true"),
                    Flag("xla_gpu_enable_analytical_sol_latency_estimator", "false"),
                ),
                (("estimator", "gpu-approximate"),),
            ),
        ),
        default="off where XLA has a model for the GPU",
        scope="schedule",
        needs=(("any", ""),),
        not_with=_UNORDERED,
        interacts=(_OVERLAP,),
    ),
)

#: By name, in the order in which they are tried.
LEVERS: Final[Mapping[str, Lever]] = {row.name: row for row in _ROWS}
#: What needs a measurement, so that no model can try it: name -> what to do.
MEASURED_ONLY: Final[Mapping[str, str]] = {
    "profile-guided scheduling": (
        "it needs times measured on your GPUs: JAX_ENABLE_PGLE=true, or "
        "--xla_gpu_pgle_profile_file_or_directory_path=FILE"
    ),
}
