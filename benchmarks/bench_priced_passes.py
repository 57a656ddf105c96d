"""Our passes that decide by price, judged by `simulate`: no step may become longer.

    python -m benchmarks.bench_priced_passes [--machine=h100_sxm@2] [MODULE ...]

Modules are partitioned and not scheduled: by default those of the corpus for the newest
release, and `docs/pipelining/fsdp.hlo.gz`. Each is given to each pass alone, scheduled
by `gpu-schedule` as it is and as the pass leaves it, and simulated. Machines are those
of `bench_tune`; hosts have as many GPUs as the module's devices leave each, and a
machine without so many is left out. The table has what changed; below it is how often
each pass gained, lost and left a module alone.
The exit code is 1 if a step became longer.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import hlo_passes
from benchmarks.bench_tune import MACHINES
from hlo_passes.files import read_module
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.machine import host_figures
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.tuning.outcome import Outcome

_REPOSITORY: Final = pathlib.Path(__file__).resolve().parent.parent
_CORPUS: Final = _REPOSITORY / "corpus" / "modules" / "0.12.0.1"
PASSES: Final = (
    "collective-matmul",
    "collective-ring-decomposer",
    "collective-backend-choice",
    "uneven-reduce-scatter-creator",
    "loop-multi-buffer",
    "loop-multi-buffer{buffers=4}",
    "loop-invariant-collective-hoisting",
    "ragged-all-to-all-chunker",
)
#: Sums of the same times in another order differ by less.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One module, one machine, one pass.

    Attributes:
        module: its file.
        machine: TARGET@HOSTS.
        name: of the pass.
        before: the step as it is.
        after: as the pass leaves it.
    """

    module: str
    machine: str
    name: str
    before: Outcome
    after: Outcome

    @property
    def verdict(self) -> str:
        """gains, unchanged, longer, or not priced, as what is new has no price."""
        change = self.after.change_from(self.before)
        if abs(change) <= _ROUNDING:
            return "unchanged"
        if self.after.unpriced > self.before.unpriced:
            return "not priced"
        return "gains" if change < 0 else "longer"

    def to_text(self) -> str:
        """A line of the table."""
        cells = (
            self.module,
            self.machine,
            self.name,
            time_text(self.before.step_us),
            time_text(self.after.step_us),
            f"{100.0 * self.after.change_from(self.before):+.2f}%",
            self.verdict,
        )
        return f"| {' | '.join(cells)} |"


def modules() -> list[str]:
    """Partitioned modules of this repository."""
    found = sorted(_CORPUS.glob("*.partitioned.hlo*"))
    return [*map(str, found), str(_REPOSITORY / "docs/pipelining/fsdp.hlo.gz")]


def step_of(module: Module, on: Pricing) -> Outcome:
    """The step of a module after `gpu-schedule`."""
    scheduled = module.clone()
    hlo_passes.Pipeline.parse("gpu-schedule", PassContext(on)).run(scheduled)
    return Outcome.of(simulate_on(scheduled, on, Rules()))


def rows_of(file: str, machine: str) -> Iterator[Row]:
    """A row for each pass."""
    chip, _, hosts = machine.partition("@")
    module = read_module(file)
    devices = module.replica_count * module.num_partitions
    each = max(1, devices // int(hosts))
    if each > host_figures(target(chip)).gpus_per_host:
        return
    on = Pricing(target=chip, hosts=int(hosts), gpus_per_host=each)
    if chip == "gb200":
        # Its hosts share one NVLink domain.
        on = Pricing(target=chip, topology=f"1x{hosts}x{each}")
    before = step_of(module, on)
    name = pathlib.Path(file).name.partition(".")[0]
    for each_pass in PASSES:
        after = module.clone()
        run = hlo_passes.Pipeline.parse(each_pass, PassContext(on)).run(after)
        found = step_of(after, on) if run.changed else before
        yield Row(name, machine, each_pass, before, found)


def main() -> int:
    """Run all passes on all modules; prints what changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--machine", action="append", metavar="TARGET@HOSTS")
    parser.add_argument("modules", nargs="*", metavar="MODULE")
    options = parser.parse_args()
    counts: dict[str, collections.Counter[str]] = {}
    print("| module | machine | pass | without | with | change | verdict |")
    print("|---|---|---|---|---|---|---|")
    for file in options.modules or modules():
        for machine in options.machine or MACHINES:
            for row in rows_of(file, machine):
                counts.setdefault(row.name, collections.Counter())[row.verdict] += 1
                if row.verdict != "unchanged":
                    print(row.to_text(), flush=True)
    print()
    for name, found in counts.items():
        told = ", ".join(f"{count} {verdict}" for verdict, count in found.items())
        print(f"{name}: {told}")
    return 1 if any(found["longer"] for found in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
