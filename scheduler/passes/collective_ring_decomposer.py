"""Writes collectives as chains of permutes where that makes the step shorter.

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

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.module_state import require_priceable
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.decomposing.permute_chains import (
    FORMS,
    KINDS,
    Form,
    Members,
    grid_columns,
    members_of,
    write_chains,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.advice.trials import MOST_INSTRUCTIONS
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.priced_chains import ChainTrials, Key, Step, key_of
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum

#: What a form is called in remarks.
_WORDS: Final[dict[Form, str]] = {
    "ring": "the ring",
    "bidirectional": "the two rings",
    "2d": "the grid",
}
_PERMUTE: Final = "collective-permute"
#: In a group of two both directions are one.
_BOTH_WAYS: Final = 3


@dataclass(frozen=True, slots=True)
class CollectiveRingDecomposer(Pass):
    """Write collectives as chains of permutes if `simulate` says that this is faster.

    An all-gather, reduce-scatter, all-reduce or all-to-all becomes a ring, two rings
    against each other, or a grid of them, whatever its groups, in modules whose ids are
    partitions or replicas. Nobody compiles such a chain better than the collective that
    it replaces: over NVLink it costs up to nine times as much. It wins where the model
    prices a pair of devices lower than the collective, or where its steps hide under
    compute and the collective does not.

    So the pass decides by price. It schedules and simulates the module as it is, and
    with each chain in turn, the most exposed collective first; a chain stays if the
    step becomes shorter. XLA's table of measured collectives has gaps and noise, and
    no latency below its smallest message, which would make tiny chains win. So a chain
    must win twice: by `simulate`, and with prices that never fall as bytes rise. What
    it adds around its permutes is charged as kernels. Remarks say what each refused
    chain would cost. `always` writes them all, without asking.

    The order of the additions of floating types changes: block b of n is the sum, from
    left to right, of members b+1, b+2, ..., b-1, b of the group. `bidirectional` adds
    b-n/2, ..., b, and then the sum of b+(n-1)/2, ..., b+1; `2d` adds along columns,
    then along rows. A sum differs from that in any other order by at most 2 g times the
    sum of the absolute values, with g = (n-1) u / (1 - (n-1) u) and u = 2^-24 for f32.
    Gathers, all-to-alls, integers, minima and maxima keep every bit.

    A permute has a fresh channel id between partitions, none between replicas; the
    metadata and the frontend attributes of its collective, without
    `_scheduling_group_id`; and the control edges: predecessors come before the first
    permutes, successors after the result. Left alone are groups that cross replicas
    and partitions, have different sizes or omit devices, and asynchronous collectives.

    Requires: an unscheduled module, unless `always`; costs that are not by name.
    Ensures: no step that `gpu-schedule` and `simulate` make longer.
    Complexity: that of `gpu-schedule` and `simulate`, for each chain that is tried.
    Source: this project; XLA has no such pass.

    Attributes:
        form: of the chains. `cheapest` tries all; with `always` it is the ring.
        kinds: of collectives, separated by blanks.
        always: rewrite whatever can be, without a price.
        columns: of the grid of a group; 0 for the devices of a host where these follow
            one another, else the most nearly square grid.
        min_gain: least share of the step that a chain must save.
        most_instructions: that trials may schedule, all together.
        parallel_collective_overlap_limit: collectives in flight, in the trials.
        disable_async_collectives: kinds that run synchronously in the trials, as in
            `async-collective-annotator`.
    """

    name: ClassVar[str] = "collective-ring-decomposer"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    form: Literal["cheapest", "ring", "bidirectional", "2d"] = "cheapest"
    kinds: tuple[str, ...] = KINDS
    always: bool = False
    columns: int = 0
    min_gain: float = 0.001
    most_instructions: int = MOST_INSTRUCTIONS
    parallel_collective_overlap_limit: int = 1
    disable_async_collectives: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise ValueError(f"kinds must be of {' '.join(KINDS)}, not {unknown[0]}")
        if self.columns < 0 or self.most_instructions < 0:
            raise ValueError("columns and most-instructions must be 0 or more")
        if not 0.0 <= self.min_gain < 1.0:
            raise ValueError("min-gain must be a share of the step, as in 0.001")
        self._schedule().passes()

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find what can be rewritten; then rewrite what pays.

        Raises WrongStateError S017, S018 for a module that no GPU can run, unless
        `always`.
        """
        version = module.version
        if not self.always:
            reason = _reason_to_leave(module, context.pricing)
            if reason:
                report.remark(f"nothing decomposed: {reason}")
                return False
        found = self._rewritable(module, report)
        if not found:
            return False
        channels = count(next_channel_id(module))
        if self.always:
            computations = dict.fromkeys(i.computation for i, _ in found)
            for collective, members in found:
                self._write_always(collective, members, channels, report)
            for computation in computations:
                restore_text_order(computation)
            return module.version != version
        trials = ChainTrials(module, context.pricing, self._schedule())
        _Choice(self, module, trials, dict(_keyed(found)), channels, report).run()
        return module.version != version

    def _rewritable(
        self, module: Module, report: Report
    ) -> list[tuple[Instruction, Members]]:
        graph = build_call_graph(module)
        found: list[tuple[Instruction, Members]] = []
        for computation in module.computations:
            place = ""
            if graph.is_async_body(computation):
                place = "is asynchronous"
            elif graph.is_fusion_body(computation):
                place = "is in a fusion"
            for collective in computation.instructions:
                if collective.opcode not in self.kinds:
                    continue
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
            if form == "bidirectional" and members.size < _BOTH_WAYS:
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

    def _schedule(self) -> GpuSchedule:
        options = {
            "parallel-collective-overlap-limit": str(
                self.parallel_collective_overlap_limit
            ),
            "disable-async-collectives": " ".join(self.disable_async_collectives),
        }
        given = tuple((name, text) for name, text in options.items() if text)
        return GpuSchedule(handed_on=given)


def _reason_to_leave(module: Module, on: Pricing) -> str:
    require_priceable(module, has_costs=bool(on.costs))
    if module.is_scheduled:
        return "the module is scheduled"
    if on.costs or on.profile:
        return "costs by name do not know what would be new"
    return ""


def _keyed(
    found: list[tuple[Instruction, Members]],
) -> Iterator[tuple[Key, tuple[Instruction, Members]]]:
    for collective, members in found:
        yield key_of(collective), (collective, members)


def _on_a_host(members: Members, per_host: int) -> int:
    """Members of each group on each host, if they follow one another; else 0."""
    if not per_host:
        return 0
    sizes: set[int] = set()
    for group in members.groups:
        hosts = [device // per_host for device in group]
        run = next((k for k, host in enumerate(hosts) if host != hosts[0]), len(hosts))
        if len(hosts) % run or any(
            len(set(hosts[k : k + run])) != 1 for k in range(0, len(hosts), run)
        ):
            return 0
        sizes.add(run)
    (size,) = sizes if len(sizes) == 1 else (0,)
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
class _Choice:
    """Decides, collective by collective, by simulated steps."""

    settings: CollectiveRingDecomposer
    module: Module
    trials: ChainTrials
    left: dict[Key, tuple[Instruction, Members]]
    channels: Iterator[int]
    report: Report
    _prices: dict[tuple[object, ...], list[_Chain]] = field(default_factory=dict)

    def run(self) -> None:
        """Rewrite what pays, the most exposed first, until nothing does."""
        now = self.trials.step(self.module.clone(), self.left)
        first = now
        while True:
            remarks: list[str] = []
            taken = self._take_one(now, remarks)
            if taken is None:
                break
            now = taken
        for remark in remarks:
            self.report.remark(f"not decomposed: {remark}")
        if now is not first:
            self.report.details["collective-ring-decomposer"] = {
                "step_us": now.simulated_us,
                "step_us_before": first.simulated_us,
            }

    def _take_one(self, now: Step, remarks: list[str]) -> Step | None:
        """Rewrite the first collective that pays; the step after it, or None."""

        def exposure(key: Key) -> float:
            row = now.rows.get(key)
            return 0.0 if row is None else row.total_exposed_us

        for key in sorted(self.left, key=exposure, reverse=True):
            found = self._judged(key, now, exposure(key))
            if isinstance(found, str):
                remarks.append(f"%{key[1]} {found}")
                continue
            chain, after = found
            collective, members = self.left.pop(key)
            opcode, computation = collective.opcode, collective.computation
            new = write_chains(
                collective, members, chain.form, self.channels, chain.columns
            )
            restore_text_order(computation)
            self.trials.added |= set(map(key_of, new))
            count_chains(self.report, opcode, new)
            return after
        return None

    def _judged(self, key: Key, now: Step, exposed: float) -> tuple[_Chain, Step] | str:
        """The form that makes the step shortest, or why none makes it shorter."""
        worth = self.settings.min_gain * now.us
        if exposed <= worth:
            return f"is exposed for {time_text(exposed)} of {time_text(now.us)}"
        row, hiding = now.rows[key], now.hiding_us(key)
        chains = self._chains(key)
        in_flight = self.settings.parallel_collective_overlap_limit
        promising = [
            chain for chain in chains if chain.us / in_flight - hiding < row.exposed_us
        ]
        if not promising:
            least = chains[0]
            return (
                f"stays: {_WORDS[least.form]} costs {time_text(least.us)}, the "
                f"{row.opcode} {time_text(row.latency_us)}, and {time_text(hiding)} of "
                "compute can hide it"
            )
        best: tuple[_Chain, Step] | None = None
        said = ""
        for chain in promising:
            if (
                self.trials.spent + self.module.instruction_count
                > self.settings.most_instructions
            ):
                said = said or "is not tried: the trials have used most-instructions up"
                break
            after = self._tried(key, chain)
            said = said or (
                f"stays: the step takes {time_text(after.us)} with "
                f"{_WORDS[chain.form]}, {time_text(now.us)} without"
            )
            if after.timeline.fits is False and now.timeline.fits is not False:
                said = f"stays: {_WORDS[chain.form]} does not fit into memory"
            elif (
                now.us - after.us > worth
                and after.simulated_us <= now.simulated_us
                and (best is None or after.us < best[1].us)
            ):
                best = chain, after
        return said if best is None else best

    def _chains(self, key: Key) -> list[_Chain]:
        """The forms of a collective, the cheapest first."""
        collective, members = self.left[key]
        like = (
            collective.opcode,
            collective.shape.text,
            tuple(o.shape.text for o in collective.operands),
            members,
        )
        if like not in self._prices:
            found: list[_Chain] = []
            per_host = self.trials.machine.devices_per_host
            for form, columns in self.settings.forms(
                collective.opcode, members, per_host
            ):
                _, new = self._rewritten(key, form, columns)
                price = sequential_sum(
                    self.trials.fair_us(i) for i in new if i.opcode == _PERMUTE
                )
                found.append(_Chain(form, columns, price))
            self._prices[like] = sorted(found, key=lambda chain: chain.us)
        return self._prices[like]

    def _tried(self, key: Key, chain: _Chain) -> Step:
        copy, new = self._rewritten(key, chain.form, chain.columns)
        others = [other for other in self.left if other != key]
        return self.trials.step(copy, others, new)

    def _rewritten(
        self, key: Key, form: Form, columns: int
    ) -> tuple[Module, list[Instruction]]:
        """A copy of the module with one collective as permutes."""
        copy = self.module.clone()
        computation = copy.computation(key[0])
        collective = None if computation is None else computation.find(key[1])
        assert computation is not None
        assert collective is not None
        members = self.left[key][1]
        channels = count(next_channel_id(copy))
        new = write_chains(collective, members, form, channels, columns)
        restore_text_order(computation)
        return copy, new
