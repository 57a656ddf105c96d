"""Chooses by price what carries each collective: NCCL, a kernel, or a measured way.

Before:  %r = f32[64,8] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add
After:   %r = ..., backend_config={"collective_backend_config":{...
             "kernel_strategy":"KERNEL_STRATEGY_TRITON_ONE_SHOT"}...}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from hlo_passes.analysis.executions import executions
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.backend_rows import (
    BACKENDS,
    BackendRow,
    backend_rows,
)
from hlo_passes.scheduler.latency.measured_lines import MeasuredLine, spans_where_less
from hlo_passes.scheduler.passes.backend_offers import DEFAULTS, Offer, Offers, Way
from hlo_passes.scheduler.passes.chain_choice import collectives_of, found_in
from hlo_passes.scheduler.passes.collective_kernels import KernelChoice
from hlo_passes.scheduler.passes.priced_chains import (
    SPENT,
    ChainTrials,
    Key,
    Step,
    key_of,
)
from hlo_passes.scheduler.passes.priced_pass import PricedPass
from hlo_passes.scheduler.simulation.units import bytes_text, time_text
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.xla_release import XlaRelease

#: What a way is called in remarks, by backend.
_WORDS: Final = {
    "kernel": "the kernel",
    "peer": "reading peers' memory",
    "symmetric": "registered memory",
    "copies": "copies between peers",
    "nvshmem": "NVSHMEM",
}
_KINDS: Final = tuple(dict.fromkeys(row.kind for row in backend_rows()))
#: Messages among which a crossover is looked for, 1 KiB to 1 GiB.
_SIZES: Final = tuple(1 << k for k in range(10, 31))


@dataclass(frozen=True, slots=True)
class CollectiveBackendChoice(PricedPass):
    """Choose how to carry out each collective, by price, and write it into its config.

    A table (`scheduler/data/collective_backends.csv`) lists the ways to carry out a
    collective:

    - XLA's kernels over NVLink, for all-reduces and all-gathers;
    - the memory of peers, or registered memory, for permutes and all-gathers;
    - registered memory, for reductions;
    - copies between peers in place of NCCL's sends, for all-to-alls;
    - NVSHMEM.

    Each row of the table names the kind, types, reductions, devices, bytes and reach to
    which it applies, and where its price comes from.

    A kernel has the price that the estimators give an annotated collective. Every other
    row is off until somebody measures it: `calibrate` fits a line, which you give in
    `measured-lines` or in the target's file. The pass takes the cheapest way, if it
    costs less than NCCL by the model, and also less than NCCL's fair price. The fair
    price is needed because XLA's table of measured collectives has noise: a larger
    message may cost less than a smaller one.

    The pass judges kernels once more by the step. It schedules and simulates the module
    before and after, and does not write kernels that make the step longer. If a kernel
    is noted already but NCCL costs less, the pass removes the note. No estimator prices
    the measured ways, so `simulate` shows no gain for them; a remark names both prices.

    If XLA has no field for a choice, the pass writes nothing, and a remark says what
    XLA has instead. One flag for the whole module makes XLA copy all-to-alls within a
    host. Another flag gives reductions registered memory. XLA no longer has NVSHMEM.

    Registered memory cannot hold arguments, constants and results. XLA copies them
    first, and these copies are part of the price. If something else asks for other
    memory for the same buffer, registered memory is ruled out; the remark names both.

    XLA's combiners drop the backend config of what they combine, so this pass belongs
    after them. XLA's own annotator notes kernels for all-reduces without asking for a
    price. If this pass dropped a kernel, set
    `xla_gpu_experimental_use_collective_kernels` to empty, so that XLA does not note it
    again.

    Requires: an unscheduled module and no file of costs by name.
    Ensures: the step does not get longer if `gpu-schedule` schedules it and `simulate`
        measures it; results stay the same.
    Complexity: `gpu-schedule` and `simulate`, twice, and once more for each kernel if
        all kernels together make the step longer; otherwise linear.
    Source: this project; XLA decides by bytes and flags.

    Attributes:
        backends: the ways that the pass may choose, separated by blanks: kernel, peer,
            symmetric, copies, nvshmem; `nccl` alone: none of them.
        measured_lines: prices of rows, separated by blanks: ROW:SETUP_US:GB_PER_S, with
            the rate of what each device sends. They win over those of the target.
        min_gain: least share of its price that a collective must save.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "collective-backend-choice"
    left: ClassVar[str] = "nothing chosen"
    needs_collectives: ClassVar[bool] = True

    backends: tuple[str, ...] = ("kernel", "peer", "symmetric", "copies")
    measured_lines: tuple[str, ...] = ()
    xla: str = ""

    def __post_init__(self) -> None:
        """Refuse values out of range (U013)."""
        known = (*BACKENDS, "nccl")
        unknown = [b for b in self.backends if b not in known]
        if unknown:
            raise ValueError(f"backends must be of {' '.join(known)}, not {unknown[0]}")
        self._lines(self.measured_lines)
        PricedPass.__post_init__(self)

    @staticmethod
    def _lines(texts: Iterable[str]) -> list[MeasuredLine]:
        return [MeasuredLine.parse(text) for text in texts]

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Price every way of every collective; then write what pays."""
        found: list[Instruction] = []
        for collective, place in collectives_of(module, _KINDS):
            if place:
                report.remark(f"not chosen: %{collective.name} {place}")
            else:
                found.append(collective)
        if not found:
            return
        release = context.release_for(module, self.xla)
        on = replace(context.pricing, xla=release.name)
        trials = ChainTrials(module, on, self.schedule)
        given = (*target(on.target).lines, *self._lines(self.measured_lines))
        offers = Offers(
            module,
            trials,
            KernelChoice.of(module, on, release),
            {line.row: line for line in given},
            self.backends,
            context.xla_quirks,
        )
        choice = _Choice(self, module, trials, offers, release, report)
        choice.run(found)


@dataclass(frozen=True, slots=True)
class _Decision:
    """What a collective should have: a way, or NCCL in place of a kernel."""

    key: Key
    way: Way | None
    now: BackendRow | None
    saved_us: float

    @property
    def is_simulated(self) -> bool:
        """Whether `simulate` knows its price."""
        return self.way is None or self.way.row.price == "kernel"

    @property
    def fields(self) -> dict[str, str]:
        """Fields of the config, with the values that carry it out."""
        rows = (self.now, None if self.way is None else self.way.row)
        given = {r.spelling: DEFAULTS[r.spelling] for r in rows if r is not None}
        if self.way is not None:
            given[self.way.row.spelling] = self.way.row.value
        return given


@dataclass(slots=True)
class _Choice:
    """Decides for the collectives of one module."""

    options: CollectiveBackendChoice
    module: Module
    trials: ChainTrials
    offers: Offers
    release: XlaRelease
    report: Report
    _exchanges: list[tuple[Instruction, Way, Offer]] = field(default_factory=list)

    def run(self, found: Sequence[Instruction]) -> None:
        """Decide, write what has a field, and say what has none."""
        reason = self.offers.against_kernels
        if reason and "kernel" in self.options.backends:
            self._refuse(f"kernels, since {reason}")
        decided = [
            decision
            for collective in found
            if (decision := self._decision(collective)) is not None
        ]
        kernels = [d for d in decided if d.is_simulated]
        for decision in self._kept_by_the_step(kernels):
            self._write(decision)
        for decision in decided:
            if not decision.is_simulated:
                self._write(decision)
        self._tell_of_the_flag()
        for name, count in self.offers.missing.items():
            self.report.remark(
                f"off: {name} takes {count} of the collectives, but nobody measured "
                f"it: measured-lines={name}:SETUP_US:GB_PER_S, as calibrate writes it"
            )

    def _decision(self, collective: Instruction) -> _Decision | None:
        offer = self.offers.of(collective)
        name, opcode = collective.name, collective.opcode
        for backend, reason in offer.reasons.items():
            if backend == "kernel" and offer.now is not None:
                continue
            self._refuse(f"{_WORDS[backend]} for %{name}, which {reason}")
        worth = 1.0 - self.options.min_gain
        if opcode == "all-to-all":
            for way in offer.ways:
                self._tell_of_exchange(collective, way, offer)
            return None
        written = [way for way in offer.ways if way.row.spelling in DEFAULTS]
        best = min(written, key=lambda way: way.us, default=None)
        for way in offer.ways:
            others = [offer.fair_us] + ([] if best is None else [best.us])
            if way not in written and way.us < worth * min(others):
                self._tell_without_field(collective, way, offer)
        now = offer.way_now
        if now is not None and now.row.price == "kernel" and now is best:
            # It has a kernel, and NCCL is all that may cost less.
            if offer.nccl_us < worth * now.us:
                return _Decision(key_of(collective), None, now.row, now.us)
            return None
        if best is None or best is now:
            return None
        if best.us >= worth * offer.fair_us:
            self._refuse(
                f"%{name} stays: {_WORDS[best.row.backend]} costs "
                f"{time_text(best.us)}{_with_copies(best)}, the {opcode} "
                f"{time_text(offer.fair_us)}"
            )
            return None
        if offer.now is not None and offer.now.spelling != best.row.spelling:
            self._refuse(f"%{name} has {offer.now.value} already")
            return None
        return _Decision(key_of(collective), best, offer.now, offer.fair_us - best.us)

    # -- what the step says --------------------------------------------------

    def _kept_by_the_step(self, decided: list[_Decision]) -> list[_Decision]:
        """What leaves the step no longer: all together, else one after another."""
        if not decided:
            return []
        if self.trials.is_spent(self.options.most_instructions):
            for decision in decided:
                self._refuse(f"%{decision.key[1]} {SPENT}")
            return []
        keys = [decision.key for decision in decided]
        before = now = self.trials.step(self.module.clone(), keys)
        after = self._step_with(decided, keys)
        kept = decided
        if _is_longer(after, before):
            kept = []
            for decision in sorted(decided, key=lambda d: -d.saved_us):
                if self.trials.is_spent(self.options.most_instructions):
                    self._refuse(f"%{decision.key[1]} {SPENT}")
                    continue
                after = self._step_with([*kept, decision], keys)
                if _is_longer(after, now):
                    self._refuse(
                        f"%{decision.key[1]} stays: the step takes "
                        f"{time_text(after.simulated_us)} with "
                        f"{_words_of(decision)}, {time_text(now.simulated_us)} without"
                    )
                else:
                    kept, now = [*kept, decision], after
        else:
            now = after
        if kept:
            self.report.details[self.options.name] = {
                "step_us": now.simulated_us,
                "step_us_before": before.simulated_us,
            }
        return kept

    def _step_with(self, decided: Iterable[_Decision], keys: list[Key]) -> Step:
        copy = self.module.clone()
        for decision in decided:
            collective = found_in(copy, decision.key)
            set_collective_fields(collective, self.release, **decision.fields)
        return self.trials.step(copy, keys)

    # -- what is written, and what is said -----------------------------------

    def _write(self, decision: _Decision) -> None:
        collective = found_in(self.module, decision.key)
        set_collective_fields(collective, self.release, **decision.fields)
        if decision.way is None:
            self.report.count("kernels-dropped")
            return
        backend = decision.way.row.backend
        self.report.count(
            f"{backend}s-chosen" if backend == "kernel" else "modes-chosen"
        )
        if decision.way.row.price != "kernel":
            self.report.remark(
                f"chosen by a measured line, which no estimator knows: "
                f"{_WORDS[backend]} for %{collective.name}, "
                f"{time_text(decision.way.us)}{_with_copies(decision.way)}, "
                f"{time_text(decision.saved_us)} less than NCCL"
            )

    def _refuse(self, why: str) -> None:
        self.report.remark(f"not chosen: {why}")

    def _tell_without_field(
        self, collective: Instruction, way: Way, offer: Offer
    ) -> None:
        row = way.row
        told = f"XLA has a flag for the whole module alone, {row.value}"
        if not row.spelling:
            told = "XLA has no spelling for it"
        self.report.remark(
            f"not written: {_WORDS[row.backend]} for %{collective.name} costs "
            f"{time_text(way.us)}{_with_copies(way)}, NCCL {time_text(offer.fair_us)}, "
            f"but {told}"
        )

    def _tell_of_exchange(
        self, collective: Instruction, way: Way, offer: Offer
    ) -> None:
        """Which of copies and sends is cheaper, and from which size on copies are."""
        self._exchanges.append((collective, way, offer))
        line = self.offers.lines[way.row.name]
        share = Offers.sent_bytes(collective) / _message_bytes(collective)
        prices = self.offers.exchange_us(collective, iter(_SIZES))
        by_size = dict(zip(_SIZES, prices, strict=True))
        spans = spans_where_less(
            lambda size: line.us(share * size), by_size.__getitem__, _SIZES
        )
        wins = way.us < (1.0 - self.options.min_gain) * offer.fair_us
        self.report.remark(
            f"%{collective.name}: {'copies' if wins else 'send and recv'} cost less "
            f"(copies {time_text(way.us)}, send and recv {time_text(offer.fair_us)}); "
            f"copies do {_spans_text(spans)}"
        )

    def _tell_of_the_flag(self) -> None:
        """What the flag for the whole module would cost, every loop counted."""
        if not self._exchanges:
            return
        runs = executions(TripCounts(self.module))
        copies = self._total(runs, [(c, way.us) for c, way, _ in self._exchanges])
        sends = self._total(runs, [(c, o.fair_us) for c, _, o in self._exchanges])
        flag = self._exchanges[0][1].row.value
        better = copies < (1.0 - self.options.min_gain) * sends
        self.report.remark(
            f"not written: {flag}={'true' if better else 'false'} costs less "
            f"(all-to-alls within a host: {len(self._exchanges)}, {time_text(copies)} "
            f"by copies, {time_text(sends)} by send and recv); XLA has no field for "
            "one of them, and no estimator prices the flag"
        )

    def _total(
        self, runs: dict[Computation, int], prices: list[tuple[Instruction, float]]
    ) -> float:
        return sequential_sum(runs.get(c.computation, 0) * us for c, us in prices)


def _is_longer(after: Step, before: Step) -> bool:
    return after.simulated_us > before.simulated_us or after.us > before.us


def _words_of(decision: _Decision) -> str:
    return "NCCL" if decision.way is None else _WORDS[decision.way.row.backend]


def _with_copies(way: Way) -> str:
    """What of a price are copies, and of what."""
    if not way.copied:
        return ""
    return f" with {time_text(way.copies_us)} for copies of {', '.join(way.copied)}"


def _spans_text(spans: Sequence[tuple[int, int]]) -> str:
    """`from 64.0 KiB to 8.0 MiB`, of messages of powers of two; `at no size`."""
    if not spans:
        return "at no size"
    if spans == ((_SIZES[0], _SIZES[-1]),):
        return "at every size"
    named = [
        f"from {bytes_text(low)} on"
        if high == _SIZES[-1]
        else f"up to {bytes_text(high)}"
        if low == _SIZES[0]
        else f"from {bytes_text(low)} to {bytes_text(high)}"
        for low, high in spans
    ]
    return ", ".join(named)


def _message_bytes(collective: Instruction) -> int:
    return max(1, sum(operand.shape.byte_size for operand in collective.operands))
