"""Hand schedules of ours to XLA's GPU back end: how many it takes (jax 0.12).

    python corpus/hand_over.py                  # all programs, held-out ones too
    python corpus/hand_over.py moe --topology=1x2x8 --pipeline=improved

Every program is compiled for GPUs that are not there with each of `PIPELINES` at
`post-scheduler`. Counted are schedules accepted, and among them those that are
another than XLA's own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from record_schedules import TOPOLOGIES, inputs

from hlo_passes.errors import HloError
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.handed_over import compile_alone, hand_over

SCHEDULER = "latency-hiding-scheduler"
PIPELINES = {
    "default": SCHEDULER,
    "overlap 4": f"{SCHEDULER}{{parallel-collective-overlap-limit=4}}",
    "start early": f"{SCHEDULER}{{parallel-collective-overlap-limit=4,"
    "collective-start-as-early-as-possible=true}",
    "coarse": f"{SCHEDULER}{{estimator=gpu-approximate}}",
    "two rules": f"{SCHEDULER}{{rules='kScheduleDone kOriginalOrder'}}",
    "improved": "schedule-improver",
    "improved, overlap 4": f"{SCHEDULER}{{parallel-collective-overlap-limit=4}},"
    "schedule-improver{parallel-collective-overlap-limit=4}",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--topology", choices=TOPOLOGIES)
    parser.add_argument("--pipeline", action="append", choices=PIPELINES)
    parser.add_argument("--target", default="h100_sxm")
    options = parser.parse_args()
    if options.topology is None:
        # Each has another number of devices, which a process can emulate only once.
        commands = ([*sys.orig_argv, f"--topology={each}"] for each in TOPOLOGIES)
        return max(subprocess.run(each, check=False).returncode for each in commands)
    topology = options.topology
    accepted = different = stopped = refused = 0
    for name, source in inputs(*options.programs).items():
        if ".py:" not in source:
            continue
        try:
            alone = compile_alone(
                source, Pricing(target=options.target, topology=topology)
            )
        except HloError as problem:
            print(f"{name} {topology}: XLA alone refuses: {problem}", flush=True)
            continue
        for label in options.pipeline or PIPELINES:
            told = f"{name} {topology} {label}"
            try:
                both = hand_over(alone, passes=PIPELINES[label])
            except HloError as problem:
                refused += 1
                print(f"{told}: {problem}", flush=True)
                continue
            if both.stops:
                stopped += 1
                print(f"{told}: not judged: {both.stops}", flush=True)
                continue
            accepted += 1
            different += both.moved > 0
            print(f"{told}: {both.moved} of {both.common} moved", flush=True)
    print(
        f"{accepted} accepted, {different} of them another order than XLA's; "
        f"{refused} refused, {stopped} not judged"
    )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
