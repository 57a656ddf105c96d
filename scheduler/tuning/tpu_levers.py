"""The levers of XLA:TPU: flags that change how collectives and compute overlap.

    tpu_levers("v5p")                              those that a chip has
    tpu_options({"all-gathers at once": "4"})      {"xla_max_concurrent_...": 4}

They are set for one compilation, by `compiler_options` or `--flag`; XLA_FLAGS does not
know them. A row is data, as in `levers.py`. `effect` says what is known: 'seen' where
the order of a program changed when it was tried (libtpu 0.0.52), 'none seen' where the
one program that it was tried on stayed, 'untried' else. `shortens` names chips on which
a step became shorter.

Source of names: openxla.org/xla/flags_guidance, and the lists of MaxText
(AI-Hypercomputer/maxtext, benchmarks/xla_flags_library.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.errors import UsageError, nearest
from hlo_passes.scheduler.tpu.chips import chip
from hlo_passes.scheduler.tuning.lever import Candidate, Flag, Lever, Need

Effect = Literal["seen", "none seen", "untried"]

_FUSION: Final = "xla_tpu_enable_async_collective_fusion"
_SPARSE: Final = "xla_tpu_enable_sparse_core_collective_offload"
#: Chips with SparseCores that collectives can be given to.
_SPARSE_CHIPS: Final = ("v5p", "v6e", "tpu7x")
_CUTTING: Final = ("v5e",)
_GATHERS: Final = "all-gathers at once"
#: Collectives that SparseCores run: kind, XLA's default, and what is known of the
#: lever, as in `TpuLever`.
_ON_SPARSE_CORES: Final[tuple[tuple[str, str, Effect, tuple[str, ...]], ...]] = (
    ("all-gather", "on for tpu7x", "seen", ("v6e",)),
    ("reduce-scatter", "the chip's", "untried", ()),
    ("all-reduce", "the chip's", "untried", ()),
)


@dataclass(frozen=True, slots=True)
class TpuLever:
    """A lever of XLA:TPU.

    Attributes:
        lever: its settings, and what a program must have.
        chips: that have it; () for all.
        effect: what is known of it.
        shortens: chips on which it made a program's step shorter, by the compiler's
            statistic.
    """

    lever: Lever
    chips: tuple[str, ...] = ()
    effect: Effect = "untried"
    shortens: tuple[str, ...] = ()

    def is_of(self, name: str) -> bool:
        """Whether a chip has it."""
        return not self.chips or name in self.chips


def _row(
    name: str,
    what: str,
    settings: Mapping[str, Mapping[str, str]],
    default: str,
    *needs: Need,
    chips: tuple[str, ...] = (),
    effect: Effect = "untried",
    scope: Literal["schedule", "module"] = "module",
    interacts: tuple[str, ...] = (),
    shortens: tuple[str, ...] = (),
) -> TpuLever:
    """A row; `settings` has by setting the flags with their values."""
    candidates = tuple(
        Candidate(setting, tuple(Flag(flag, text) for flag, text in flags.items()))
        for setting, flags in settings.items()
    )
    lever = Lever(
        name, what, candidates, default, scope, needs=needs, interacts=interacts
    )
    return TpuLever(lever, chips, effect, shortens)


def _on(*flags: str) -> dict[str, dict[str, str]]:
    return {"on": dict.fromkeys(flags, "true")}


def _off(flag: str) -> dict[str, dict[str, str]]:
    return {"off": {flag: "false"}}


def _numbers(flag: str, *values: int) -> dict[str, dict[str, str]]:
    return {str(n): {flag: str(n)} for n in values}


_ROWS: Final = (
    # The order alone.
    _row(
        _GATHERS, "how many all-gathers may be in flight at once",
        _numbers("xla_max_concurrent_async_all_gathers", 2, 4), "1",
        ("two", "all-gather"), effect="seen", scope="schedule",
    ),
    _row(
        "permutes at once", "how many permutes may be in flight at once",
        _numbers("xla_max_concurrent_async_collective_permutes", 1, 10), "5",
        ("two", "collective-permute"), effect="none seen", scope="schedule",
    ),
    _row(
        "host copies at once", "how many copies to and from the host may be in flight",
        _numbers("xla_max_concurrent_host_copy", 1, 10), "5", ("async", ""),
        scope="schedule",
    ),
    _row(
        "host transfers at once", "how many transfers to and from the host overlap",
        _numbers("xla_tpu_host_transfer_overlap_limit", 8, 64), "32", ("async", ""),
        scope="schedule",
    ),
    _row(
        "aggressive scheduling", "the scheduler's rules of depth and waste",
        {**_on("xla_tpu_use_aggressive_scheduling"),
         **_off("xla_tpu_use_aggressive_scheduling")},
        "on for v5e, else off", ("any", ""), effect="seen", scope="schedule",
    ),
    _row(
        "depth before stalls", "what starts a long chain comes before what stalls less",
        {"on": {"xla_lhs_prioritize_async_depth_over_stall": "ENABLED"}}, "off",
        ("two", ""), effect="none seen", scope="schedule",
    ),
    _row(
        "early starts", "starts are placed as soon as they may be",
        _on("xla_lhs_enable_release_start_policy"), "off",
        ("two", ""), effect="seen", scope="schedule",
    ),
    _row(
        "memory of the scheduler", "percent of the memory that the scheduler may fill",
        _numbers("xla_tpu_scheduler_percent_shared_memory_limit", 100, 80, 60), "95",
        ("any", ""), effect="seen", scope="schedule", interacts=(_GATHERS,),
    ),
    _row(
        "reruns", "how often the scheduler tries again with less memory",
        _numbers("xla_latency_hiding_scheduler_rerun", 0, 5), "1", ("any", ""),
        effect="none seen", scope="schedule",
    ),
    _row(
        "experimental scheduling", "all experimental features of the scheduler",
        _on("xla_tpu_enable_all_experimental_scheduler_features"), "off", ("any", ""),
        effect="none seen",
    ),
    _row(
        "scheduler", "XLA:TPU's latency-hiding scheduler orders the instructions",
        _off("xla_tpu_enable_latency_hiding_scheduler"), "on", ("any", ""),
        effect="seen",
    ),
    # What is asynchronous.
    _row(
        "asynchronous all-gathers", "all-gathers have a start and a done",
        _off("xla_enable_async_all_gather"), "on for v5e", ("any", "all-gather"),
        chips=_CUTTING, effect="seen",
    ),
    _row(
        "asynchronous permutes", "permutes have a start and a done",
        _off("xla_enable_async_collective_permute"), "on",
        ("any", "collective-permute"), effect="seen",
    ),
    _row(
        "asynchronous all-to-alls", "all-to-alls have a start and a done",
        _on("xla_tpu_enable_async_all_to_all"), "off", ("any", "all-to-all"),
        effect="seen", interacts=("early starts", "depth before stalls"),
    ),
    _row(
        "asynchronous all-reduces", "all-reduces have a start and a done",
        {"on": {"xla_enable_async_all_reduce": "ENABLED"}}, "off",
        ("any", "all-reduce"), interacts=("all-reduces in fusions",),
    ),
    _row(
        "merged pairs", "a pair that hides nothing becomes the plain collective",
        _off("xla_tpu_enable_async_collective_merger"), "on", ("any", ""),
        effect="seen",
    ),
    # Collectives in fusions.
    _row(
        "collectives in fusions", "a collective and its product become fusions",
        _off(_FUSION), "on", ("products", ""), chips=_CUTTING, effect="seen",
    ),
    _row(
        "all-gathers in fusions", "the same for all-gathers",
        _off(f"{_FUSION}_fuse_all_gather"), "on for v5e", ("any", "all-gather"),
        chips=_CUTTING, effect="seen",
    ),
    _row(
        "all-reduces in fusions", "the same for all-reduces",
        _on(f"{_FUSION}_fuse_all_reduce"), "off", ("any", "all-reduce"),
        chips=_CUTTING,
    ),
    _row(
        "reduce-scatters in fusions", "the same for reduce-scatters",
        _on(f"{_FUSION}_fuse_reduce_scatter"), "off", ("any", "reduce-scatter"),
        chips=_CUTTING,
    ),
    _row(
        "several steps", "a collective is beside several fusions",
        _off(f"{_FUSION}_multiple_steps"), "on", ("products", ""), chips=_CUTTING,
        effect="seen", interacts=(_GATHERS,),
    ),
    _row(
        "fusions of starts and dones", "fusions hold starts and dones alone",
        _on("xla_tpu_async_collective_fusion_with_start_done_only"), "off",
        ("products", ""), chips=_CUTTING, effect="seen",
    ),
    _row(
        "communication beside compute", "a TensorCore communicates while it computes",
        _off("xla_tpu_overlap_compute_collective_tc"), "on", ("any", ""),
        chips=_CUTTING, effect="seen",
    ),
    _row(
        "VMEM of a fusion", "KiB of VMEM that one fusion may take",
        _numbers("xla_tpu_scoped_vmem_limit_kib", 32768, 65536), "the chip's",
        ("products", ""), effect="seen",
    ),
    # Collectives on the SparseCores.
    *(
        _row(
            f"{kind} on SparseCores", f"SparseCores run {kind}s",
            (
                {**_on(f"{_SPARSE}_{kind.replace('-', '_')}"),
                 **_off(f"{_SPARSE}_{kind.replace('-', '_')}")}
            ),
            default, ("any", kind), chips=_SPARSE_CHIPS, effect=effect,
            interacts=("early starts", "depth before stalls"), shortens=shortens,
        )
        for kind, default, effect, shortens in _ON_SPARSE_CORES
    ),
    # Loops, and the size of collectives.
    _row(
        "all-gathers ahead in loops", "a loop gathers for its next iteration",
        _on(
            "xla_tpu_enable_ici_ag_pipelining",
            "xla_should_allow_loop_variant_parameter_in_chain",
            "xla_should_add_loop_invariant_op_in_chain",
        ),
        "off", ("looped", "all-gather"), effect="seen", interacts=(_GATHERS,),
        shortens=("v5e",),
    ),
    _row(
        "all-gathers ahead, backwards", "the same in the backward pass",
        _on("xla_tpu_enable_ag_backward_pipelining"), "off", ("looped", "all-gather"),
        effect="none seen",
    ),
    _row(
        "pipelined collectives", "a loop's collective runs beside another iteration",
        _on("xla_tpu_enable_collective_pipeliner"), "off", ("looped", ""),
        effect="none seen",
    ),
    _row(
        "windowed einsum", "a product and its all-gather become a ring of parts",
        {"all": {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "0"},
         "none": {"xla_jf_spmd_threshold_for_windowed_einsum_mib": "1000000"}},
        "the compiler's", ("products", ""), effect="seen",
        interacts=("permutes at once",),
    ),
    _row(
        "combined permutes", "several permutes become one",
        _on("xla_tpu_enable_collective_permute_combiner"), "off",
        ("two", "collective-permute"), effect="none seen",
    ),
    _row(
        "combined gathers", "bytes of all-gathers in fusions that become one",
        {"off": {"xla_tpu_agf_combiner_threshold_in_bytes": "0"}}, "120 MiB",
        ("two", "all-gather"), chips=_CUTTING, effect="none seen",
    ),
    _row(
        "data-parallel all-reduces", "all-reduces of gradients are optimized",
        _off("xla_tpu_enable_data_parallel_all_reduce_opt"), "on",
        ("any", "all-reduce"),
    ),
)  # fmt: skip

#: By name, in the order in which they are tried.
TPU_LEVERS: Final[Mapping[str, TpuLever]] = {row.lever.name: row for row in _ROWS}


def tpu_levers(name: str) -> tuple[TpuLever, ...]:
    """The levers of a chip; UsageError U250 for an unknown one."""
    part = chip(name)
    return tuple(row for row in TPU_LEVERS.values() if row.is_of(part.name))


def tpu_options(settings: Mapping[str, str]) -> dict[str, bool | int | str]:
    """`compiler_options` of settings by lever.

    Raises UsageError U251 for a lever or a setting that there is not.
    """
    options: dict[str, bool | int | str] = {}
    for name, setting in settings.items():
        row = TPU_LEVERS.get(name)
        if row is None:
            raise UsageError(
                f"{name} is no lever of XLA:TPU",
                code="U251",
                hint=nearest(name, TPU_LEVERS) or "see scheduler/tuning/tpu_levers.py",
            )
        try:
            found = row.lever.candidate(setting)
        except KeyError:
            known = ", ".join(each.setting for each in row.lever.settings)
            raise UsageError(
                f"{name} has no setting {setting}", code="U251", hint=f"one of {known}"
            ) from None
        options |= {flag.name: flag.value for flag in found.flags}
    return options
