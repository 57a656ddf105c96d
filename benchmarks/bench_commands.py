"""Whole commands as a user runs them, and the same work of jaxlib's C++ in one process.

    python -m benchmarks.bench_commands [--repeat=5]

Each row is the least of several runs in fresh processes, start-up included: on a
program of the corpus, and on the largest module at hand. The C++ column is what jaxlib
offers of the same work, in a process that is warm: `opt` reads and prints, `verify`
reads. It offers neither passes nor its verifier by themselves. A ratio above 1 means
that the command is faster.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
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
#: Which of "read" and "print" C++ does for a command.
_SAME_WORK = {"opt": ("read", "print"), "verify": ("read",)}

#: Seconds of the processor and of the clock.
Seconds = tuple[float, float]


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _least(repeat: int, *command: str) -> Seconds:
    """The least seconds of a Python process."""
    processor, clock = [], []
    for _ in range(repeat):
        before, started = _spent(), time.perf_counter()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        clock.append(time.perf_counter() - started)
        processor.append(_spent() - before)
    return min(processor), min(clock)


def _cpp(text: str, repeat: int) -> dict[str, float]:
    """The least seconds of the processor that C++ takes to read and to print."""
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    reading, printing = [], []
    for _ in range(repeat):
        started = time.process_time()
        module = _hlo.hlo_module_from_text(text)
        reading.append(time.process_time() - started)
        started = time.process_time()
        module.to_string(options)
        printing.append(time.process_time() - started)
    return {"read": min(reading), "print": min(printing)}


def main() -> None:
    """Print a table of seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    plain, shown = _least(repeat, "-c", "pass")
    print(f"python -c pass: {plain:.3f} s of the processor, {shown:.3f} s of the clock")
    with tempfile.TemporaryDirectory() as folder:
        files = {_SMALL.name: _SMALL}
        for name, text in large_modules(_LARGE_BYTES)[:1]:
            files[name] = Path(folder) / "large.hlo"
            files[name].write_text(text)
        for name, file in files.items():
            print(f"{name}, {file.stat().st_size / 1e6:.2f} MB")
            print(
                f"  {'command':10} {'processor':>10} {'clock':>8} {'C++':>8} C++/ours"
            )
            theirs = _cpp(file.read_text(), repeat)
            for command, *options in _COMMANDS:
                words = ("-m", "hlo_passes", command, str(file), *options)
                processor, clock = _least(repeat, *words)
                row = f"  {command:10} {processor:8.3f} s {clock:6.3f} s"
                if command in _SAME_WORK:
                    cpp = sum(theirs[part] for part in _SAME_WORK[command])
                    row += f" {cpp:6.3f} s {cpp / processor:8.2f}"
                print(row)


if __name__ == "__main__":
    main()
