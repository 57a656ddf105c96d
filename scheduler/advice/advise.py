"""Says what to change about each exposed collective, after trying it.

    timeline = simulate_on(module, on, rules, with_range=True)
    timeline = advised(timeline, module, on, rules)
    timeline.advice[0].to_text()    'a second collective in flight: -340.5 us, verified'

A change of the order alone is tried by scheduling the module again, with our scheduler
in XLA's place; a change that XLA makes before its scheduler is tried on the module with
its collectives made synchronous again. Both first without the change: only where that
gives the step of the module as given, the difference is the change's. What cannot be
tried is said to be not verified, and where nothing helps, that is said, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hlo_passes.ir.gpu_config import collective_config
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.advice.trials import (
    MOST_INSTRUCTIONS,
    Form,
    Key,
    Trial,
    Trials,
    keyed,
)
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.simulation.advice import Advice, in_the_program
from hlo_passes.scheduler.simulation.causes import NOTHING_BESIDE
from hlo_passes.scheduler.simulation.collective_groups import groups_of
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, TimelineData
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.xla_release import XlaRelease

#: Modules whose times are those of a GPU, as far as anything shows.
_STAGES: Final = ("gpu-scheduled", "scheduled")
#: Less than this share of the step is not worth a change.
_WORTH: Final = 0.005
#: A control must give the step of the module as given, up to this share.
_SAME: Final = 0.01
#: Of a collective's exposure, the share from which on a change concerns it.
_CONCERNS: Final = 0.1
#: What no flag of XLA does must save this much more than what one does.
_MORE: Final = 1.05
_OVERLAP: Final = "overlap limit"
_OVERLAP_OPTION: Final = "parallel-collective-overlap-limit"
_SEVERAL: Final = 2
#: Forms of the module that have its pairs; XLA starts from the first one.
_ORDERED_FORMS: Final[tuple[Form, ...]] = ("unordered", "given")
#: The search is short: what it finds is a hint.
_SHORT_SEARCH: Final = ScheduleImprover(effort=0.1, rounds=2, min_gain=_WORTH)


@dataclass(frozen=True, slots=True)
class _Lever:
    """A change, as a lever of `tuning` sets it.

    Attributes:
        words: for a reader; `{kind}` is the collective's.
        lever: its name in the table.
        setting: its setting there.
        kind: of the collectives that it is about; '' for all.
        passes: that do it, on the plain form; () for an option of the scheduler.
        in_loops: whether it only touches loops.
    """

    words: str
    lever: str
    setting: str
    kind: str = ""
    passes: tuple[tuple[str, dict[str, object]], ...] = ()
    in_loops: bool = False

    def flag(self, release: XlaRelease) -> str:
        """What sets it in a job; '' where the release does not have it."""
        flags = LEVERS[self.lever].candidate(self.setting).flags_in(release)
        return " ".join(flag.setting for flag in flags)

    def concerns(self, row: CollectiveRow, timeline: TimelineData) -> bool:
        """Whether it is about a collective at all."""
        is_looped = timeline.computations[row.computation].trip_count > 1
        return self.kind in ("", row.opcode) and (is_looped or not self.in_loops)


#: Changes of the order alone.
_ORDERS: Final = (
    _Lever("a second collective in flight", _OVERLAP, "2"),
    _Lever("four collectives in flight", _OVERLAP, "4"),
    _Lever("a second communication stream", "several streams", "on"),
    _Lever("collectives that start as early as they can", "early starts", "on"),
)
_CLEAN: Final = (("tuple-simplifier", {}), ("hlo-dce", {}))


def _pipelined(kind: str, direction: str) -> _Lever:
    return _Lever(
        f"pipelining the {kind}s of the loop",
        f"pipelined {kind}",
        "on",
        kind,
        ((f"collective-pipeliner-{direction}", {"op": kind}), ("hlo-dce", {})),
        in_loops=True,
    )


#: Changes that XLA makes before its scheduler.
_REWRITES: Final = (
    _pipelined("all-gather", "backward"),
    _pipelined("reduce-scatter", "forward"),
    _pipelined("all-reduce", "forward"),
    _Lever(
        "two iterations of the loop as one",
        "loop unrolling",
        "double buffering",
        passes=(("loop-double-buffer-transformer", {}), *_CLEAN),
        in_loops=True,
    ),
    *(
        _Lever(
            f"larger combined {kind}s",
            f"combined {kind}",
            "128 MiB",
            kind,
            ((f"gpu-{kind}-combiner", {"threshold_bytes": 128 << 20}),),
        )
        for kind in ("all-gather", "reduce-scatter", "all-reduce")
    ),
)


def advised(
    timeline: Timeline,
    module: Module,
    on: Pricing,
    rules: Rules,
    *,
    most_instructions: int = MOST_INSTRUCTIONS,
) -> Timeline:
    """The timeline with advice, most saving first.

    Without exposed collectives, for a module that is not for a GPU, or whose times are
    measured, nothing is said.

    Args:
        timeline: of the module, with its range.
        module: not changed.
        on: as it was simulated.
        rules: as it was simulated.
        most_instructions: that may be scheduled and simulated again, in all.
    """
    exposed = [row for row in timeline.collectives if row.total_exposed_us > 0.0]
    if (
        timeline.state.stage not in _STAGES
        or timeline.overlay is not None
        or rules.xla_statistic
        or not exposed
    ):
        return timeline
    found = reported(module, on)
    priced_on = replace(found.on, xla=found.release.name)
    trials = Trials(module, priced_on, rules, timeline, most_instructions)
    adviser = _Adviser(timeline, module, trials, found.release, exposed)
    return replace(timeline, advice=tuple(adviser.advice()), not_tried=trials.left_out)


@dataclass(slots=True)
class _Adviser:
    """Tries changes of one module."""

    timeline: TimelineData
    module: Module
    trials: Trials
    release: XlaRelease
    exposed: Sequence[CollectiveRow]

    def advice(self) -> list[Advice]:
        """All of it: verified changes, what was not verified, what to leave."""
        changes: list[Advice] = []
        unverified: list[Advice] = []
        if not self._is_at_bound():
            changes += self._of_the_order()
            # A flag that saves as much is less work than a pass of our own.
            flagged = max((a.saved_us for a in changes if a.xla_flag), default=0.0)
            changes = [a for a in changes if a.xla_flag or a.saved_us > _MORE * flagged]
            for advice in self._of_rewrites():
                (changes if advice.verified else unverified).append(advice)
        changes.sort(key=lambda a: (-a.saved_us, a.change))
        unverified.sort(key=lambda a: (-a.most_us, a.change))
        said = {name for each in (*changes, *unverified) for name in each.concerns}
        return [*changes, *unverified, *self._leave(said)]

    @property
    def _step_us(self) -> float:
        return self.timeline.step_time_us

    def _is_at_bound(self) -> bool:
        bound = self.timeline.any_structure.us
        return self._step_us - bound <= _WORTH * self._step_us

    # -- the order alone ----------------------------------------------------

    def _of_the_order(self) -> Iterator[Advice]:
        """Changes of XLA's scheduler, then our own search."""
        if self._no_order_is_better():
            return
        limit = self._in_flight()
        control = self._control(_ORDERED_FORMS, {_OVERLAP_OPTION: str(limit)})
        if control is None:
            control, limit = self._control(_ORDERED_FORMS, {}), 1
        if control is None:
            yield from self._without_scheduler()
        elif len(self.timeline.collectives) > 1:
            yield from self._with_scheduler(control, limit)
        trial = self.trials.run("given", (), (_SHORT_SEARCH,))
        if trial is not None:
            words = "another order, found by schedule-improver"
            yield from self._verified(words, "", trial, self._step_us)

    def _with_scheduler(
        self, control: tuple[Form, Trial], limit: int
    ) -> Iterator[Advice]:
        """The best of the limits, and on top of it what needs one above 1."""
        form, before = control
        best, chosen = before, {_OVERLAP_OPTION: str(limit)}
        taken: list[_Lever] = []
        for lever in _ORDERS:
            candidate = LEVERS[lever.lever].candidate(lever.setting)
            if lever.lever == _OVERLAP and int(lever.setting) <= limit:
                continue
            if lever.lever != _OVERLAP and int(chosen[_OVERLAP_OPTION]) < _SEVERAL:
                continue
            options = chosen | dict(candidate.options)
            trial = self.trials.run(form, (_scheduler(options),))
            if trial is None or best.step_us - trial.step_us <= _WORTH * self._step_us:
                continue
            best, chosen = trial, options
            # A larger limit takes the place of a smaller one.
            taken = [each for each in taken if each.lever != lever.lever] + [lever]
        if taken:
            words = " and ".join(each.words for each in taken)
            flags = " ".join(each.flag(self.release) for each in taken)
            yield from self._verified(words, flags, best, before.step_us)

    def _without_scheduler(self) -> Iterator[Advice]:
        """Whether the order is one that XLA made without its scheduler."""
        off = GpuSchedule(enable_latency_hiding_scheduler=False)
        for form in _ORDERED_FORMS:
            before = self.trials.run(form, (off,))
            if before is not None and self._is_same(before):
                break
        else:
            return
        trial = self.trials.run(form, (_scheduler({}),))
        if trial is not None:
            candidate = LEVERS["scheduler"].candidate("on")
            flag = " ".join(f.setting for f in candidate.flags_in(self.release))
            words = "XLA's latency-hiding scheduler, which did not order this module"
            yield from self._verified(words, flag, trial, before.step_us)

    def _control(
        self, forms: Iterable[Form], options: dict[str, str]
    ) -> tuple[Form, Trial] | None:
        """The form whose own schedule takes as long as the module as given."""
        for form in forms:
            trial = self.trials.run(form, (_scheduler(options),))
            if trial is not None and self._is_same(trial):
                return form, trial
        return None

    def _is_same(self, trial: Trial) -> bool:
        return abs(trial.step_us - self._step_us) <= _SAME * self._step_us

    def _no_order_is_better(self) -> bool:
        """Whether the bound for all orders is reached.

        It takes for granted what is synchronous; another order may make that start.
        """
        is_synchronous = any(row.stream is None for row in self.exposed)
        gap = self.timeline.times.gap_us
        return gap <= _WORTH * self._step_us and not is_synchronous

    def _in_flight(self) -> int:
        """The most collectives that are in flight together."""
        most = 1
        for name in self.timeline.computations:
            rows = [r for r in self.timeline.collectives_of(name) if r.done]
            events = [(r.start_us, 1) for r in rows] + [(r.done_us, -1) for r in rows]
            flying = 0
            for _, change in sorted(events):
                flying += change
                most = max(most, flying)
        return most

    # -- what XLA changes before its scheduler ------------------------------

    def _of_rewrites(self) -> Iterator[Advice]:
        levers = [lever for lever in _REWRITES if self._rows(lever)]
        if not levers:
            return
        control: tuple[Form, Trial] | None = None
        limit = {_OVERLAP_OPTION: str(self._in_flight())}
        if not self.trials.has_named_costs:
            control = self._control(("plain",), limit)
        for lever in levers:
            flag = lever.flag(self.release)
            if not flag:
                continue
            trial = None
            if control is not None:
                rewrites = [find_pass(n)(**options) for n, options in lever.passes]
                trial = self.trials.run("plain", (_scheduler(limit),), rewrites)
            if control is not None and trial is not None:
                before = control[1].step_us
                yield from self._verified(
                    lever.words, flag, trial, before, rows=self._rows(lever)
                )
            elif lever.in_loops and lever.kind:
                yield self._unverified(lever, flag)

    def _unverified(self, lever: _Lever, flag: str) -> Advice:
        rows = self._rows(lever)
        most = min(
            sequential_sum(row.total_exposed_us for row in rows),
            self._step_us - self.timeline.any_structure.us,
        )
        return Advice(
            lever.words, flag, most_us=most, concerns=frozenset(map(_name, rows))
        )

    def _rows(self, lever: _Lever) -> list[CollectiveRow]:
        """The exposed collectives that a rewrite may help."""
        rows = [r for r in self.exposed if lever.concerns(r, self.timeline)]
        if lever.lever.startswith("pipelined"):
            rows = [row for row in rows if not self._is_pipelined(row)]
        elif lever.lever.startswith("combined"):
            # One alone cannot be combined.
            alone = {r.computation for r in rows}
            of_kind = [r for r in self.timeline.collectives if r.opcode == lever.kind]
            many = {c for c in alone if sum(r.computation == c for r in of_kind) > 1}
            rows = [row for row in rows if row.computation in many]
        total = sequential_sum(row.total_exposed_us for row in rows)
        return rows if total > _WORTH * self._step_us else []

    def _is_pipelined(self, row: CollectiveRow) -> bool:
        computation = self.module.computation(row.computation)
        assert computation is not None, row.computation
        start = next(i for i in computation.instructions if i.name == row.name)
        return collective_config(start).get("is_pipelined") is True

    # -- what comes out -----------------------------------------------------

    def _verified(
        self,
        words: str,
        flag: str,
        trial: Trial,
        before_us: float,
        rows: Sequence[CollectiveRow] = (),
    ) -> Iterator[Advice]:
        """The advice, if the change is worth it and no setting turns it around."""
        saved = before_us - trial.step_us
        if saved <= _WORTH * self._step_us:
            return
        concerned = frozenset(map(_name, rows or self._relieved(trial.exposed_us)))
        memory, given = trial.timeline.footprint, self.timeline.footprint
        yield Advice(
            words,
            flag,
            self._step_us - saved,
            verified=True,
            saved_us=saved,
            pipeline=trial.pipeline if not flag else "",
            peak_bytes=memory.peak_bytes,
            more_bytes=memory.peak_bytes - given.peak_bytes,
            sure=self.trials.change(self.timeline, trial),
            concerns=concerned,
        )

    def _relieved(self, after: Mapping[Key, float]) -> list[CollectiveRow]:
        """The collectives that are less exposed than before."""
        return [
            row
            for key, row in keyed(self.module, self.timeline)
            if row.total_exposed_us > 0.0
            and after.get(key, row.total_exposed_us)
            <= (1.0 - _CONCERNS) * row.total_exposed_us
        ]

    def _leave(self, said: set[tuple[str, str]]) -> Iterator[Advice]:
        """Of collectives that no change concerns, why to leave them."""
        for group in groups_of(self.exposed):
            rows = [row for row in group.rows if _name(row) not in said]
            if rows:
                proven = self._is_at_bound() or (
                    rows[0].stream is not None and self._no_order_is_better()
                )
                yield Advice(
                    self._why_leave(rows[0]),
                    step_time_us=self._step_us,
                    verified=proven,
                    concerns=frozenset(map(_name, rows)),
                )

    def _why_leave(self, row: CollectiveRow) -> str:
        if self._is_at_bound():
            return "leave it: the bound for any structure is reached"
        if row.cause_kind == "hidden":
            return "leave it: this is what is left at its ends"
        if row.stream is not None and self._no_order_is_better():
            tried = "leave it: no order is faster, the bound is reached"
        elif self.trials.left_out:
            tried = (
                "not everything was tried, since the budget is "
                f"{self.trials.most_instructions:,} instructions scheduled again"
            )
        else:
            tried = "nothing that was tried shortens the step"
        has_work = not row.cause.endswith(NOTHING_BESIDE)
        kind = row.cause_kind if has_work else "nothing-left"
        return f"{tried}; in the program: {in_the_program(kind)}"


def _name(row: CollectiveRow) -> tuple[str, str]:
    return row.computation, row.name


def _scheduler(options: dict[str, str]) -> Pass:
    return GpuSchedule(handed_on=tuple(options.items()))
