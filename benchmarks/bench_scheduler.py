"""The latency-hiding scheduler: real modules, and how it grows.

    python -m benchmarks.bench_scheduler [--largest=1000000] [--oracle=PYTHON]

`--oracle` names a Python with jax 0.10.2 and its CUDA plug-in (no GPU; 0.12's refuses
the module): XLA compiles llama31_8b there, and its seconds are the time between its
dumps before and after the pass, the writing of the second one included. Made-up
modules: `layers` has few candidates at a time, `wide` thousands (as many chains side by
side as `--chains` says), `tight` the same under a memory limit. Changed lists of rules
are held against XLA's list. Seconds are of the pass
alone: no reading, no verifying.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import hlo_passes
from benchmarks.modules import REPOSITORY, SHARED, read_text
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.approximate import GpuApproximateEstimator
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.choice import make_estimator
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.rule_list import parse_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.memory.memory_limit import scheduler_memory_limit_bytes

#: Instructions between two collectives of a chain.
_PERIOD = 24
_SHAPE = "f32[128]{0}"
_BYTES = 512
_SCHEDULED = "latency-hiding-scheduler.before.hlo.gz"
_COMPARED = "llama31_8b_bf16_1x8"
#: Lists of rules, as a pipeline spells them; the first one is XLA's.
_LISTS = (
    "",
    "-async-depth",
    "-kStartAtZeroDepth",
    "-avoid-waste -creates-more-ready-nodes",
    "async-depth<less-stall",
    "schedule-done less-stall original-order",
)
_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


def chains_text(instructions: int, chains: int) -> str:
    """A scheduled module: chains of work with an all-reduce now and then, all read."""
    lines = [
        "HloModule chains, is_scheduled=true, num_partitions=8",
        "",
        "%add (x: f32[], y: f32[]) -> f32[] {",
        "  %x = f32[] parameter(0)",
        "  %y = f32[] parameter(1)",
        "  ROOT %sum = f32[] add(%x, %y)",
        "}",
        "",
        "ENTRY %main (p: f32[128]) -> f32[128] {",
        f"  %p = {_SHAPE} parameter(0)",
    ]
    ends = ["p"] * chains
    made, k = 0, 0
    while made < instructions - chains - 1:
        chain, step = k % chains, k // chains
        source, name = ends[chain], f"v{k}"
        if step % _PERIOD == 1 + chain * 7 % (_PERIOD - 1):
            lines.append(
                f"  %start{k} = {_SHAPE} all-reduce-start(%{source}), "
                "replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add"
            )
            lines.append(f"  %{name} = {_SHAPE} all-reduce-done(%start{k})")
            made += 2
        else:
            opcode = ("negate", "exponential", "tanh")[k % 3]
            lines.append(f"  %{name} = {_SHAPE} {opcode}(%{source})")
            made += 1
        ends[chain] = name
        k += 1
    shapes = ", ".join([_SHAPE] * chains)
    operands = ", ".join(f"%{end}" for end in ends)
    lines.append(f"  %all = ({shapes}) tuple({operands})")
    lines.append(f"  ROOT %r = {_SHAPE} get-tuple-element(%all), index=0")
    lines.append("}")
    return "\n".join(lines) + "\n"


def seconds_of(
    module: Module,
    estimator: Estimator,
    settings: SchedulerSettings,
    repeat: int,
    rules: str = "",
) -> tuple[float, float]:
    """Median seconds of scheduling the present order: by the clock, of the CPU."""
    base = {c: c.instructions for c in module.computations}
    clock, processor = [], []
    for _ in range(repeat):
        for computation, order in base.items():
            computation.set_order(order)
        gc.collect()
        started, used = time.perf_counter(), time.process_time()
        schedule_module(module, estimator, settings, rules=parse_rules(rules))
        clock.append(time.perf_counter() - started)
        processor.append(time.process_time() - used)
    return statistics.median(clock), statistics.median(processor)


def xla_seconds(python: str, repeat: int) -> float:
    """Median seconds of XLA's own pass on llama31_8b, by the times of its dumps."""
    return statistics.median(_xla_seconds_once(python) for _ in range(repeat))


def _xla_seconds_once(python: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "input": str(SHARED / "corpus" / f"{_COMPARED}.hlo.gz"),
            "target": str(REPOSITORY / "scheduler/data/gpu_targets/h100_sxm.txtpb"),
            "device_memory_bytes": None,
            "topology": "1x1x8",
            "options": {
                "xla_dump_to": folder,
                "xla_dump_hlo_as_text": True,
                "xla_dump_hlo_pass_re": "latency-hiding-scheduler",
                "xla_gpu_autotune_level": 0,
            },
        }
        child = subprocess.run(
            [python, str(REPOSITORY / "corpus" / "gpu_child.py")],
            input=json.dumps(job) + "\n",
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
        )
        dumps = sorted(pathlib.Path(folder).glob("*latency-hiding-scheduler*.txt"))
        before = [f for f in dumps if ".before_latency-hiding-scheduler." in f.name]
        after = [f for f in dumps if ".after_latency-hiding-scheduler." in f.name]
        if not after:
            raise SystemExit(f"{python} did not schedule it: {child.stderr[-400:]}")
        return after[0].stat().st_mtime - before[0].stat().st_mtime


def real_modules() -> Iterator[tuple[str, Module, Estimator, SchedulerSettings]]:
    """Public modules with XLA's costs, where the folder beside the checkout is."""
    for file in sorted((SHARED / "golden").glob(f"*/sol/{_SCHEDULED}")):
        module = hlo_passes.parse(read_text(file), filename=str(file))
        costs = str(file.parent / "costs.json.gz")
        limit = scheduler_memory_limit_bytes(module, target("h100_sxm").memory_bytes)
        yield (
            file.parent.parent.name,
            module,
            make_estimator("table", Pricing(costs=costs)),
            SchedulerSettings(memory_limit_bytes=limit),
        )


def _measure_real(repeat: int, of_xla: float | None, out: Callable) -> None:
    out(f"{'module':28} {'instructions':>12} {'seconds':>8} {'CPU s':>8} of XLA\n")
    for name, module, estimator, settings in real_modules():
        seconds, processor = seconds_of(module, estimator, settings, repeat)
        ratio = ""
        if of_xla and name == _COMPARED:
            ratio = f"{seconds / of_xla:.2f}"
        out(f"{name:28} {module.instruction_count:12,} {seconds:8.3f} ")
        out(f"{processor:8.3f} {ratio:>6}\n")


def _measure_growth(chains: int, largest: int, repeat: int, out: Callable) -> None:
    kinds = {
        "layers": (8, None),
        "wide": (chains, None),
        "tight": (chains, chains * _BYTES),
    }
    out(f"\n{'graph':8} {'instructions':>12} {'seconds':>8} {'CPU s':>8} us each\n")
    for kind, (width, limit) in kinds.items():
        for count in _SIZES:
            if count > largest or width * 4 > count:
                continue
            module = hlo_passes.parse(chains_text(count, width))
            settings = SchedulerSettings(memory_limit_bytes=limit)
            costs = GpuApproximateEstimator()
            seconds, processor = seconds_of(module, costs, settings, repeat)
            out(f"{kind:8} {count:12,} {seconds:8.2f} {processor:8.2f} ")
            out(f"{processor / count * 1e6:7.1f}\n")


def _measure_lists(chains: int, repeat: int, out: Callable) -> None:
    """Changed lists of rules, as multiples of the time with XLA's list."""
    count = 10_000
    out(f"\n{'rules':40} {'chains':>7} {'CPU s':>8} of XLA's list\n")
    for width in (4, chains // 4, chains):
        module = hlo_passes.parse(chains_text(count, width))
        own = 0.0
        for rules in _LISTS:
            _, processor = seconds_of(
                module, GpuApproximateEstimator(), SchedulerSettings(), repeat, rules
            )
            own = own or processor
            out(f"{rules or 'those of XLA':40} {width:7,} {processor:8.2f} ")
            out(f"{processor / own:6.2f}\n")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000)
    parser.add_argument("--chains", type=int, default=2_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--oracle", metavar="PYTHON", help="with jax's CUDA plug-in")
    arguments = parser.parse_args()
    of_xla = None
    if arguments.oracle:
        of_xla = xla_seconds(arguments.oracle, arguments.repeat)
        sys.stdout.write(f"XLA's pass on {_COMPARED}: {of_xla:.3f} s\n\n")
    _measure_real(arguments.repeat, of_xla, sys.stdout.write)
    _measure_lists(arguments.chains, arguments.repeat, sys.stdout.write)
    _measure_growth(
        arguments.chains, arguments.largest, arguments.repeat, sys.stdout.write
    )


if __name__ == "__main__":
    main()
