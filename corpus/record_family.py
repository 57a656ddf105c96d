"""Record every pass over collectives with its switches on, and keep what XLA made.

    python corpus/record_family.py --out=DIR                    # everything
    python corpus/record_family.py --out=DIR gathers ragged     # some inputs
    hlo-passes conformance DIR                                  # judge our passes by it

Inputs are the programs, the held-out programs, the programs of `family/` and the
handwritten modules; each is compiled with each of `VARIANTS`, and each module of
`small_modules.py` with one. Folders are
`DIR/<jax release>/<input>.<variant>`, and `...@2` for a second run of a pass in the
same compilation. A pair is left out where the same pass received the same text with
the same options before.

Modules of `small_modules.py` and handwritten ones are one device's program, which XLA
does not partition. It skips a pass there, and others leave dead collectives.

XLA's buffer assignment is no pass: as the module before it stands the last text that
XLA prints, without the memory spaces that it wrote (`gpu-memory-space-assignment`).
"""

from __future__ import annotations

import argparse
import hashlib
import pathlib
import re
import sys
from collections.abc import Iterator

import jax
import small_modules
from compile_gpu import Job, Recording, compile_all, recorded_texts, write_packed
from lower import CORPUS, functions

from hlo_passes.conformance.recorded_flags import recorded_options
from hlo_passes.errors import HloError
from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.pipeline import pipeline_text
from hlo_passes.passes.framework.registry import find_pass, pass_targets
from hlo_passes.passes.framework.spec import option_values
from hlo_passes.scheduler.passes.xla_gpu import XlaGpu
from hlo_passes.xla_flags import all_flags, option_text

RELEASE = jax.__version__
IS_OLD = RELEASE.startswith("0.10.")
#: Passes of the compiler that have nothing to do with collectives.
_OTHERS = frozenset({"hlo-cse", "hlo-dce", "tuple-simplifier", "hlo-memory-scheduler"})
#: Passes that are judged with XLA's costs and more (record_schedules.py).
_JUDGED_ELSEWHERE = frozenset({"latency-hiding-scheduler", "scheduler-memory-fencing"})
COLORS = "gpu-memory-space-assignment"
#: From 0.11 on a dump leaves elements out, and edges from them name nothing.
_WHOLE = () if IS_OLD else ("xla_dump_compact_gte=false",)
#: How many compilations one process does.
_BATCH = 24

_ON = "COLLECTIVE_PIPELINING_MODE_ON"
_PIPELINED = tuple(
    f"xla_gpu_enable_pipelined_{kind}=true"
    if IS_OLD
    else f"xla_gpu_pipeline_{kind}={_ON}"
    for kind in ("all_gather", "all_reduce", "reduce_scatter")
)
_UNROLLING = "xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING"
_SYMMETRIC = "COLLECTIVES_SYMMETRIC_MEMORY"

#: Variant -> (flags, topology).
VARIANTS: dict[str, tuple[tuple[str, ...], str]] = {
    "plain": ((), "1x1x8"),
    "loops": (
        (
            *_PIPELINED,
            f"{_UNROLLING}_DOUBLE_BUFFER",
            "xla_gpu_enable_while_loop_reduce_scatter_code_motion=true",
            "xla_gpu_enable_dus_accumulator_zero_init_elimination=true",
            "xla_gpu_enable_pipelined_host_offloading=true",
        ),
        "1x1x8",
    ),
    "transfers": (
        (
            "xla_gpu_enable_pipelined_p2p=true",
            "xla_gpu_collective_permute_decomposer_threshold=0",
            "xla_gpu_experimental_collective_cse_distance_threshold=1000",
            "xla_enable_enzyme_comms_opt=true",
            f"{_UNROLLING}_FULL_UNROLL",
            f"xla_gpu_collective_permute_mode={_SYMMETRIC}",
            f"xla_gpu_all_gather_mode={_SYMMETRIC}",
        ),
        "1x1x8",
    ),
    "taken_apart": (
        (
            "xla_gpu_unsupported_enable_all_reduce_decomposer=true",
            "xla_gpu_unsupported_enable_ragged_all_to_all_decomposer=true",
            "xla_gpu_enable_nccl_user_buffers=true",
        ),
        "1x1x8",
    ),
    "two_hosts": (
        (
            "xla_gpu_all_reduce_blueconnect_num_devices_per_host=4",
            "xla_gpu_unsupported_override_fast_interconnect_slice_size=4",
            "xla_gpu_experimental_enable_heuristic_collective_combining=true",
            "xla_gpu_experimental_enable_nccl_symmetric_buffers=true",
        ),
        "2x1x4",
    ),
}


def passes() -> tuple[str, ...]:
    """Names of our passes that XLA's GPU compiler may run, and that are judged here."""
    own = {COLORS, *_OTHERS, *_JUDGED_ELSEWHERE}
    # The scheduler's dump tells which module was compiled.
    return (*sorted(set(pass_targets()) - own), "latency-hiding-scheduler")


def inputs() -> dict[str, str]:
    """Name -> what `compile_gpu` takes."""
    found = {
        name: f"{file}:{name}"
        for folder in ("family", "programs", "held_out")
        for file in sorted((CORPUS / folder).glob("*.py"))
        for name in functions(file)
    }
    found |= {f.stem: str(f) for f in sorted((CORPUS / "handwritten").glob("*.hlo"))}
    return found


def small_inputs(
    variant: str, folder: pathlib.Path, asked: list[str]
) -> Iterator[tuple[str, str]]:
    """Name and file of the modules of `small_modules.py`, which are written here."""
    for name, text in small_modules.modules(variant).items():
        if asked and not {name, "small_modules"} & {*asked}:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.hlo"
        file.write_text(text)
        yield name, str(file)


def _flag_values(flags: tuple[str, ...]) -> dict[str, str]:
    """Options of `xla-gpu` from flags, of both releases."""
    values = {}
    names = {flag: option for (name, option), flag in all_flags().items()
             if name == "xla-gpu"}  # fmt: skip
    for flag in flags:
        name, _, value = flag.partition("=")
        old = name.replace("enable_pipelined_all", "pipeline_all").replace(
            "enable_pipelined_reduce", "pipeline_reduce"
        )
        if old != name:
            values[names[old]] = "on"
        elif name in names:
            short = value.removeprefix("COLLECTIVE_PIPELINING_MODE_")
            values[names[name]] = (
                short.lower() if short != value else option_text(value)
            )
    return values


class Expected:
    """Our passes as the preset `xla-gpu` would run them with some flags."""

    def __init__(self, flags: tuple[str, ...], record: pathlib.Path) -> None:
        values = option_values(XlaGpu, "xla-gpu", tuple(_flag_values(flags).items()))
        self._record = record
        self._runs: dict[str, list[Pass]] = {}
        for each in XlaGpu(**values).passes():
            self._runs.setdefault(each.name, []).append(each)

    def options(self, name: str, run: int) -> str:
        """The options of the nth run of a pass, as a file of options has them."""
        kind = find_pass(name)
        found = recorded_options(self._record, name)
        if name in self._runs:
            each = self._runs[name][min(run, len(self._runs[name]) - 1)]
            text = pipeline_text((each,)).removeprefix(name).strip("{}")
            listed = dict(o.split("=", 1) for o in text.split(",") if o)
            found = listed | found
        if "xla" in getattr(kind, "__dataclass_fields__", {}):
            found["xla"] = RELEASE
        return ",".join(f"{k}={_quoted(v)}" for k, v in found.items())


def _quoted(value: str) -> str:
    bare = value.strip("'")
    return f"'{bare}'" if re.search(r"[\s,{}=]", bare) else bare


#: XLA skips these where it has not partitioned a module for several devices itself, or
#: finds nothing, since it has no assignment of devices there.
_SKIPPED = frozenset({"all-reduce-blueconnect", "while-loop-all-reduce-code-motion"})
#: There these leave dead collectives. Text does not say who partitioned a module; only
#: without a number of partitions it means the same.
_LEAVE_DEAD = frozenset(
    {"collective-pipeliner-backward", "collective-pipeliner-forward"}
)
_PARTITIONS = re.compile(r", num_partitions=\d+")
_PAIRS = re.compile(r"source_target_pairs=\{([\d{},]*)\}")
#: XLA writes the pairs that it makes here in the order of a hash table.
_UNSORTED = frozenset({"all-gather-to-collective-permute-simplifier"})


def _is_partitioned_by_xla(source: str) -> bool:
    """Whether XLA's partitioner saw a module, as `gpu_child` asks it to."""
    return not source.endswith(".hlo") or (
        "sharding={manual}" in pathlib.Path(source).read_text()
    )


def _without_partitions(text: str) -> str:
    header, _, rest = text.partition("\n")
    return f"{_PARTITIONS.sub('', header)}\n{rest}"


def _with_sorted_pairs(before: str, after: str) -> str:
    """The text after a pass, with the pairs sorted that it has made."""

    def in_order(match: re.Match[str]) -> str:
        if match[0] in before:
            return match[0]
        pairs = re.findall(r"\{(\d+),(\d+)\}", match[1])
        written = ",".join(f"{{{a},{b}}}" for a, b in sorted(pairs, key=_numbers))
        return f"source_target_pairs={{{written}}}"

    return _PAIRS.sub(in_order, after)


def _numbers(pair: tuple[str, str]) -> tuple[int, int]:
    return int(pair[0]), int(pair[1])


_WRITTEN = re.compile(r"(\{[\d,]*):S\((?:1|7)\)\}")


def without_spaces(text: str) -> str:
    """The text without the memory space that XLA's buffer assignment wrote."""
    return re.sub(r"(\w\[\])\{\}", r"\1", _WRITTEN.sub(r"\1}", text))


def pairs(source: str, recording: Recording) -> Iterator[tuple[str, str, str]]:
    """(pass, before, after) of everything that is judged."""
    known = {*passes()} - _JUDGED_ELSEWHERE
    is_partitioned = _is_partitioned_by_xla(source)
    for name, before, after in recording.runs:
        if name not in known or (name in _SKIPPED and not is_partitioned):
            continue
        if name in _LEAVE_DEAD and not is_partitioned:
            before, after = map(_without_partitions, (before, after))
        if name in _UNSORTED:
            after = _with_sorted_pairs(before, after)
        yield name, before, after
    if recording.final:
        yield COLORS, without_spaces(recording.final), recording.final


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="inputs, or files of inputs")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--variant", action="append", choices=sorted(VARIANTS))
    asked = parser.parse_args()
    chosen = {
        name: source
        for name, source in inputs().items()
        if not asked.names
        or {name, pathlib.Path(source.split(":")[0]).stem} & {*asked.names}
    }
    known = passes()
    small = asked.out / "small_modules"
    jobs = {
        f"{name}.{variant}": Job(
            source, topology=topology, flags=(*flags, *_WHOLE), passes=known
        )
        for variant, (flags, topology) in VARIANTS.items()
        if not asked.variant or variant in asked.variant
        for name, source in (
            *chosen.items(),
            *(small_inputs(variant, small, asked.names)),
        )
    }
    seen: set[str] = set()
    names = [*jobs]
    for k in range(0, len(names), _BATCH):
        batch = names[k : k + _BATCH]
        recordings = compile_all([jobs[name] for name in batch])
        for name, recording in zip(batch, recordings, strict=True):
            kept = write(asked.out / RELEASE / name, jobs[name], recording, seen)
            print(f"{name}: {kept} pairs; {recording.outcome}", flush=True)
    return 0


def write(folder: pathlib.Path, job: Job, recording: Recording, seen: set[str]) -> int:
    """Write the pairs of a compilation that no other one had; returns how many."""
    record = recorded_texts(job, recording, passes=())["oracle.json"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "oracle.json").write_text(record)
    expected = Expected(job.all_flags, folder)
    runs: dict[str, int] = {}
    kept = 0
    for name, before, after in pairs(job.input, recording):
        run = runs[name] = runs.get(name, -1) + 1
        try:
            options = expected.options(name, run)
        except HloError as problem:
            print(f"{folder.name}: {name}: {problem}", file=sys.stderr)
            continue
        whole = "\0".join((name, options, before, after)).encode()
        if (key := hashlib.sha256(whole).hexdigest()) in seen:
            continue
        seen.add(key)
        at = folder if not run else folder.with_name(f"{folder.name}@{run + 1}")
        at.mkdir(exist_ok=True)
        (at / "oracle.json").write_text(record)
        write_packed(at / f"{name}.before.hlo.gz", before)
        write_packed(at / f"{name}.after.hlo.gz", after)
        (at / f"{name}.options").write_text(f"{options}\n")
        kept += 1
    return kept


if __name__ == "__main__":
    sys.exit(main())
