"""Processor seconds of whole commands, the interpreter's own start in the same run.

    python -m benchmarks.bench_commands [--repeat=5]

Each row is the least of several runs in fresh processes, without those of
`python -c pass`: on a program of the corpus, and on the largest module at hand.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.modules import REPOSITORY, large_modules

_SMALL = REPOSITORY / "corpus" / "modules" / "0.10.2" / "cannon_matmul.scheduled.hlo"
_LARGE_BYTES = 1_000_000
_COMMANDS = (
    ("opt", "--passes=collective-permute-combiner"),
    ("verify",),
    ("estimate", "--json"),
    ("simulate", "--json"),
)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _least(repeat: int, *command: str) -> float:
    times = []
    for _ in range(repeat):
        before = _spent()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        times.append(_spent() - before)
    return min(times)


def main() -> None:
    """Print a table of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    plain = _least(repeat, "-c", "pass")
    print(f"python -c pass: {plain:.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        files = {_SMALL.name: _SMALL}
        for name, text in large_modules(_LARGE_BYTES)[:1]:
            files[name] = Path(folder) / "large.hlo"
            files[name].write_text(text)
        for name, file in files.items():
            print(f"{name}, {file.stat().st_size / 1e6:.2f} MB")
            for command, *options in _COMMANDS:
                words = ("-m", "hlo_passes", command, str(file), *options)
                print(f"  {command:10} {_least(repeat, *words) - plain:7.3f} s")


if __name__ == "__main__":
    main()
