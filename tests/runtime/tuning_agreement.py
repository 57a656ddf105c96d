"""Levers of the order: our scheduler on XLA's module, against XLA's own compilation.

    python -m tests.runtime.tuning_agreement [--settings=200] [PROGRAM ...]

Each setting is a program with a combination of overlap limit, early starts, streams,
async compute limit and scheduler memory. Both ways must give the same step, or refuse
the setting for the same reason: two collectives that could wait for each other.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections.abc import Iterator

from hlo_passes.runtime.tuning.evaluation import XlaEvaluator
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.store import Store
from tests.modules import CORPUS, REPOSITORY

#: Two steps that differ by less are the same: six digits of prices.
SAME = 1e-6
_PROGRAMS = (
    f"{REPOSITORY}/docs/tutorial/training.py:step",
    f"{REPOSITORY}/docs/tutorial/fsdp.py:step",
    f"{CORPUS}/held_out/transformer_block.py:transformer_scan",
    f"{CORPUS}/held_out/experts_training.py:experts_training",
    f"{CORPUS}/held_out/accumulation_loop.py:accumulation_loop",
)


def settings() -> list[Combination]:
    """All combinations of the levers that change the order alone, mixed."""
    names = [name for name, lever in LEVERS.items() if lever.scope == "schedule"]
    values = [("", *(c.setting for c in LEVERS[name].settings)) for name in names]
    found = [
        Combination.of({n: v for n, v in zip(names, row, strict=True) if v})
        for row in itertools.product(*values)
    ]
    random.Random(1).shuffle(found)
    return found


def both_ways(
    program: Program, tried: list[Combination]
) -> Iterator[tuple[Combination, Outcome, Outcome]]:
    """Each combination as XLA compiles it, and as our scheduler orders it."""
    evaluator = XlaEvaluator(program, Rules(), Store(""), on=program.on)
    try:
        evaluator.baseline()
        for chosen in tried:
            ((_, compiled),) = evaluator.compiled([chosen])
            own = dict(evaluator.scheduled([chosen])).get(chosen)
            yield chosen, compiled, own or Outcome.failed("not scheduled")
    finally:
        evaluator.close()


def main() -> int:
    """Compare, and tell what differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--settings", type=int, default=200)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("programs", nargs="*", default=list(_PROGRAMS))
    arguments = parser.parse_args()
    share = -(-arguments.settings // len(arguments.programs))
    everything = settings()
    count = equal = refused = 0
    for number, name in enumerate(arguments.programs):
        tried = [
            everything[(number * share + k) % len(everything)] for k in range(share)
        ]
        program = Program(name, hosts=arguments.hosts)
        for chosen, xla, own in both_ways(program, tried):
            count += 1
            if xla.is_done and own.is_done:
                if abs(own.step_us - xla.step_us) <= SAME * xla.step_us:
                    equal += 1
                    continue
            elif xla.problem == own.problem:
                refused += 1
                continue
            print(f"{name}: {chosen.to_text()}: XLA {_told(xla)}, ours {_told(own)}")
    print(
        f"{equal} of {count} settings have the same step, {refused} more are refused "
        "both ways for the same reason"
    )
    return int(equal + refused != count)


def _told(outcome: Outcome) -> str:
    return f"{outcome.step_us:.3f} us" if outcome.is_done else outcome.problem


if __name__ == "__main__":
    sys.exit(main())
