"""Random scheduled modules through the improver: the same bits on emulated devices.

    python -m tests.runtime.improved_schedules [--programs=1000] [--seed=0]
        [--seconds=N] [--failures=FOLDER]

Each program (tests/spmd_modules.py) is in a random order, or scheduled by a random
policy. The improver may have as much in flight and as much memory as it wants, so that
it changes as many orders as possible. Both schedules run on as many devices as the
program has; every bit must be the same.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import random
import sys
import time
from typing import Final

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.runtime.comparison import compare_outputs
from hlo_passes.runtime.devices import topology_of
from hlo_passes.runtime.executable import load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from tests.scheduler.checker.scheduled_modules import module_to_schedule, pipeline

#: Devices of the programs.
DEVICES: Final = (2, 4, 8)
_POLICIES: Final = ("released", "two-together", "start-early", "by-structure")
_IMPROVER: Final = (
    "schedule-improver{effort=0.05,rounds=1,min-gain=0,memory-cap=1000000000,"
    "parallel-collective-overlap-limit=99,parallel-async-compute-limit=99}"
)


def schedules(seed: int) -> tuple[Module, Module]:
    """A scheduled module, and what the improver made of it."""
    draw = random.Random(seed)
    module = module_to_schedule(draw, draw.choice(DEVICES))
    if not module.is_scheduled:
        pipeline(draw.choice(_POLICIES)).run(module)
    improved = module.clone()
    hlo_passes.Pipeline.parse(_IMPROVER).run(improved)
    hlo_passes.verify(improved)
    return module, improved


def have_same_bits(module: Module, improved: Module, seed: int) -> bool:
    """Whether both compute the same on emulated devices."""
    plain = plain_module(module)
    first = load_plain(plain, module, *topology_of(module))
    second = load_plain(plain_module(improved), improved, *topology_of(improved))
    inputs = seeded_inputs(plain, module, device_count=first.device_count, seed=seed)
    return compare_outputs(first(*inputs), second(*inputs)).bitwise_equal


def main() -> int:
    """Run the campaign; 1 if a program computes something else."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.runtime.improved_schedules",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--failures", type=pathlib.Path, metavar="FOLDER")
    options = parser.parse_args()
    from hlo_passes import runtime

    runtime.emulate(max(DEVICES))
    began = time.monotonic()
    count = changed = failed = 0
    for seed in range(options.seed, options.seed + options.programs):
        if time.monotonic() - began > options.seconds:
            break
        count += 1
        module, improved = schedules(seed)
        if improved.to_text() == module.to_text():
            continue
        changed += 1
        if have_same_bits(module, improved, seed):
            continue
        failed += 1
        print(f"seed {seed}: other bits", flush=True)
        if options.failures:
            options.failures.mkdir(parents=True, exist_ok=True)
            (options.failures / f"{seed}.hlo").write_text(module.to_text())
    print(f"{count} programs, {changed} with another order, {failed} with other bits")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
