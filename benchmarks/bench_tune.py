"""Tuning: the best that the search finds, beside random search.

    python -m benchmarks.bench_tune [--machine=h100_sxm@2] [--budget=40] [PROGRAM ...]

A program is FILE.py:FUNCTION. By default: all of `corpus/programs`, the tutorial's,
those of `corpus/held_out` that train something of real size, and a transformer in flax
NNX with optax (the extra `benchmarks`). A machine is TARGET@HOSTS; by default an H100
host, two of them, and eight GB200 in one NVLink domain. XLA's GPU compiler makes every
module (the extra `gpu-aot`). With `--cache=DIR` a run goes on where another ended.

Random search draws every lever that is not pointless with even chances, so that half of
all levers are set, as often as the search has compiled. The best is compiled once more
from its XLA_FLAGS alone, in a new process. Below the table: where the bound for any
structure leaves 5% of the step, in how many rows the best is faster.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import os
import pathlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.errors import HloError
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.tuning.compile_process import end_process
from hlo_passes.runtime.tuning.evaluation import XlaEvaluator
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.runtime.tuning.searching import fairly
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.memory.footprint import available_bytes
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.tuning.choices import choices_for
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.draws import drawn
from hlo_passes.scheduler.tuning.facts import facts_of
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.own_schedule import rules_for
from hlo_passes.scheduler.tuning.report import is_same_step
from hlo_passes.scheduler.tuning.search import Search
from hlo_passes.scheduler.tuning.store import Store

_REPOSITORY: Final = pathlib.Path(__file__).resolve().parent.parent
#: TARGET@HOSTS.
MACHINES: Final = ("h100_sxm@1", "h100_sxm@2", "gb200@2")
_LARGE: Final = (
    "docs/tutorial/training.py:step",
    "corpus/held_out/transformer_block.py:transformer_scan",
    "corpus/held_out/experts_training.py:experts_training",
    "corpus/held_out/pipeline_training.py:pipeline_training",
    "corpus/held_out/accumulation_loop.py:accumulation_loop",
    "benchmarks/programs/nnx_transformer.py:nnx_transformer",
)
_HEAD: Final = (
    "| program | GPUs | baseline | best found | levers | bound | evaluations "
    "| seconds | random search | from the flags alone | what holds it |"
)
#: A bound that leaves less than this share of the step is reached.
_REACHED: Final = 0.05
#: Causes of exposure that a row names.
_CAUSES: Final = 2
#: Draws for each combination of the search: a program may have fewer different ones.
_DRAWS: Final = 20
_NOTHING: Final = Combination()
_NO_STEP: Final = Outcome.failed("not tried")


@dataclass(frozen=True, slots=True)
class Row:
    """What was found for one program on one machine.

    Attributes:
        program: FUNCTION of FILE.py.
        gpus: target and topology.
        problem: why there is nothing else, '' where there is.
        baseline: the step without levers.
        best: the best that the search finds.
        levers: of the best.
        evaluations: compilations that the search asked for.
        seconds: of the search.
        drawn: the best of as many random combinations.
        held_by: what exposes collectives in the best, most first.
        again: the best compiled from its flags alone; None if it has no flags.
    """

    program: str
    gpus: str
    problem: str = ""
    baseline: Outcome = _NO_STEP
    best: Outcome = _NO_STEP
    levers: str = ""
    evaluations: int = 0
    seconds: float = 0.0
    drawn: Outcome = _NO_STEP
    held_by: str = ""
    again: Outcome | None = None

    @property
    def leaves(self) -> float:
        """The share of the baseline's step that is above the bound."""
        step_us = self.baseline.step_us
        return 1.0 - self.baseline.bound_us / step_us if step_us else 0.0

    @property
    def is_faster(self) -> bool:
        """Whether the best is not the baseline."""
        return self.best.step_us < self.baseline.step_us

    @property
    def is_same_again(self) -> bool:
        """Whether the flags alone give the same step."""
        again = self.again
        return again is not None and is_same_step(again, self.best)

    def to_text(self) -> str:
        """A line of the table."""
        if self.problem:
            return _line(self.program, self.gpus, self.problem, *[""] * 8)
        held = self.held_by
        if self.leaves < _REACHED:
            held = "the bound: it leaves less than 5%"
        bound = f"{time_text(self.baseline.bound_us)} ({self.baseline.bound_by})"
        return _line(
            self.program,
            self.gpus,
            time_text(self.baseline.step_us),
            self._changed(self.best),
            self.levers,
            f"{bound}, {self.leaves:.1%} above",
            str(self.evaluations),
            f"{self.seconds:.0f}",
            self._changed(self.drawn),
            self._again,
            "" if self.is_faster else held,
        )

    @property
    def _again(self) -> str:
        if self.again is None or self.is_same_again:
            return "" if self.again is None else "the same step"
        return self.again.problem or time_text(self.again.step_us)

    def _changed(self, found: Outcome) -> str:
        change = found.change_from(self.baseline)
        return f"{time_text(found.step_us)} ({100.0 * change:+.1f}%)"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def summary(rows: Sequence[Row]) -> str:
    """On how many the best is faster, and how that compares with random search."""
    done = [row for row in rows if not row.problem]
    open_ = [row for row in done if row.leaves >= _REACHED]
    faster = sum(row.is_faster for row in open_)
    wins = sum(row.best.step_us < row.drawn.step_us for row in done)
    losses = sum(row.best.step_us > row.drawn.step_us for row in done)
    again = [row for row in done if row.again is not None]
    return (
        f"The bound leaves {_REACHED:.0%} or more in {len(open_)} of {len(done)} rows; "
        f"the best is faster than the baseline in {faster} of these. The search finds "
        f"a shorter step than random search in {wins} rows, a longer one in {losses}. "
        f"Compiled again from its flags alone, the best has the same step in "
        f"{sum(row.is_same_again for row in again)} of {len(again)} rows."
    )


def default_programs() -> list[str]:
    """FILE.py:FUNCTION of all programs of the corpus, then the large ones."""
    found = []
    for file in sorted((_REPOSITORY / "corpus" / "programs").glob("*.py")):
        found += [
            f"{file.relative_to(_REPOSITORY)}:{each.name}"
            for each in ast.parse(file.read_text()).body
            if isinstance(each, ast.FunctionDef)
            and not each.name.startswith("_")
            and [argument.arg for argument in each.args.args] == ["devices"]
        ]
    return [*found, *_LARGE]


def measure(name: str, machine: str, budget: int, cache: str, *, seed: int) -> Row:
    """The row of one program on one machine."""
    chip, _, hosts = machine.partition("@")
    program = Program(name, target=chip, hosts=int(hosts or "1"))
    short = name.rpartition("/")[2]
    try:
        evaluator = XlaEvaluator(program, Rules(), Store(cache), on=program.on)
        return _measured(short, evaluator, budget, seed)
    except HloError as problem:
        return Row(short, machine, problem.message.splitlines()[0])
    finally:
        end_process()


def _measured(short: str, evaluator: XlaEvaluator, budget: int, seed: int) -> Row:
    gpus = f"{evaluator.program.target} {evaluator.traced.machine}"
    began = time.monotonic()
    first = evaluator.baseline()
    if first.problem:
        return Row(short, gpus, first.problem)
    evaluator.settle_prices()
    facts = facts_of(first.to_module(), Topology.parse(evaluator.traced.machine))
    choices = choices_for(facts, evaluator.release, is_ordered=bool(first.before))
    limit = available_bytes(target(evaluator.program.target).memory_bytes)

    def search_all() -> Search:
        found = Search(choices.settings, evaluator, budget, memory_bytes=limit)
        found.run()
        return found

    search = fairly(search_all, evaluator.price_by_our_formulas)
    seconds = time.monotonic() - began
    if search.interrupted:
        raise KeyboardInterrupt
    baseline = search.tried[_NOTHING]
    if baseline.problem:
        return Row(short, gpus, baseline.problem)
    # The same number of combinations, drawn; what has few combinations repeats some.
    count = len(search.tried)
    blind = Search(choices.settings, evaluator, count, memory_bytes=limit)
    blind.compile_all([_NOTHING])
    for chosen in itertools.islice(drawn(choices.settings, seed=seed), _DRAWS * count):
        if blind.left <= 0:
            break
        blind.compile_all([chosen])
    rules = rules_for(search.best, evaluator.rules)
    given = os.environ.get("XLA_FLAGS", "").strip()
    again = evaluator.alone(search.best, given) if search.best else None
    return Row(
        program=short,
        gpus=gpus,
        baseline=baseline,
        best=search.tried[search.best],
        levers=search.best.to_text(),
        evaluations=count,
        seconds=seconds,
        drawn=blind.tried[blind.best],
        held_by=held_by(evaluator.module(search.best), evaluator.settled, rules),
        again=again,
    )


def held_by(module: Module, on: Pricing, rules: Rules) -> str:
    """What exposes collectives: '54.2 us of all-reduce (nothing-left)', most first."""
    exposed: dict[tuple[str, str], float] = {}
    for row in simulate_on(module, on, rules).collectives:
        if row.total_exposed_us > 0.0:
            kind = row.opcode, row.cause_kind
            exposed[kind] = exposed.get(kind, 0.0) + row.total_exposed_us
    most = sorted(exposed.items(), key=lambda each: -each[1])[:_CAUSES]
    return "; ".join(f"{time_text(us)} of {op} ({why})" for (op, why), us in most)


def table(rows: Iterable[Row]) -> Iterator[str]:
    """The table's lines, each when its row is there, and the summary."""
    yield _HEAD
    yield "|---" * (_HEAD.count("|") - 1) + "|"
    done = []
    for row in rows:
        done.append(row)
        yield row.to_text()
    yield ""
    yield summary(done)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machine", action="append", metavar="TARGET@HOSTS")
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", default="", help="folder of what was compiled")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args()
    rows = (
        measure(name, machine, options.budget, options.cache, seed=options.seed)
        for name in options.programs or default_programs()
        for machine in options.machine or MACHINES
    )
    for line in table(rows):
        print(line, flush=True)


if __name__ == "__main__":
    main()
