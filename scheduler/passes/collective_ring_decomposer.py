"""Replaces collectives with chains of permutes if that makes the step shorter.

Before:  %g = f32[8] all-gather(%x), replica_groups={{0,1}}, dimensions={0}, ...
After:   %i = u32[] partition-id()
         %a = f32[8] dynamic-update-slice(%zeros, %x, %i * 4)
         %p = f32[4] collective-permute(%x), source_target_pairs={{0,1},{1,0}}
         %g = f32[8] dynamic-update-slice(%a, %p, (%i + 1) % 2 * 4)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import ClassVar, Final, Literal

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.decomposing.matmul_sites import together
from hlo_passes.passes.decomposing.permute_chains import (
    FORMS,
    KINDS,
    Form,
    Members,
    grid_columns,
    members_of,
    write_chains,
)
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.scheduler.passes.chain_choice import (
    LEAST_BOTH_WAYS,
    ChainChoice,
    collectives_of,
    found_in,
)
from hlo_passes.scheduler.passes.priced_chains import ChainTrials, Key, Step, key_of
from hlo_passes.scheduler.passes.priced_pass import PricedRewrite
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum

#: What a form is called in remarks.
_WORDS: Final[dict[Form, str]] = {
    "ring": "the ring",
    "bidirectional": "the two rings",
    "2d": "the grid",
}
_PERMUTE: Final = "collective-permute"


@dataclass(frozen=True, slots=True)
class CollectiveRingDecomposer(PricedRewrite):
    """Replace collectives with chains of permutes if the simulated step gets shorter.

    An all-gather, reduce-scatter, all-reduce or all-to-all becomes a ring, two rings
    against each other, or a grid of rings. This works for any groups, in modules whose
    ids are partitions or replicas. A chain is not compiled any better than the
    collective that it replaces: over NVLink, it costs up to nine times as much. A chain
    wins where the model prices a pair of devices lower than the collective, or where
    its steps hide under compute and the collective does not.

    So the pass decides by price. It schedules and simulates the module as it is, and
    with each chain in turn, the most exposed collective first. A chain stays if the
    step gets shorter. XLA's table of measured collectives has gaps and noise, and it
    has no latency below its smallest message, which would make tiny chains win. So a
    chain must win twice: by `simulate`, and with prices that never fall as bytes rise.
    What the pass adds around the permutes is charged as kernels. Remarks say what each
    refused chain would cost. `always` writes all chains, without asking.

    The order of floating-point additions changes. Block b of n is the sum, from left to
    right, of the members b+1, b+2, ..., b-1, b of the group. `bidirectional` adds
    b-n/2, ..., b, and then the sum of b+(n-1)/2, ..., b+1. `2d` adds along columns,
    then along rows. Such a sum differs from the sum in any other order by at most 2 g
    times the sum of the absolute values, with g = (n-1) u / (1 - (n-1) u) and u = 2^-24
    for f32. Gathers, all-to-alls, integers, minima and maxima keep every bit.

    Between partitions, a permute gets a fresh channel id; between replicas, it gets
    none. It takes over the metadata and the frontend attributes of its collective,
    without `_scheduling_group_id`. Control edges stay, too: predecessors come before
    the first permutes, successors after the result. The pass leaves alone groups that
    cross replicas and partitions, have different sizes or omit devices, and
    asynchronous collectives.

    Requires: an unscheduled module and no file of costs by name, unless `always`.
    Ensures: the step does not get longer, whether `gpu-schedule` or, unless
        `after-xla=false`, `xla-gpu` schedules it and `simulate` measures it.
    Complexity: `gpu-schedule`, `xla-gpu` and `simulate`, for each chain that is tried.
    Source: this project; XLA has no such pass.

    Attributes:
        form: form of the chains. `cheapest` tries all; with `always`, it means the
            ring.
        kinds: kinds of collectives, separated by blanks.
        columns: number of columns in the grid of a group. 0: the devices of a host if
            these follow one another, otherwise the most nearly square grid.
        min_gain: least share of the step that a chain must save.
    """

    name: ClassVar[str] = "collective-ring-decomposer"
    left: ClassVar[str] = "nothing decomposed"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    form: Literal["cheapest", "ring", "bidirectional", "2d"] = "cheapest"
    kinds: tuple[str, ...] = KINDS
    columns: int = 0

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise ValueError(f"kinds must be of {' '.join(KINDS)}, not {unknown[0]}")
        if self.columns < 0:
            raise ValueError("columns must be 0 or more")
        PricedRewrite.__post_init__(self)

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Find what can be rewritten; then rewrite what pays."""
        found = self._rewritable(module, report)
        if not found:
            return
        channels = count(next_channel_id(module))
        if self.always:
            computations = dict.fromkeys(i.computation for i, _ in found)
            for collective, members in found:
                self._write_always(collective, members, channels, report)
            for computation in computations:
                restore_text_order(computation)
            return
        trials = ChainTrials(module, context.pricing, self.schedule)
        left = {key_of(i): members for i, members in found}
        _Choice(self, module, trials, left, channels, report).run("not decomposed")

    def _rewritable(
        self, module: Module, report: Report
    ) -> list[tuple[Instruction, Members]]:
        found: list[tuple[Instruction, Members]] = []
        for collective, place in collectives_of(module, self.kinds):
            members = place or members_of(collective)
            if isinstance(members, str):
                report.remark(f"not decomposed: %{collective.name} {members}")
            else:
                found.append((collective, members))
        return found

    def _write_always(
        self,
        collective: Instruction,
        members: Members,
        channels: Iterator[int],
        report: Report,
    ) -> None:
        form: Form = "ring" if self.form == "cheapest" else self.form
        columns = 0
        if form == "2d" and collective.opcode != "all-to-all":
            columns = self.columns_of(members, 0)
            if not columns:
                report.remark(
                    f"not decomposed: %{collective.name} has groups of {members.size}, "
                    "which make no such grid"
                )
                return
        opcode = collective.opcode
        new = write_chains(collective, members, form, channels, columns)
        count_chains(report, opcode, new)

    def forms(
        self, opcode: str, members: Members, per_host: int
    ) -> list[tuple[Form, int]]:
        """Forms to try for a collective, and columns for those that are grids."""
        if opcode == "all-to-all":
            return [("ring", 0)]
        wanted = FORMS if self.form == "cheapest" else (self.form,)
        found: list[tuple[Form, int]] = []
        for form in wanted:
            columns = self.columns_of(members, per_host) if form == "2d" else 0
            if form == "2d" and not columns:
                continue
            if form == "bidirectional" and members.size < LEAST_BOTH_WAYS:
                continue
            found.append((form, columns))
        return found or [("ring", 0)]

    def columns_of(self, members: Members, per_host: int) -> int:
        """Columns of the grid that a group is; 0 where it is none."""
        size = members.size
        if self.columns:
            is_grid = size % self.columns == 0 and 1 < self.columns < size
            return self.columns if is_grid else 0
        return _on_a_host(members, per_host) or grid_columns(size)


def _on_a_host(members: Members, per_host: int) -> int:
    """Members of each group on each host, if they follow one another; else 0."""
    size = together(members.groups, per_host) if per_host else 0
    return size if 1 < size < members.size else 0


def count_chains(report: Report, opcode: str, new: list[Instruction]) -> None:
    """Count a collective that was rewritten."""
    report.count(f"{opcode}s-decomposed")
    report.count("permutes-made", sum(i.opcode == _PERMUTE for i in new))


@dataclass(frozen=True, slots=True)
class _Chain:
    """A form of one collective, with its price."""

    form: Form
    columns: int
    us: float


@dataclass(slots=True)
class _Choice(ChainChoice[CollectiveRingDecomposer, Members, _Chain]):
    """Decides by the prices of the permutes, then by steps."""

    _prices: dict[tuple[object, ...], list[_Chain]] = field(default_factory=dict)

    def promising(self, key: Key, now: Step) -> list[_Chain] | str:
        """The forms of which enough can hide, the cheapest first."""
        row, hiding = now.rows[key], now.hiding_us(key)
        chains = self._chains(key)
        in_flight = self.options.parallel_collective_overlap_limit
        found = [
            chain for chain in chains if chain.us / in_flight - hiding < row.exposed_us
        ]
        if found:
            return found
        least = chains[0]
        return (
            f"stays: {_WORDS[least.form]} costs {time_text(least.us)}, the "
            f"{row.opcode} {time_text(row.latency_us)}, and {time_text(hiding)} of "
            "compute can hide it"
        )

    def words(self, form: _Chain) -> str:
        """`the ring`."""
        return _WORDS[form.form]

    def write(
        self,
        collective: Instruction,
        site: Members,
        form: _Chain,
        channels: Iterator[int],
    ) -> list[Instruction]:
        """Write the chain."""
        return write_chains(collective, site, form.form, channels, form.columns)

    def count(self, opcode: str, new: list[Instruction]) -> None:
        """Count the permutes."""
        count_chains(self.report, opcode, new)

    def _chains(self, key: Key) -> list[_Chain]:
        """The forms of a collective, the cheapest first."""
        members = self.left[key]
        collective = found_in(self.module, key)
        like = (
            collective.opcode,
            collective.shape.text,
            tuple(o.shape.text for o in collective.operands),
            members,
        )
        if like not in self._prices:
            found: list[_Chain] = []
            per_host = self.trials.machine.devices_per_host
            for form, columns in self.options.forms(
                collective.opcode, members, per_host
            ):
                _, new = self.rewritten(key, _Chain(form, columns, 0.0))
                price = sequential_sum(
                    self.trials.fair_us(i) for i in new if i.opcode == _PERMUTE
                )
                found.append(_Chain(form, columns, price))
            self._prices[like] = sorted(found, key=lambda chain: chain.us)
        return self._prices[like]
