"""Reading and writing HLO text: this project against jaxlib's C++, in one process.

    python -m benchmarks.bench_text [--repeat=7]

Ratios are C++ seconds / our seconds: above 1 we are faster. They are of processor time;
those of the clock follow, which mean little on a busy machine. Python's collector is
included: after each activity the program makes a thousand lists, as any program would,
so that the collector looks at what it thinks is due.

`read` leaves attribute values as text; `read+` splits all of them too; `write` prints a
module in which one instruction of every computation was changed; `canonical` prints
from the IR alone.
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
#: More than the collector lets pass before it looks at new objects.
_LISTS = 1000
_RATIOS = (
    ("c++ read", "read"),
    ("c++ read", "read+"),
    ("c++ write", "write"),
    ("c++ write", "canonical"),
)


def _forget() -> None:
    """Every reading starts without what is known from the one before."""
    shape_parser._PARSED.clear()
    shapes._INTERNED.clear()
    attribute_text._split_simple.cache_clear()
    gc.collect()


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the processor and of the clock, the collector's work included."""
    started, shown = time.process_time(), time.perf_counter()
    result = work()
    following = [[] for _ in range(_LISTS)]
    seconds = time.process_time() - started, time.perf_counter() - shown
    del result, following
    return seconds


def _read_all(text: str) -> Module:
    module = hlo_passes.parse(text)
    for computation in module.computations:
        for instruction in computation.instructions:
            _ = instruction.attributes
    return module


def _touch(module: Module) -> None:
    for computation in module.computations:
        computation.touch(computation.root)


def measure(text: str, repeat: int) -> dict[str, tuple[float, float]]:
    """Median seconds, by processor and clock, of each activity, ours and C++."""
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    rows: dict[str, list[tuple[float, float]]] = {}

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
    return {
        name: (
            statistics.median(one for one, _ in seconds),
            statistics.median(other for _, other in seconds),
        )
        for name, seconds in rows.items()
    }


def main() -> None:
    """Print a table of medians and ratios, then how reading grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    out = sys.stdout.write
    out(f"{'module':58} {'MB':>5} {'read':>7} {'read+':>7} {'write':>7} {'canon.':>7}")
    out("   C++/ours: read read+ write canon.   by the clock\n")
    for name, text in large_modules(MINIMUM_BYTES):
        t = measure(text, arguments.repeat)
        out(f"{name[-58:]:58} {len(text) / 1e6:5.1f} ")
        out(" ".join(f"{t[ours][0]:6.3f}s" for _, ours in _RATIOS))
        for clock in (0, 1):
            ratios = [t[theirs][clock] / t[ours][clock] for theirs, ours in _RATIOS]
            out("   " + " ".join(f"{ratio:5.2f}" for ratio in ratios))
        out("\n")
    out("\ninstructions   seconds   us per instruction\n")
    for count in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        text = synthetic_module(count)
        _forget()
        best, _ = min(_seconds(lambda t=text: hlo_passes.parse(t)) for _ in range(3))
        out(f"{count:12,} {best:9.3f} {best / count * 1e6:10.2f}\n")


if __name__ == "__main__":
    main()
