"""Reading and writing HLO text: this project against jaxlib's C++, in one process.

    python -m benchmarks.bench_text [--repeat=7]

Ratios are C++ seconds / our seconds: above 1 we are faster. `read` leaves attribute
values as text; `read+` splits all of them too; `write` prints a module in which one
instruction of every computation was changed; `canonical` prints from the IR alone.
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import sys
import time
from collections.abc import Callable

import hlo_passes
from benchmarks.modules import large_modules, synthetic_module
from hlo_passes.ir import attribute_text, shape_parser, shapes
from hlo_passes.ir.module import Module

MINIMUM_BYTES = 1_000_000


def _forget() -> None:
    """Every reading starts without what is known from the one before."""
    shape_parser._PARSED.clear()
    shapes._INTERNED.clear()
    attribute_text._split_simple.cache_clear()
    gc.collect()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _read_all(text: str) -> Module:
    module = hlo_passes.parse(text)
    for computation in module.computations:
        for instruction in computation.instructions:
            _ = instruction.attributes
    return module


def _touch(module: Module) -> None:
    for computation in module.computations:
        computation.touch(computation.root)


def measure(text: str, repeat: int) -> dict[str, float]:
    """Median seconds of each activity, ours and C++."""
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    rows: dict[str, list[float]] = {}

    def note(name: str, work: Callable[[], object]) -> None:
        _forget()
        rows.setdefault(name, []).append(_seconds(work))

    for _ in range(repeat):
        note("read", lambda: hlo_passes.parse(text))
        note("c++ read", lambda: _hlo.hlo_module_from_text(text))
        note("read+", lambda: _read_all(text))
        module, theirs = _read_all(text), _hlo.hlo_module_from_text(text)
        _touch(module)
        note("write", module.to_text)
        note("c++ write", functools.partial(theirs.to_string, options))
        note("canonical", module.to_canonical_text)
    return {name: statistics.median(seconds) for name, seconds in rows.items()}


def main() -> None:
    """Print a table of medians and ratios, then how reading grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    out = sys.stdout.write
    out(f"{'module':58} {'MB':>5} {'read':>7} {'read+':>7} {'write':>7} {'canon.':>7}")
    out("   C++/ours: read read+ write canon.\n")
    for name, text in large_modules(MINIMUM_BYTES):
        t = measure(text, arguments.repeat)
        ours = [t[k] for k in ("read", "read+", "write", "canonical")]
        reading, writing = t["c++ read"], t["c++ write"]
        ratios = [reading / ours[0], reading / ours[1]]
        ratios += [writing / ours[2], writing / ours[3]]
        out(f"{name[-58:]:58} {len(text) / 1e6:5.1f} ")
        out(" ".join(f"{s:6.3f}s" for s in ours) + "   ")
        out(" ".join(f"{r:5.2f}" for r in ratios) + "\n")
    out("\ninstructions   seconds   us per instruction\n")
    for count in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        text = synthetic_module(count)
        _forget()
        best = min(_seconds(lambda t=text: hlo_passes.parse(t)) for _ in range(3))
        out(f"{count:12,} {best:9.3f} {best / count * 1e6:10.2f}\n")


if __name__ == "__main__":
    main()
