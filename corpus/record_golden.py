"""Write corpus/golden: what XLA makes of the programs and the handwritten modules.

    python corpus/record_golden.py                     # everything
    python corpus/record_golden.py halo_exchange       # one input with its variants

Folders are `golden/<jax release>/<input>[.<variant>]`, as `compile_gpu` lays them out.
To stay small a folder holds the passes that changed something; those of `WHOLE` hold
all of them. A module that does not get as far as the passes leaves no folder.
"""

from __future__ import annotations

import shutil
import sys

import jax
from compile_gpu import PASSES, SCHEDULER, Job, Recording, compile_all, write_recording
from lower import CORPUS, programs

#: Inputs whose folders hold every pass, also those that changed nothing.
WHOLE = frozenset(
    {"async_kinds", "control_flow", "grouped_reductions", "halo_exchange", "moe"}
)
#: Too large to keep; the forward program shows the same.
LEFT_OUT = frozenset({"ring_attention_grad"})
#: How many of the scheduler's choices are worth their bytes.
MOST_DECISIONS = 20_000

_PERMUTE = "xla_gpu_collective_permute_combine_threshold_bytes"
_REDUCE = "xla_gpu_all_reduce_combine_threshold_bytes"
_GATHER = "xla_gpu_all_gather_combine_threshold_bytes"
_SCATTER = "xla_gpu_reduce_scatter_combine_threshold_bytes"
_COUNT = "xla_gpu_collective_combine_threshold_count"
_SYNC = "xla_gpu_disable_async_collectives"
_OVERLAP = "xla_gpu_experimental_parallel_collective_overlap_limit"
_APPROXIMATE = "xla_gpu_enable_analytical_sol_latency_estimator=false"

#: Input -> variant -> flags, beside the variant without a name and without flags.
VARIANTS: dict[str, dict[str, tuple[str, ...]]] = {
    "halo_exchange": {
        "threshold_170": (f"{_PERMUTE}=170",),
        "uncombined": (f"{_PERMUTE}=0",),
        "all_sync": (f"{_SYNC}=ALLCOLLECTIVES",),
        "overlap_4": (f"{_OVERLAP}=4", _APPROXIMATE),
    },
    "halo_exchange_many_types": {"threshold_100": (f"{_PERMUTE}=100",)},
    "over_threshold": {
        "threshold_100": (f"{_PERMUTE}=100",),
        "threshold_60": (f"{_PERMUTE}=60",),
    },
    "count_limit": {"count_2": (f"{_COUNT}=2",), "count_3": (f"{_COUNT}=3",)},
    "in_loop": {"uncombined": (f"{_PERMUTE}=0",)},
    "independent_chains": {"count_2": (f"{_COUNT}=2",)},
    "fsdp_mlp": {"threshold_4k": (f"{_GATHER}=4096", f"{_SCATTER}=256")},
    "sequence_parallel_mlp": {
        "all_sync": (f"{_SYNC}=ALLCOLLECTIVES",),
        "approximate": (_APPROXIMATE,),
    },
    "tensor_parallel_mlp": {
        "uncombined": (f"{_REDUCE}=0",),
        "sync_all_reduce": (f"{_SYNC}=ALLREDUCE",),
    },
    "mixed_reductions": {"threshold_40": (f"{_REDUCE}=40",)},
    "all_reduce_keys": {"count_2": (f"{_COUNT}=2",)},
    "all_gather_dimensions": {
        "by_dimension": ("xla_gpu_enable_all_gather_combine_by_dim=true",)
    },
    "reduce_scatter_dimensions": {
        "by_dimension": ("xla_gpu_enable_reduce_scatter_combine_by_dim=true",)
    },
    "async_kinds": {
        "all_sync": (f"{_SYNC}=ALLCOLLECTIVES",),
        "some_sync": (f"{_SYNC}=ALLREDUCE,COLLECTIVEPERMUTE,ALLTOALL",),
    },
    "async_overlapped": {
        "approximate": (_APPROXIMATE,),
        "overlap_4": (f"{_OVERLAP}=4", _APPROXIMATE),
    },
}


def inputs() -> dict[str, str]:
    """Name -> what `compile_gpu` takes: programs, then handwritten modules."""
    found = {
        name: f"{CORPUS / 'programs' / function.__module__}.py:{name}"
        for name, function in programs().items()
        if name not in LEFT_OUT
    }
    found |= {f.stem: str(f) for f in sorted((CORPUS / "handwritten").glob("*.hlo"))}
    return found


def jobs(*names: str) -> dict[str, Job]:
    """Folder -> job, all or those of the named inputs."""
    found = {}
    for name, source in inputs().items():
        if names and name not in names:
            continue
        found[name] = Job(source)
        for variant, flags in VARIANTS.get(name, {}).items():
            found[f"{name}.{variant}"] = Job(source, flags=flags)
    return found


def kept_passes(name: str, recording: Recording) -> tuple[str, ...]:
    """The passes that a folder holds."""
    if name.partition(".")[0] in WHOLE and "." not in name:
        return PASSES
    dumps = recording.dumps
    return tuple(p for p in PASSES if p in dumps and dumps[p][0] != dumps[p][1])


def main() -> int:
    chosen = jobs(*sys.argv[1:])
    golden = CORPUS / "golden" / jax.__version__
    recordings = compile_all(list(chosen.values()), decisions=True)
    for (name, job), recording in zip(chosen.items(), recordings, strict=True):
        shutil.rmtree(golden / name, ignore_errors=True)
        if not recording.dumps:
            print(f"{name}: left out; {recording.outcome}")
            continue
        passes = kept_passes(name, recording)
        few = len(recording.log.decisions) <= MOST_DECISIONS
        write_recording(
            golden / name,
            job,
            recording,
            passes=passes,
            decisions=few and SCHEDULER in passes,
        )
        print(f"{name}: {', '.join(passes)}; {recording.outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
