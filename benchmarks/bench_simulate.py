"""Simulating large scheduled modules: processor seconds of each part.

    python -m benchmarks.bench_simulate [MODULE.hlo.gz COSTS.json.gz] [--repeat=5]

`simulate` makes the whole timeline (prices, events, bounds, causes, memory curve);
`events` runs the step alone; `trace` and `report` write it down. Without arguments a
synthetic step of 20,000 fusions and 400 collectives is simulated, and modules recorded
beside the checkout where there are some.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import hlo_passes
from benchmarks.modules import SHARED
from hlo_passes.files import read_module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.base import Estimator
from hlo_passes.scheduler.estimators.table import TableEstimator, read_costs
from hlo_passes.scheduler.hardware.machine import machine_of
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.engine import Engine
from hlo_passes.scheduler.simulation.prices import Prices
from hlo_passes.scheduler.simulation.program import ProgramBuilder
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.surroundings import Surroundings

RECORDED = SHARED / "golden"
FUSIONS = 20_000
FUSIONS_PER_COLLECTIVE = 50
DEFAULT_REPEAT = 5


def synthetic_step() -> tuple[hlo_passes.Module, Estimator]:
    """A chain of fusions, every fiftieth followed by an all-reduce in flight."""
    lines = ["  %x = f32[1024]{0} parameter(0)"]
    last, flying = "x", ""
    latencies, costs = {}, {}
    for k in range(FUSIONS):
        lines.append(f"  %op.{k} = f32[1024]{{0}} negate(%{last})")
        last = f"op.{k}"
        costs[last] = 1.0 + k % 7
        if k % FUSIONS_PER_COLLECTIVE:
            continue
        if flying:
            lines.append(
                f"  %{flying}.done = f32[1024]{{0}} all-reduce-done(%{flying})"
            )
        flying = f"reduce.{k}"
        latencies[flying] = 150.0 + k % 113
        lines.append(
            f"  %{flying} = f32[1024]{{0}} all-reduce-start(%{last}), "
            f"channel_id={k + 1}, replica_groups={{{{0,1}}}}, "
            "use_global_device_ids=true, to_apply=%add"
        )
    lines.append(f"  ROOT %r = f32[1024]{{0}} all-reduce-done(%{flying})")
    body = "\n".join(lines)
    text = (
        "HloModule chain, is_scheduled=true, num_partitions=2\n\n"
        "%add (a: f32[], b: f32[]) -> f32[] {\n  %a = f32[] parameter(0)\n"
        "  %b = f32[] parameter(1)\n  ROOT %sum = f32[] add(%a, %b)\n}\n\n"
        f"ENTRY %main (x: f32[1024]) -> f32[1024] {{\n{body}\n}}\n"
    )
    return hlo_passes.parse(text), TableEstimator(costs, latencies)


def _seconds(work: Callable[[], object], repeat: int) -> float:
    """Median processor seconds."""
    taken = []
    for _ in range(repeat):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return statistics.median(taken)


def measure(
    label: str, module: hlo_passes.Module, estimator: Estimator, repeat: int
) -> None:
    """One line of the table."""
    rules, topology = Rules(), machine_of(module, Pricing())
    timeline = simulate_with(module, "h100_sxm", topology, estimator, rules)
    seconds = {
        "simulate": _seconds(
            lambda: simulate_with(module, "h100_sxm", topology, estimator, rules),
            repeat,
        ),
        "events": _seconds(lambda: _events(module, topology, estimator), repeat),
        "trace": _seconds(lambda: json.dumps(timeline.to_perfetto()), repeat),
        "report": _seconds(timeline.to_text, repeat),
    }
    times = "  ".join(f"{name} {value:6.3f}" for name, value in seconds.items())
    print(f"{module.instruction_count:7d}  {times}  {label}")


def _events(
    module: hlo_passes.Module, topology: Topology, estimator: Estimator
) -> None:
    rules = Rules()
    surroundings = Surroundings(module, topology, rules)
    builder = ProgramBuilder(Prices(estimator), surroundings, rules)
    Engine(builder, rules).entry(module.entry)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="MODULE COSTS")
    parser.add_argument("--repeat", type=int, default=DEFAULT_REPEAT)
    arguments = parser.parse_args()
    print("instructions; processor seconds, medians")
    if arguments.files:
        module, costs = arguments.files
        measure(module, read_module(module), read_costs(costs), arguments.repeat)
        return
    measure("synthetic chain", *synthetic_step(), arguments.repeat)
    for folder in sorted(RECORDED.glob("*/sol")):
        module = read_module(str(folder / "latency-hiding-scheduler.after.hlo.gz"))
        costs = read_costs(str(folder / "costs.json.gz"))
        measure(folder.parent.name, module, costs, arguments.repeat)


if __name__ == "__main__":
    main()
