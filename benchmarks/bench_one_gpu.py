"""Predicted beside measured, on one GPU: 29 programs, run there and priced anywhere.

    python -m benchmarks.bench_one_gpu run --out=DIR [NAME...]          needs jax, a GPU
    python -m benchmarks.bench_one_gpu compare DIR --target=h100_sxm    anywhere

`run` compiles each program, times it by the clock (median of seven rounds without a
wait between steps), traces five steps and keeps the HLO. Without CUDA graphs, a trace
names the instruction of every kernel; `--graphs` leaves them in. `compare` prints a row
for each program, and for each kind of instruction how far its prices are off.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, Final

_GRAPHS_OFF: Final = "--xla_gpu_enable_command_buffer="
_ROUNDS: Final = 7
_TRACED: Final = 5
#: A round takes about this long, and has that many steps.
_ROUND_SECONDS: Final = 0.2
_FEWEST, _MOST = 3, 200
#: A kernel that takes less is mostly its launch.
_LEAST_US: Final = 5.0
_FACTOR: Final = 1.3


def run(out: pathlib.Path, names: list[str]) -> int:
    """Compile, time and trace programs; files go into `out`."""
    import jax

    from benchmarks.one_gpu_programs import PROGRAMS

    out.mkdir(parents=True, exist_ok=True)
    device = jax.devices()[0]
    found: dict[str, Any] = {
        "device": device.device_kind,
        "jax": jax.__version__,
        "flags": os.environ.get("XLA_FLAGS", ""),
        "us": {},
    }
    print(device.device_kind, "jax", jax.__version__, flush=True)
    for name in names or PROGRAMS:
        function, arguments = PROGRAMS[name]()

        def named(*given: Any, call: Callable[..., Any] = function) -> Any:
            return call(*given)

        named.__name__ = name
        compiled = jax.jit(named).lower(*arguments).compile()
        us = _timed(compiled, arguments)
        found["us"][name] = us
        print(f"{name:24} {us:10.1f} us", flush=True)
        folder = out / "traces" / name
        with jax.profiler.trace(str(folder)):
            jax.block_until_ready([compiled(*arguments) for _ in range(_TRACED)])
        (trace,) = folder.rglob("*.xplane.pb")
        _pack(out / f"{name}.xplane.pb.gz", trace.read_bytes())
        _pack(out / f"{name}.hlo.gz", str(compiled.as_text()).encode())
        (out / "results.json").write_text(json.dumps(found, indent=1))
    return 0


def _timed(compiled: Any, arguments: Any) -> float:
    """Time of a step by the clock, us."""
    import jax

    for _ in range(_FEWEST):
        jax.block_until_ready(compiled(*arguments))
    began = time.perf_counter()
    jax.block_until_ready(compiled(*arguments))
    steps = int(_ROUND_SECONDS / (time.perf_counter() - began))
    steps = min(_MOST, max(_FEWEST, steps))
    rounds = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        result = None
        for _ in range(steps):
            result = compiled(*arguments)
        jax.block_until_ready(result)
        rounds.append(time.perf_counter() - began)
    return statistics.median(rounds) / steps * 1e6


def _pack(file: pathlib.Path, content: bytes) -> None:
    file.write_bytes(gzip.compress(content, mtime=0))


def compare(folder: pathlib.Path, target: str, *, extended: bool) -> int:
    """Print what is predicted of what was measured."""
    from hlo_passes import scheduler
    from hlo_passes.files import read_module

    results = json.loads((folder / "results.json").read_text())
    print(f"{results['device']}, jax {results['jax']}; priced as {target}\n")
    print("| program | clock, us | kernels, us | predicted, us | of the kernels |")
    print("| --- | --- | --- | --- | --- |")
    ratios: dict[str, list[float]] = {}
    for name, us in results["us"].items():
        module = read_module(str(folder / f"{name}.hlo.gz"))
        on = {"target": target, "extended": extended}
        predicted = scheduler.simulate(module, **on)
        trace = folder / f"{name}.xplane.pb.gz"
        overlay = scheduler.simulate(module, measured=str(trace), **on).overlay
        assert overlay is not None
        step = overlay.measured.step_us
        share = f"{predicted.step_time_us / step:.2f}"
        if overlay.measured.lost:
            share += f" ({100 * overlay.measured.lost:.0f}% in graphs)"
        print(
            f"| {name} | {us:,.1f} | {step:,.1f} | {predicted.step_time_us:,.1f} "
            f"| {share} |"
        )
        for row in overlay.rows:
            if row.measured_us < _LEAST_US:
                continue
            ratio = 0.0
            if row.predicted_us is not None:
                ratio = row.predicted_us / row.measured_us
            ratios.setdefault(row.kind, []).append(ratio)
    print(f"\nEach instruction of {_LEAST_US:.0f} us or more: predicted / measured\n")
    print("| kind | count | no price | 10th | median | 90th | within a factor of 1.3 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kind, all_of_kind in sorted(ratios.items(), key=lambda item: -len(item[1])):
        priced = sorted(r for r in all_of_kind if r > 0.0)
        row = [kind, str(len(all_of_kind)), str(len(all_of_kind) - len(priced))]
        if priced:
            tenths = [priced[round(q * (len(priced) - 1))] for q in (0.1, 0.5, 0.9)]
            near = sum(1 / _FACTOR <= r <= _FACTOR for r in priced) / len(priced)
            row += [*(f"{t:.2f}" for t in tenths), f"{100 * near:.0f}%"]
        print(f"| {' | '.join(row + [''] * (7 - len(row)))} |")
    return 0


def main() -> int:
    """Run or compare, as the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    there = tasks.add_parser("run", help="on the machine with the GPU")
    there.add_argument("names", nargs="*")
    there.add_argument("--out", type=pathlib.Path, required=True)
    there.add_argument("--graphs", action="store_true", help="leave CUDA graphs on")
    here = tasks.add_parser("compare", help="anywhere")
    here.add_argument("folder", type=pathlib.Path)
    here.add_argument("--target", required=True)
    here.add_argument("--extended", action="store_true")
    asked = parser.parse_args()
    if asked.task == "compare":
        return compare(asked.folder, asked.target, extended=asked.extended)
    if not asked.graphs:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} {_GRAPHS_OFF}".strip()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return run(asked.out, asked.names)


if __name__ == "__main__":
    sys.exit(main())
