"""Schedules of random modules, boiled down to one digest; equal under any hash seed.

    python -m tests.scheduler.checker.schedule_digest --modules=1000 --hash-seeds=20

Every module is scheduled under `--policies` of the policies, drawn with it. Exit code 1
when two hash seeds give different bytes. With `--hash-seeds=0` the digests of this
process are printed, one per module.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator

import hlo_passes
from tests.modules import REPOSITORY
from tests.scheduler.checker.scheduled_modules import (
    POLICIES,
    module_to_schedule,
    pipeline,
)


def digests(modules: int, policies: int) -> Iterator[str]:
    """A digest per module: of its text and of its schedules."""
    for seed in range(modules):
        draw = random.Random(seed)
        module = module_to_schedule(draw, draw.choice((2, 4, 8)))
        digest = hashlib.sha256(module.to_text().encode())
        for policy in draw.sample(sorted(POLICIES), policies):
            scheduled = module.clone()
            try:
                result = pipeline(policy).run(scheduled)
            except hlo_passes.PassError as refused:
                digest.update(str(refused).encode())
            else:
                digest.update(scheduled.to_text().encode())
                digest.update("\n".join(result.remarks).encode())
        yield digest.hexdigest()


def digests_under(hash_seed: int, modules: int, policies: int) -> list[str]:
    """The same from a process with that hash seed."""
    done = subprocess.run(
        [
            sys.executable, "-m", "tests.scheduler.checker.schedule_digest",
            f"--modules={modules}", f"--policies={policies}", "--hash-seeds=0",
        ],
        env={
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": str(REPOSITORY),
        },
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


def main() -> int:
    """Compare hash seeds, or print this process's digests."""
    parser = argparse.ArgumentParser(description="Schedules under many hash seeds.")
    parser.add_argument("--modules", type=int, default=1000)
    parser.add_argument("--policies", type=int, default=2)
    parser.add_argument("--hash-seeds", type=int, default=20)
    options = parser.parse_args()
    if not options.hash_seeds:
        for digest in digests(options.modules, options.policies):
            sys.stdout.write(f"{digest}\n")
        return 0
    expected = digests_under(1, options.modules, options.policies)
    wrong = 0
    for hash_seed in range(2, options.hash_seeds + 1):
        found = digests_under(hash_seed, options.modules, options.policies)
        differing = [
            k for k, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b
        ]
        wrong += bool(differing)
        sys.stdout.write(
            f"hash seed {hash_seed}: {len(differing)} of {len(found)} modules differ "
            f"{differing[:5] or ''}\n"
        )
        sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
