"""Tuning: the best that the search finds, beside random search.

    python -m benchmarks.bench_tune [--hosts=1] [--budget=40] [PROGRAM ...]

A program is FILE.py:FUNCTION; by default those of `corpus/held_out`, which have real
size. XLA's GPU compiler makes every module (the extra `gpu-aot`). Random search draws
every lever that is not pointless with even chances, so that half of all levers are set.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator, Mapping, Sequence

from hlo_passes.pricing import Pricing
from hlo_passes.runtime.tuning.evaluation import XlaEvaluator
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.memory.footprint import available_bytes
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.choices import choices_for
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.facts import facts_of
from hlo_passes.scheduler.tuning.search import Search
from hlo_passes.scheduler.tuning.store import Store

_PROGRAMS = (
    "docs/tutorial/training.py:step",
    "corpus/held_out/transformer_block.py:transformer_scan",
    "corpus/held_out/experts_training.py:experts_training",
    "corpus/held_out/pipeline_training.py:pipeline_training",
    "corpus/held_out/accumulation_loop.py:accumulation_loop",
)
_HEAD = (
    "| program | GPUs | baseline | best found | levers | bound | evaluations "
    "| seconds | random search |"
)


def drawn(choices: Mapping[str, Sequence[str]], seed: int) -> Iterator[Combination]:
    """Random combinations without end."""
    chance = random.Random(seed)
    while True:
        settings = {
            name: chance.choice(values)
            for name, values in choices.items()
            if chance.random() < 1 / 2
        }
        chosen = Combination.of(settings)
        for name in chosen.levers:
            if not chosen.is_sound(name):
                chosen = chosen.without(name)
        yield chosen


def measure(
    name: str, on: Pricing, budget: int, cache: str, *, seed: int
) -> Sequence[object]:
    """The row of one program."""
    program = Program(name, target=on.target, hosts=on.hosts)
    evaluator = XlaEvaluator(program, Rules(), Store(cache), on=program.on)
    try:
        began = time.monotonic()
        first = evaluator.baseline()
        if first.problem:
            return name, "", first.problem
        module = evaluator.module(Combination())
        facts = facts_of(module, Topology.parse(evaluator.traced.machine))
        choices = choices_for(facts, evaluator.release, is_ordered=bool(first.before))
        limit = available_bytes(target(on.target).memory_bytes)
        search = Search(choices.settings, evaluator, budget, memory_bytes=limit)
        search.run()
        seconds = time.monotonic() - began
        count = len(search.tried)
        # The same number of combinations, drawn.
        blind = Search(choices.settings, evaluator, count, memory_bytes=limit)
        blind.compile_all([Combination()])
        for chosen in drawn(choices.settings, seed):
            if blind.left <= 0:
                break
            blind.compile_all([chosen])
        baseline = search.tried[Combination()]
        best = search.tried[search.best]
        other = blind.tried[blind.best]
        return (
            name.rpartition("/")[2],
            evaluator.traced.machine,
            f"{baseline.step_us:.1f} us",
            f"{best.step_us:.1f} us ({100 * best.change_from(baseline):+.1f}%)",
            search.best.to_text(),
            f"{baseline.bound_us:.1f} us ({baseline.bound_by})",
            count,
            f"{seconds:.0f}",
            f"{other.step_us:.1f} us ({100 * other.change_from(baseline):+.1f}%)",
        )
    finally:
        evaluator.close()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="h100_sxm")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", default="")
    parser.add_argument("programs", nargs="*", default=list(_PROGRAMS))
    arguments = parser.parse_args()
    print(_HEAD)
    print("|---" * (_HEAD.count("|") - 1) + "|")
    on = Pricing(target=arguments.target, hosts=arguments.hosts)
    for name in arguments.programs:
        row = measure(name, on, arguments.budget, arguments.cache, seed=arguments.seed)
        print("| " + " | ".join(map(str, row)) + " |", flush=True)


if __name__ == "__main__":
    main()
