"""What passes inside a compilation cost, beside XLA's own CPU compile time.

    python -m benchmarks.bench_install                 the corpus's programs
    python -m benchmarks.bench_install --module=m.hlo  a module that `runtime.load` runs
    python -m benchmarks.bench_install moe fsdp_mlp --repeat=5

CPU seconds of the process (XLA compiles in several threads), the least of `--repeat`
rounds, first use of a pass left out. For a program: compilation with the passes minus
compilation without, XLA's own writing and reading of the module included. For a module:
what the callback takes, beside the compilation of the module by `runtime.load`.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import time
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

import runtime
from hlo_passes import parse
from tests.modules import read_text
from tests.runtime.install_table import CPU_PIPELINES, DEVICES, programs

STAGES = {
    "combiner": "pre-scheduler",
    "scheduler": "post-scheduler",
    "streams": "post-scheduler",
}


#: Calls that are timed together where one takes microseconds.
_CALLS = 100


def least(repeat: int, work: Callable[[], Any]) -> float:
    """CPU seconds of the fastest of so many rounds."""
    best = float("inf")
    for _ in range(repeat):
        jax.clear_caches()
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def compile_seconds(program: Any, repeat: int) -> float:
    """Of one program, its tracing and lowering left out."""
    jitted, arguments = program(np.array(jax.devices()[:DEVICES]))
    best = float("inf")
    for _ in range(repeat):
        jax.clear_caches()
        lowered = jitted.lower(*arguments)
        started = time.process_time()
        lowered.compile()
        best = min(best, time.process_time() - started)
    return best


def bench_programs(names: Sequence[str], repeat: int) -> None:
    """Print a line for each program of the corpus, and for all."""
    print(
        "program                    XLA ms   " + "  ".join(f"{t:>16}" for t in STAGES)
    )
    totals = dict.fromkeys(("XLA", *STAGES), 0.0)
    for name, program in programs(names).items():
        alone = compile_seconds(program, repeat)
        totals["XLA"] += alone
        cells = []
        for title, stage in STAGES.items():
            with runtime.install(CPU_PIPELINES[title], stage=stage) as installed:
                inside = compile_seconds(program, repeat)
            own = min((r.seconds for r in installed.reports), default=0.0)
            totals[title] += inside - alone
            cells.append(f"{1e3 * own:6.1f} {100 * (inside - alone) / alone:+8.1f}%")
        print(f"{name:24} {1e3 * alone:8.1f}   " + "  ".join(cells), flush=True)
    shares = "  ".join(f"{100 * totals[t] / totals['XLA']:+15.1f}%" for t in STAGES)
    print(f"{'all':24} {1e3 * totals['XLA']:8.1f}   {shares}")
    print("columns: ms that the callback took, and CPU time added to the compilation")


def bench_module(file: pathlib.Path, repeat: int) -> None:
    """Print what the passes take on one module, beside its compilation."""
    module = parse(read_text(file), filename=file.name)
    data = module.to_proto()
    started = time.process_time()
    runtime.load(module)
    alone = time.process_time() - started
    print(f"{file.name}: {module.instruction_count} instructions, XLA {alone:.2f} s")
    for title, stage in STAGES.items():
        with runtime.install(CPU_PIPELINES[title], stage=stage) as installed:
            seconds = least(repeat, lambda: installed.transformed("cpu", data))
        print(f"  {title:10} {seconds:6.3f} s  {100 * seconds / alone:5.1f}%")


def bench_without_collectives(repeat: int) -> None:
    """Modules that the combiners turn away unread."""
    for size in (10, 1000):

        def chain(x: Any, length: int = size) -> Any:
            for k in range(length):
                x = jax.numpy.sin(x) * k
            return x

        data = runtime.lower(jax.jit(chain), np.float32(1)).to_proto()
        with runtime.install(CPU_PIPELINES["combiner"]) as installed:
            call = functools.partial(installed.transformed, "cpu", data)
            timed = functools.partial(timeit.timeit, call, number=_CALLS)
            seconds = least(repeat, timed) / _CALLS
        print(f"no collectives, {len(data):7} bytes: {1e3 * seconds:.3f} ms")


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--module", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    runtime.emulate(DEVICES)
    if options.module:
        for file in options.module:
            bench_module(file, options.repeat)
    else:
        bench_without_collectives(options.repeat)
        bench_programs(options.programs, options.repeat)


if __name__ == "__main__":
    main()
