"""Mutate modules for a given time or number of cases.

    python -m tests.fuzz --cases=100000 --seed=1 corpus ../shared/corpus
    python -m tests.fuzz --seconds=30

A case that fails is written to the folder of --failures, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import pathlib
import random
import signal
import sys
import time
import traceback

from tests.fuzz.check import check
from tests.fuzz.mutations import mutate

#: Seeds larger than this are left out: a mutant of a small module says as much.
MAXIMUM_SEED_BYTES = 30_000
#: A case that takes longer is a hang.
CASE_SECONDS = 20


class HangError(Exception):
    """A case took too long."""


def _on_alarm(_signal: int, _frame: object) -> None:
    raise HangError


def load_seeds(paths: list[str]) -> list[str]:
    """Texts of the modules under `paths` that are small enough, in name order."""
    texts = []
    for root in paths:
        for file in sorted(pathlib.Path(root).rglob("*")):
            if file.name.endswith((".hlo", ".hlo.gz", ".txt")) and file.is_file():
                data = file.read_bytes()
                data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
                if len(data) <= MAXIMUM_SEED_BYTES:
                    texts.append(data.decode("utf-8", "replace"))
    return texts


def main() -> int:
    """Run the fuzzer; prints counts of what became of the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", default=["corpus"])
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", default="fuzz-failures")
    arguments = parser.parse_args()
    seeds = load_seeds(arguments.paths)
    if not seeds:
        parser.error("no seeds in " + " ".join(arguments.paths))
    signal.signal(signal.SIGALRM, _on_alarm)
    outcomes: collections.Counter[str] = collections.Counter()
    slowest, failures, done = 0.0, 0, 0
    started = time.monotonic()
    while True:
        elapsed = time.monotonic() - started
        if arguments.cases and done >= arguments.cases:
            break
        if not arguments.cases and elapsed > (arguments.seconds or 10):
            break
        rng = random.Random(f"{arguments.seed}:{done}")
        text, how = mutate(rng, rng.choice(seeds), rng.choice(seeds))
        begun = time.monotonic()
        signal.alarm(CASE_SECONDS)
        try:
            outcomes[check(text)] += 1
        except Exception:
            failures += 1
            folder = pathlib.Path(arguments.failures)
            folder.mkdir(parents=True, exist_ok=True)
            stem = f"{arguments.seed}-{done}"
            (folder / f"{stem}.hlo").write_text(text, encoding="utf-8", newline="")
            (folder / f"{stem}.txt").write_text(f"{how}\n{traceback.format_exc()}")
            last = traceback.format_exc().strip().splitlines()[-1][:200]
            sys.stdout.write(f"case {stem} ({how}): {last}\n")
        finally:
            signal.alarm(0)
        slowest = max(slowest, time.monotonic() - begun)
        done += 1
    elapsed = time.monotonic() - started
    for outcome, number in sorted(outcomes.items(), key=lambda o: (-o[1], o[0])):
        sys.stdout.write(f"{number:8}  {outcome}\n")
    sys.stdout.write(
        f"{done} cases from {len(seeds)} modules in {elapsed:.1f} s, "
        f"slowest {slowest:.2f} s, {failures} failures\n"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
