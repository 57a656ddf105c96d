"""Record what XLA's own GPU compiler makes of a program or module, with no GPU.

    python corpus/compile_gpu.py corpus/programs/moe.py:moe --out=DIR
    python corpus/compile_gpu.py module.hlo.gz --topology=2x1x8 --decisions --out=DIR

JAX's GPU plug-in compiles ahead of time for a GPU that is not there, given the
description of a target (scheduler/data/gpu_targets); `jax-cuda12-plugin` and
`jax-cuda12-pjrt` of the release of jax at hand are all it needs. Into DIR go

    <pass>.before.hlo.gz, <pass>.after.hlo.gz   the module around each pass of `PASSES`
    costs.json.gz       node_cost_us and latency_us, as XLA's estimator gave them
    statistics.json     XLA's wasted and total time before and after scheduling
    decisions.tsv.gz    with --decisions, the scheduler's choices: chosen, other, reason
    oracle.json         the input, target, topology, flags, versions and outcome

The compilation may fail after the scheduler (no ptxas, a custom call that is not
registered): `outcome` says so, the dumps are whole by then. HLO text goes through
StableHLO, which has no async instructions, `copy`, control edges or layouts inside.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import estimator_log
import gpu_child

from hlo_passes.errors import ParseError
from hlo_passes.proto import module_text_from_proto

CORPUS = pathlib.Path(__file__).resolve().parent
TARGETS = CORPUS.parent / "scheduler" / "data" / "gpu_targets"

PASSES = (
    "gpu-all-gather-combiner",
    "gpu-all-reduce-combiner",
    "gpu-reduce-scatter-combiner",
    "collective-permute-combiner",
    "async-collective-creator",
    "async-collective-annotator",
    "stream-attribute-annotator",
    "collectives-schedule-linearizer",
    "latency-hiding-scheduler",
    "gpu-convert-async-collectives-to-sync",
)
SCHEDULER = "latency-hiding-scheduler"

#: An operand that is an element of a tuple, as jax 0.12 prints it.
_SPELLED_ELEMENT = re.compile(r"%[\w.\-]+#\d")
#: Nothing can be measured on a GPU that is not there. Recorded with the flags: passes
#: look at it.
_AUTOTUNE_LEVEL = "xla_gpu_autotune_level"
_DUMP = re.compile(
    r"(?P<module>module_\d+)\..*\.(?P<number>\d{4})\."
    r".*\.after_(?P<after>.+?)\.before_(?P<before>.+?)\.txt"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One compilation: FILE.py:FUNCTION or an HLO file, for a described machine.

    Attributes:
        input: 'FILE.py:FUNCTION' or the path of an HLO file.
        target: a name of scheduler/data/gpu_targets, or a file.
        topology: NVLink domains x hosts per domain x GPUs per host; two H100 hosts
            are 2x1x8.
        flags: 'name=value' compiler options.
        device_memory_bytes: in place of the target's own; None for that.
        with_elements: print every get-tuple-element. XLA's dumps of jax 0.12 spell
            them at their users (`%t#0`), so their place in the order is lost.
        passes: around which modules are printed; of others than `PASSES` every run is
            kept, and the module after buffer assignment.
    """

    input: str
    target: str = "h100_sxm"
    topology: str = "1x1x8"
    flags: tuple[str, ...] = ()
    device_memory_bytes: int | None = None
    with_elements: bool = False
    passes: tuple[str, ...] = PASSES

    @property
    def all_flags(self) -> tuple[str, ...]:
        """The flags, and those that passes look at and every compilation here has."""
        if any(flag.startswith(f"{_AUTOTUNE_LEVEL}=") for flag in self.flags):
            return self.flags
        return (*self.flags, f"{_AUTOTUNE_LEVEL}=0")

    def target_file(self) -> pathlib.Path:
        named = TARGETS / f"{self.target}.txtpb"
        return named if named.exists() else pathlib.Path(self.target)

    def to_json(self, dumps: pathlib.Path) -> str:
        """The line that `gpu_child` reads."""
        options = {
            "xla_dump_to": str(dumps),
            "xla_dump_hlo_as_text": True,
            "xla_dump_large_constants": True,
            "xla_dump_hlo_as_proto": self.with_elements,
            "xla_dump_hlo_pass_re": "|".join(self.passes),
            "xla_gpu_enable_latency_hiding_scheduler": True,
        }
        options |= {n: _typed(v) for n, v in (f.split("=", 1) for f in self.all_flags)}
        rest = {
            "target": str(self.target_file()),
            "device_memory_bytes": self.device_memory_bytes,
            "topology": self.topology,
            "options": options,
        }
        return json.dumps({"input": self.input} | rest)


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """What one compilation left: dumps by pass, the log, and how it ended.

    Attributes:
        dumps: pass -> (before, after) of its first run.
        log: what XLA's estimator and scheduler logged.
        outcome: 'compiled', or what XLA said.
        runs: (pass, before, after) of every run, in order; empty for `PASSES`.
        final: the module after buffer assignment; '' where it did not get there, and
            for `PASSES`.
    """

    dumps: dict[str, tuple[str, str]]
    log: estimator_log.EstimatorLog
    outcome: str
    runs: tuple[tuple[str, str, str], ...] = ()
    final: str = ""


def _typed(value: str) -> bool | int | str:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.lstrip("-").isdigit() else value


def compile_all(jobs: list[Job], *, decisions: bool = False) -> list[Recording]:
    """Compile in child processes; a crash ends one job, not the rest."""
    recordings: list[Recording] = []
    while len(recordings) < len(jobs):
        recordings += _compile_until_crash(jobs[len(recordings) :], decisions=decisions)
    return recordings


def _compile_until_crash(jobs: list[Job], *, decisions: bool) -> list[Recording]:
    level = estimator_log.STATISTICS_LEVEL
    if decisions:
        level = estimator_log.DECISIONS_LEVEL
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "TF_CPP_VMODULE": estimator_log.VERBOSITY.format(level=level),
    }
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        places = [pathlib.Path(folder) / str(k) for k in range(len(jobs))]
        lines = (job.to_json(p) for job, p in zip(jobs, places, strict=True))
        child = subprocess.run(
            [sys.executable, gpu_child.__file__],
            input="".join(f"{line}\n" for line in lines),
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
        logs = child.stderr.split(f"{gpu_child.MARKER} ")
        begun = [log for log in logs[1:] if not log.startswith("done ")]
        ends = [log for log in logs[1:] if log.startswith("done ")]
        outcomes = [end.splitlines()[0].split(" ", 2)[2] for end in ends]
        if not begun:
            sys.exit(f"the compiler did not start:\n{child.stderr[-2000:]}")
        outcomes += [f"crashed with exit status {child.returncode}"] * (
            len(begun) - len(ends)
        )
        found = zip(jobs, places, begun, outcomes, strict=False)
        return [
            Recording(
                _read_dumps(place),
                estimator_log.read_log(log.splitlines()),
                outcome,
                *(() if job.passes == PASSES else _read_all(place)),
            )
            for job, place, log, outcome in found
        ]


#: One dump and what its name says.
_Step = tuple[pathlib.Path, re.Match[str]]


def _read_steps(folder: pathlib.Path) -> list[_Step]:
    """Dumps of the module that was scheduled, else of the largest, in order.

    XLA also schedules copies of a module (`-clone`), to look at the result.
    """
    matches = [(f, _DUMP.fullmatch(f.name)) for f in sorted(folder.glob("*.txt"))]
    found = [(f, match) for f, match in matches if match and "-clone." not in f.name]
    scheduled = [f for f, match in found if match["before"] == SCHEDULER]
    files = scheduled or [f for f, _ in found]
    if not files:
        return []
    module = max(files, key=lambda f: f.stat().st_size).name.split(".")[0]
    return sorted(
        ((f, match) for f, match in found if match["module"] == module),
        key=lambda step: step[1]["number"],
    )


def _read_all(
    folder: pathlib.Path,
) -> tuple[tuple[tuple[str, str, str], ...], str]:
    """Every run of every pass, and the module after buffer assignment."""
    steps = _read_steps(folder)
    texts: dict[pathlib.Path, str] = {}
    runs = []
    for k, (file, match) in enumerate(steps):
        name = match["before"]
        after = next((f for f, m in steps[k + 1 :] if m["after"] == name), None)
        if after is None:
            continue
        for one in (file, after):
            if one not in texts:
                texts[one] = _dump_text(one)
        runs.append((name, texts[file], texts[after]))
    module = steps[0][1]["module"] if steps else ""
    finals = sorted(folder.glob(f"{module}.*after_optimizations.txt")) if module else []
    return tuple(runs), finals[0].read_text() if finals else ""


def _read_dumps(folder: pathlib.Path) -> dict[str, tuple[str, str]]:
    """Pass -> (before, after) of its first run."""
    steps = _read_steps(folder)
    dumps = {}
    for name in PASSES:
        before = [k for k, (_, match) in enumerate(steps) if match["before"] == name]
        after = [k for k, (_, match) in enumerate(steps) if match["after"] == name]
        if before and after:
            behind = min(k for k in after if k > before[0])
            dumps[name] = _dump_text(steps[before[0]][0]), _dump_text(steps[behind][0])
    return dumps


def _dump_text(file: pathlib.Path) -> str:
    """A dump; where one of its proto lies beside it, with all get-tuple-elements.

    Where jaxlib cannot read the proto (0.12, pipelined sends at optimisation level
    ENABLE) the text stays as XLA printed it.
    """
    text = file.read_text()
    proto = file.with_suffix(".hlo.pb")
    if not proto.exists() or not _SPELLED_ELEMENT.search(text):
        return text
    # A proto has no module config: the first line is the text's.
    header, _, _ = text.partition("\n")
    try:
        whole = module_text_from_proto(proto.read_bytes(), filename=proto.name)
    except ParseError as problem:
        print(f"{problem}\n  its text is taken, without elements", file=sys.stderr)
        return text
    return f"{header}\n{whole.partition(chr(10))[2]}"


def write_packed(file: pathlib.Path, text: str) -> None:
    """Write gzip without a time in it: the same text, the same bytes."""
    file.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def recorded_texts(
    job: Job,
    recording: Recording,
    *,
    passes: tuple[str, ...] = PASSES,
    decisions: bool = False,
) -> dict[str, str]:
    """File name -> text of a folder laid out as this module's docstring says."""
    texts = {}
    for name, (before, after) in recording.dumps.items():
        if name in passes:
            texts[f"{name}.before.hlo"] = before
            texts[f"{name}.after.hlo"] = after
    log = recording.log
    if SCHEDULER in passes:
        texts["costs.json"] = json.dumps(log.costs(), indent=1, sort_keys=True)
        statistics = json.dumps(log.statistics, indent=1, sort_keys=True)
        texts["statistics.json"] = f"{statistics}\n"
    if decisions:
        texts["decisions.tsv"] = "".join("\t".join(r) + "\n" for r in log.decisions)
    description: dict[str, object] = {
        "source": pathlib.Path(job.input).name,
        "target": pathlib.Path(job.target).name,
        "topology": job.topology,
        "flags": list(job.all_flags),
        "versions": {
            name: importlib.metadata.version(name)
            for name in ("jax", "jaxlib", "jax-cuda12-plugin")
        },
        "passes": [name for name in PASSES if name in recording.dumps],
        "outcome": recording.outcome,
    }
    if job.device_memory_bytes is not None:
        description["device_memory_bytes"] = job.device_memory_bytes
    texts["oracle.json"] = f"{json.dumps(description, indent=1)}\n"
    return texts


def write_recording(
    folder: pathlib.Path,
    job: Job,
    recording: Recording,
    *,
    passes: tuple[str, ...] = PASSES,
    decisions: bool = False,
) -> None:
    """Write a folder; what is small and read by hand stays plain, the rest packed."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = recorded_texts(job, recording, passes=passes, decisions=decisions)
    for name, text in texts.items():
        if name in ("statistics.json", "oracle.json"):
            (folder / name).write_text(text)
        else:
            write_packed(folder / f"{name}.gz", text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input", help="FILE.py:FUNCTION or FILE.hlo[.gz]")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--target", default="h100_sxm")
    parser.add_argument("--topology", default="1x1x8")
    parser.add_argument(
        "--flag",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a compiler option, such as xla_gpu_all_reduce_combine_threshold_bytes=64",
    )
    parser.add_argument("--decisions", action="store_true")
    parser.add_argument(
        "--with-elements",
        action="store_true",
        help="print every get-tuple-element (jax 0.12 leaves them to their users)",
    )
    options = parser.parse_args()
    job = Job(
        options.input,
        options.target,
        options.topology,
        tuple(options.flag),
        with_elements=options.with_elements,
    )
    (recording,) = compile_all([job], decisions=options.decisions)
    write_recording(options.out, job, recording, decisions=options.decisions)
    print(f"{options.out}: {len(recording.dumps)} passes; {recording.outcome}")
    return 0 if recording.dumps else 1


if __name__ == "__main__":
    sys.exit(main())
