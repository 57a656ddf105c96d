"""Every program of the corpus with passes inside its compilation: what came of it.

    python -m tests.runtime.install_table                    CPU, this process
    python -m tests.runtime.install_table --processes=2      CPU, two processes
    python -m tests.runtime.install_table --gpu              a GPU that is not there
    python -m tests.runtime.install_table moe --variants=plain,scanned

For each program x stage x pipeline: did the passes fire and change something, did XLA
accept it, are the results the same to the last bit. Variants: `plain`, `donated` (all
arguments donated), `scanned` (two rounds of a scan around it). Minutes; a sample of it
is tests/runtime/test_install_corpus.py.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import jax
import numpy as np

from hlo_passes import HloError, runtime

PROGRAMS: Final = pathlib.Path(__file__).parents[2] / "corpus" / "programs"
DEVICES: Final = 8
STAGES: Final = ("pre-scheduler", "post-scheduler")
VARIANTS: Final = ("plain", "donated", "scanned")
TARGET, TOPOLOGY = "h100_sxm", "1x1x8"

COMBINER: Final = (
    "gpu-all-gather-combiner,gpu-all-reduce-combiner,gpu-reduce-scatter-combiner,"
    "collective-permute-combiner"
)
#: CPUs have synchronous collectives: what is to be scheduled is made asynchronous
#: first, and synchronous again after the passes.
CPU_PIPELINES: Final = {
    "combiner": COMBINER,
    "scheduler": "async-collective-creator,latency-hiding-scheduler",
    "streams": (
        "async-collective-creator,latency-hiding-scheduler,execution-stream-assignment"
    ),
}
GPU_PIPELINES: Final = {
    "combiner": COMBINER,
    "scheduler": "latency-hiding-scheduler",
    "streams": "execution-stream-assignment",
}

_RANK, _ADDRESS = "HLO_PASSES_TABLE_RANK", "HLO_PASSES_TABLE_ADDRESS"

Program = Callable[[Any], tuple[Any, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Row:
    """One program, variant, stage and pipeline.

    Attributes:
        fired: modules in which the passes ran.
        changed: modules they changed.
        problem: what XLA or a pass had against it, '' for nothing.
        same_bits: whether results equal those without passes; None: nothing ran.
    """

    program: str
    variant: str
    stage: str
    pipeline: str
    fired: int
    changed: int
    problem: str
    same_bits: bool | None


def programs(names: Sequence[str] = ()) -> dict[str, Program]:
    """The functions of corpus/programs by name; all, or those named."""
    found: dict[str, Program] = {}
    for file in sorted(PROGRAMS.glob("*.py")):
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            own = inspect.isfunction(value) and value.__module__ == file.stem
            takes = [*inspect.signature(value).parameters] if own else []
            if takes == ["devices"] and not name.startswith("_"):
                found[name] = value
    return {n: f for n, f in found.items() if not names or n in names}


def filled(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays in place of abstract arguments; the same in every process."""
    generator = np.random.default_rng(0)

    def one(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        if np.issubdtype(leaf.dtype, np.integer):
            values = generator.integers(0, 4, leaf.shape).astype(leaf.dtype)
        else:
            values = generator.uniform(-1, 1, leaf.shape).astype(leaf.dtype)
        return jax.make_array_from_callback(
            leaf.shape, leaf.sharding, lambda index: values[index]
        )

    return jax.tree.map(one, arguments)


def as_variant(jitted: Any, variant: str, count: int) -> Any:
    """The program as it is, with all arguments donated, or inside a scan."""
    if variant == "donated":
        return jax.jit(lambda *a: jitted(*a), donate_argnums=tuple(range(count)))
    if variant == "scanned":

        def scanned(*arguments: Any) -> Any:
            def scale(leaf: Any, by: Any) -> Any:
                floating = np.issubdtype(leaf.dtype, np.floating)
                return leaf * by.astype(leaf.dtype) if floating else leaf

            def round_(carry: Any, by: Any) -> tuple[Any, Any]:
                return carry, jitted(*jax.tree.map(lambda a: scale(a, by), arguments))

            factors = np.array([1.0, 0.5], np.float32)
            return jax.lax.scan(round_, 0, factors)[1]

        return jax.jit(scanned)
    return jitted


def bits(results: Any) -> list[bytes]:
    """What this process holds of the results."""
    return [
        np.asarray(shard.data).tobytes()
        for leaf in jax.tree.leaves(results)
        for shard in leaf.addressable_shards
    ]


def cpu_rows(name: str, program: Program, variants: Sequence[str]) -> list[Row]:
    """One program on CPUs, with every stage and pipeline."""
    rows: list[Row] = []
    for variant in variants:
        jitted, arguments = program(np.array(jax.devices()[:DEVICES]))
        run = as_variant(jitted, variant, len(arguments))
        before = bits(run(*filled(arguments)))
        for stage in STAGES:
            for title, pipeline in CPU_PIPELINES.items():
                problem, same = "", None
                with runtime.install(pipeline, stage=stage) as installed:
                    try:
                        same = bits(run(*filled(arguments))) == before
                    except jax.errors.JaxRuntimeError as refused:
                        problem = str(refused).strip().splitlines()[-1]
                rows.append(
                    Row(
                        name,
                        variant,
                        stage,
                        title,
                        installed.fired,
                        installed.changed,
                        problem,
                        same,
                    )
                )
    return rows


def gpu_rows(name: str, program: Program) -> list[Row]:
    """One program for a GPU that is not there: compiled, not run."""
    from hlo_passes.runtime.capture import lower_to_the_end
    from hlo_passes.runtime.gpu_aot import gpu_devices

    rows: list[Row] = []
    jitted, arguments = program(np.array(gpu_devices(TARGET, TOPOLOGY)))
    _, stops = lower_to_the_end(jitted, *arguments, target=TARGET, topology=TOPOLOGY)
    for stage in STAGES:
        for title, pipeline in GPU_PIPELINES.items():
            with runtime.install(
                pipeline, stage=stage, platforms="cuda", multiprocess="off"
            ) as installed:
                try:
                    _, problem = lower_to_the_end(
                        jitted, *arguments, target=TARGET, topology=TOPOLOGY
                    )
                except HloError as refused:
                    problem = str(refused)
            problem = "" if problem == stops else problem.splitlines()[0]
            if installed.failures:
                problem = str(installed.failures[0]).splitlines()[0]
            rows.append(
                Row(
                    name,
                    "plain",
                    stage,
                    title,
                    installed.fired,
                    installed.changed,
                    problem,
                    None,
                )
            )
    return rows


def summary(title: str, rows: Sequence[Row]) -> str:
    """The table of the note, and every row in which something went wrong."""
    lines = [
        f"{title}, jax {jax.__version__}",
        "| variant | stage | passes | programs | fired | changed | accepted | same bits |",
        "|---|---|---|---|---|---|---|---|",
    ]
    keys = dict.fromkeys((r.variant, r.stage, r.pipeline) for r in rows)
    for key in keys:
        group = [r for r in rows if (r.variant, r.stage, r.pipeline) == key]
        ran = [r for r in group if r.same_bits is not None]
        same = f"{sum(bool(r.same_bits) for r in ran)}/{len(ran)}" if ran else "-"
        lines.append(
            f"| {' | '.join(key)} | {len(group)} | {sum(r.fired > 0 for r in group)} | "
            f"{sum(r.changed > 0 for r in group)} | "
            f"{sum(not r.problem for r in group)} | {same} |"
        )
    for row in rows:
        if row.problem or row.same_bits is False:
            what = row.problem or "other bits"
            where = f"{row.program} {row.variant} {row.stage} {row.pipeline}"
            lines.append(f"{where}: {what}")
    return "\n".join(lines)


def _join_processes(count: int) -> bool:
    """Start the other processes and wait, or be one of them; whether to go on."""
    if _RANK in os.environ:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(os.environ[_ADDRESS], count, int(os.environ[_RANK]))
        return True
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    flag = f"--xla_force_host_platform_device_count={DEVICES // count}"
    started = []
    for rank in range(count):
        environment = os.environ | {
            _RANK: str(rank),
            _ADDRESS: address,
            "XLA_FLAGS": flag,
            "JAX_PLATFORMS": "cpu",
        }
        command = [sys.executable, "-m", "tests.runtime.install_table", *sys.argv[1:]]
        output = None if rank == 0 else subprocess.DEVNULL
        started.append(subprocess.Popen(command, env=environment, stdout=output))
    sys.exit(max(process.wait() for process in started))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.gpu:
        title = "GPU that is not there"
    elif options.processes > 1:
        _join_processes(options.processes)
        title = f"CPU, {options.processes} processes"
    else:
        runtime.emulate(DEVICES)
        title = "CPU, one process"
    rows: list[Row] = []
    for name, program in programs(options.programs).items():
        if options.gpu:
            rows += gpu_rows(name, program)
        else:
            rows += cpu_rows(name, program, options.variants.split(","))
        print(f"{name}: {len(rows)}", file=sys.stderr)
    print(summary(title, rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))


if __name__ == "__main__":
    main()
