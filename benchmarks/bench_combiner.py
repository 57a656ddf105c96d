"""`collective-permute-combiner` on many permutes in one computation.

python -m benchmarks.bench_combiner [--permutes=20000]

Five graphs: all of one key; eight keys; pairs (half as many keys as permutes); one
chain, each permute needing the one before; groups that depend on each other in part.
The time per permute should not grow with their number.
"""

from __future__ import annotations

import argparse
import time

import hlo_passes
from hlo_passes.passes.combining.collective_permute_combiner import (
    CollectivePermuteCombiner,
)
from hlo_passes.passes.framework.base import PassContext, Report

#: In the graph with some dependences, every seventh permute feeds the following ones.
_FEEDING = 7
_KINDS = ("one key", "eight keys", "pairs", "chain", "some dependences")


def permutes_text(kind: str, count: int) -> str:
    """A module with `count` permutes whose results are added up in a tree."""
    keys = {
        "one key": lambda k: 0,
        "eight keys": lambda k: k % 8,
        "pairs": lambda k: k % (count // 2),
        "chain": lambda k: 0,
        "some dependences": lambda k: k % 5,
    }[kind]
    lines = [
        "HloModule many_permutes, "
        "entry_computation_layout={(f32[8]{0})->f32[8]{0}}, num_partitions=8",
        "",
        "ENTRY %main (x: f32[8]) -> f32[8] {",
        "  %x = f32[8]{0} parameter(0)",
    ]
    source, level = "x", []
    for k in range(count):
        key = keys(k)
        lines += (
            f"  %negate.{k} = f32[8]{{0}} negate(%{source})",
            f"  %permute.{k} = f32[8]{{0}} collective-permute(%negate.{k}), "
            f'channel_id={k + 1}, frontend_attributes={{combiner_key="{key}"}}, '
            "source_target_pairs={{0,1},{1,0}}",
        )
        level.append(f"permute.{k}")
        if kind == "chain" or (kind == "some dependences" and k % _FEEDING == 0):
            source = f"permute.{k}"
    sums = 0
    while len(level) > 1:
        following = level[len(level) // 2 * 2 :]
        for one, other in zip(level[::2], level[1::2], strict=False):
            lines.append(f"  %add.{sums} = f32[8]{{0}} add(%{one}, %{other})")
            following.append(f"add.{sums}")
            sums += 1
        level = following
    lines += (f"  ROOT %copy = f32[8]{{0}} copy(%{level[0]})", "}", "")
    return "\n".join(lines)


def combine_seconds(kind: str, count: int) -> tuple[float, Report]:
    """Seconds of the pass alone, and what it reports."""
    module = hlo_passes.parse(permutes_text(kind, count))
    report = Report()
    started = time.perf_counter()
    CollectivePermuteCombiner().run(module, PassContext(), report)
    return time.perf_counter() - started, report


def main() -> None:
    """Print one row per graph, at a tenth of the size and at the full size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--permutes", type=int, default=20_000)
    count = parser.parse_args().permutes
    print(f"{'graph':18} {'permutes':>9} {'seconds':>8} {'us each':>8} {'batches':>8}")
    for kind in _KINDS:
        for size in (count // 10, count):
            seconds, report = combine_seconds(kind, size)
            batches = report.statistics.get("batches-combined", 0)
            each_us = seconds / size * 1e6
            print(f"{kind:18} {size:9} {seconds:8.2f} {each_us:8.1f} {batches:8}")


if __name__ == "__main__":
    main()
