"""What passes inside a compilation cost, beside XLA's own CPU compile time.

    python -m benchmarks.bench_install                 the corpus's programs
    python -m benchmarks.bench_install --module=m.hlo  a module that `runtime.load` runs
    python -m benchmarks.bench_install --module=big.hlo --devices=128
    python -m benchmarks.bench_install moe fsdp_mlp --repeat=5

CPU seconds of the process, the least of `--repeat` rounds: of the compilation (XLA
compiles in several threads, none of which runs beside a pass), and of the callback on
the module that XLA hands over, with jaxlib's writing and reading of that module, which
a callback brings with it. The first use of a pass is left out.
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
from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

from hlo_passes import Module, parse, runtime
from hlo_passes.ir.shapes import array_shape
from hlo_passes.runtime import jax_private
from tests.modules import read_text
from tests.runtime.install_table import CPU_PIPELINES, DEVICES, programs

STAGES = {
    "combiner": "pre-scheduler",
    "scheduler": "post-scheduler",
    "streams": "post-scheduler",
}


#: Attention of transformer_engine, in the llama modules.
_GPU_KERNELS = '"te_fused_attn'

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


def handed_over(program: Any, stage: str) -> bytes:
    """The program's module as XLA hands it to a callback."""
    found: list[bytes] = []
    place = {"name": "bench-install", "stage": stage, "platform": "cpu"}
    jax_private.register_transformation(found.append, **place)
    try:
        compile_seconds(program, 1)
    finally:
        jax_private.clear_transformation(**place)
    return max(found, key=len)


def through_jaxlib(data: bytes) -> None:
    """XLA's own part: a module is written for the callback, and its answer read."""
    _hlo.HloModule.from_serialized_hlo_module_proto(
        data
    ).as_serialized_hlo_module_proto()


def bench_programs(names: Sequence[str], repeat: int) -> None:
    """Print a line for each program of the corpus, and for all."""
    print(f"{'program':24} {'XLA ms':>8}" + "".join(f"{t:>20}" for t in STAGES))
    totals = dict.fromkeys(("XLA", *STAGES), 0.0)
    for name, program in programs(names).items():
        alone = compile_seconds(program, repeat)
        totals["XLA"] += alone
        cells = []
        for title, stage in STAGES.items():
            data = handed_over(program, stage)
            with runtime.install(CPU_PIPELINES[title], stage=stage) as installed:
                call = functools.partial(installed.transformed, "cpu", data)
                call()
                own = least(repeat, call)
            own += least(repeat, functools.partial(through_jaxlib, data))
            totals[title] += own
            cells.append(f"{1e3 * own:12.1f} {100 * own / alone:6.1f}%")
        print(f"{name:24} {1e3 * alone:8.1f}" + "".join(cells), flush=True)
    shares = "".join(f"{100 * totals[t] / totals['XLA']:19.1f}%" for t in STAGES)
    print(f"{'all':24} {1e3 * totals['XLA']:8.1f}{shares}")


def replace_unknown_calls(module: Module) -> int:
    """Put zeros in the place of kernels that only GPUs have; how many there were."""
    calls = [
        i
        for c in module.computations
        for i in c.instructions
        if i.attributes.get("custom_call_target", "").startswith(_GPU_KERNELS)
    ]
    for call in calls:
        owner, parts = call.computation, []
        for shape in call.shape.elements:
            scalar = array_shape(shape.element_type)
            zero = owner.new("constant", scalar, literal="0", before=call)
            attributes = {"dimensions": "{}"}
            parts.append(owner.new("broadcast", shape, [zero], attributes, before=call))
        whole = owner.new("tuple", call.shape, parts, before=call)
        owner.replace_uses(call, whole)
        owner.remove(call)
    return len(calls)


def bench_module(file: pathlib.Path, repeat: int) -> None:
    """Print what the passes take on one module, beside its compilation."""
    module = parse(read_text(file), filename=file.name)
    replaced = replace_unknown_calls(module)
    data = module.to_proto()
    started = time.process_time()
    runtime.load(module)
    alone = time.process_time() - started
    print(f"{file.name}: {module.instruction_count} instructions, XLA {alone:.2f} s")
    if replaced:
        print(f"  {replaced} calls of transformer_engine replaced by zeros")
    for title, stage in STAGES.items():
        with runtime.install(CPU_PIPELINES[title], stage=stage) as installed:
            call = functools.partial(installed.transformed, "cpu", data)
            call()
            seconds = least(repeat, call)
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--module", type=pathlib.Path, action="append", default=[])
    parser.add_argument(
        "--devices", type=int, default=DEVICES, help="as many as the modules ask for"
    )
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    runtime.emulate(options.devices if options.module else DEVICES)
    if options.module:
        for file in options.module:
            bench_module(file, options.repeat)
    else:
        bench_without_collectives(options.repeat)
        bench_programs(options.programs, options.repeat)


if __name__ == "__main__":
    main()
