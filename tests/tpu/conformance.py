"""Compare with XLA:TPU: `python -m tests.tpu.conformance [--chips v5e:2x4,...]`.

    --chips v5e:2x4*2      two slices of these chips
    --edges                the same, with control edges out of starts
    --varied               the programs written for TPUs, with one flag after the other
    --table results.md     counts as tables, by chip, program and flags

Every program is compiled now, in a process of its own, by the library `libtpu` that the
user installed, and scheduled by us with the compiler's costs. Nothing is kept but counts.
Without the library it says so and ends.
"""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.modules import CORPUS, REPOSITORY
from tests.tpu.judge import Verdict, judged
from tests.tpu.programs import PROGRAMS
from tests.tpu.table import tables

GRIDS = "v4:2x2x1,v5e:2x4,v5p:2x2x2,v6e:2x4,tpu7x:2x2x1"
#: What changes the scheduler's settings or its input, one compilation each.
VARIED = (
    ("xla_tpu_use_aggressive_scheduling=true",),
    ("xla_tpu_use_aggressive_scheduling=false",),
    ("xla_max_concurrent_async_collective_permutes=2",),
    ("xla_max_concurrent_async_all_gathers=3",),
    ("xla_max_concurrent_host_copy=1",),
    ("xla_lhs_prioritize_async_depth_over_stall=ENABLED",),
    ("xla_lhs_enable_release_start_policy=true",),
    ("xla_tpu_enable_depth_memory_pressure_reduction=false",),
    ("xla_latency_hiding_scheduler_rerun=0",),
    ("xla_latency_hiding_scheduler_rerun=3",),
    ("xla_tpu_scheduler_percent_shared_memory_limit=1",),
    ("xla_tpu_scheduler_percent_shared_memory_limit=4",),
    ("xla_tpu_enable_async_collective_fusion=false",),
    ("xla_tpu_enable_async_all_to_all=true",),
)
#: A function of a program file that returns a jitted function and its arguments.
_FUNCTION = re.compile(r"^def ([a-z]\w*)\(devices\):", re.MULTILINE)


def own_programs() -> list[str]:
    """FILE.py:FUNCTION of the ones written for TPUs."""
    own = REPOSITORY / "tests" / "tpu" / "programs.py"
    return [f"{own}:{function.__name__}" for function in PROGRAMS]


def programs() -> Iterator[str]:
    """The ones written for TPUs, then those of the corpus."""
    yield from own_programs()
    for folder in ("programs", "held_out"):
        for file in sorted((CORPUS / folder).glob("*.py")):
            for name in _FUNCTION.findall(file.read_text()):
                yield f"{file}:{name}"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tpu.conformance", description=__doc__
    )
    parser.add_argument("--chips", default=GRIDS, metavar="CHIP:GRID,...")
    parser.add_argument("--only", default="", metavar="REGEX", help="of programs")
    parser.add_argument("--flag", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--varied", action="store_true", help="flags, one by one")
    parser.add_argument("--edges", action="store_true", help="control edges of starts")
    parser.add_argument("--table", default="", metavar="FILE.md", help="of counts")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--most", type=int, default=3, help="differences shown of each")
    options = parser.parse_args()
    if importlib.util.find_spec("libtpu") is None:
        print("left out: libtpu is not installed (pip install 'hlo-passes[tpu-aot]')")
        return 0
    sets = VARIED if options.varied else ((),)
    known = own_programs() if options.varied else programs()
    chosen = [program for program in known if re.search(options.only, program)]
    if not chosen:
        parser.error(f"--only={options.only} names none of the programs")
    jobs = [
        (program, *grid.split(":"), *options.flag, *flags)
        for grid in options.chips.split(",")
        for flags in sets
        for program in chosen
    ]
    verdicts = []
    with ThreadPoolExecutor(options.processes) as pool:
        judge = partial(judged, has_edges=options.edges)
        for verdict in pool.map(lambda job: judge(*job), jobs):
            verdicts.append(verdict)
            print(_line(verdict), flush=True)
            for difference in verdict.differences[: options.most]:
                print(f"  {difference}", flush=True)
            for difference in verdict.left_open[: options.most]:
                print(f"  left open by the log's digits: {difference}", flush=True)
    print(summary(verdicts))
    if options.table:
        pathlib.Path(options.table).write_text(tables(verdicts))
    return 1 if any(v.differences for v in verdicts) else 0


def _line(one: Verdict) -> str:
    trips = f"{one.round_trips} of {one.modules} modules as they were"
    if one.outcome:
        return f"{one.name}: {one.outcome}; {trips}"
    within = f" and {one.figures_within} within the rounding of their costs"
    within = within if one.figures_within else ""
    return (
        f"{one.name}: {one.orders} of {one.rounds} orders, {one.equal_decisions} of "
        f"{one.decisions} decisions, {one.equal_steps} of {one.steps} memory steps, "
        f"{one.equal_figures} of {one.figures} figures{within}, {trips}, compiled in "
        f"{one.seconds:.1f} s, scheduled in {one.own_seconds:.2f} s"
    )


def summary(verdicts: list[Verdict]) -> str:
    """Counts over all verdicts."""
    compared = [v for v in verdicts if not v.outcome]

    def total(name: str, among: list[Verdict]) -> int:
        return sum(getattr(v, name) for v in among)

    widest = max((v.widest_cycles for v in compared), default=0.0)
    return (
        f"{len(verdicts)} compilations, {len(compared)} with a schedule\n"
        f"{sum(bool(v.differences) for v in verdicts)} differ, "
        f"{sum(bool(v.left_open) for v in verdicts)} only in decisions that the six "
        "digits of the log leave open\n"
        f"{total('orders', compared)} of {total('rounds', compared)} orders equal\n"
        f"{total('equal_decisions', compared)} of {total('decisions', compared)} "
        "decisions equal\n"
        f"{total('equal_steps', compared)} of {total('steps', compared)} placements "
        "with equal memory\n"
        f"{total('equal_figures', compared)} of {total('figures', compared)} figures "
        f"of the statistics equal, {total('figures_within', compared)} more within the "
        f"rounding of their costs (within {widest:.3g} cycles at most)\n"
        f"{total('round_trips', verdicts)} of {total('modules', verdicts)} modules "
        "read, verified and written back byte for byte\n"
        f"{total('priced', verdicts)} final modules simulated, "
        f"{total('without_estimates', verdicts)} without estimates, "
        f"{sum(v.step_us is not None for v in compared)} schedules simulated; "
        f"{total('is_same_step', compared)} of {total('has_step', compared)} steps as "
        "by the compiler's statistic"
    )


if __name__ == "__main__":
    sys.exit(main())
