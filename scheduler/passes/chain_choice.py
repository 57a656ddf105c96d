"""Decides by simulated steps which collectives become chains, and of which form.

    choice = ...(ChainChoice), with the forms and the writer of a pass
    choice.run()       the most exposed collective first, until nothing pays

Each form that can pay is written into a copy of the module; the copy is scheduled and
simulated (`priced_chains.py`). The form that makes the step shortest is taken, if the
step becomes shorter twice: by `simulate`, and with prices that never fall as bytes
rise. Then all collectives that are left are looked at again. Of what was taken, as much
is written into the module as makes XLA's step shortest (`in_xla.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Report
from hlo_passes.scheduler.passes.in_xla import most_that_pay, stays
from hlo_passes.scheduler.passes.priced_chains import (
    SPENT,
    ChainTrials,
    Key,
    Step,
    key_of,
)
from hlo_passes.scheduler.passes.priced_pass import PricedRewrite
from hlo_passes.scheduler.simulation.units import time_text

#: What is known of a collective that can be rewritten, and a form of its chain.
SiteT = TypeVar("SiteT")
FormT = TypeVar("FormT")
OptionsT = TypeVar("OptionsT", bound=PricedRewrite)
#: In a group of two both directions are one.
LEAST_BOTH_WAYS: Final = 3


def collectives_of(
    module: Module, kinds: tuple[str, ...]
) -> Iterator[tuple[Instruction, str]]:
    """Collectives of these kinds; why the place of each rules it out, or ''."""
    graph = build_call_graph(module)
    for computation in module.computations:
        place = ""
        if graph.is_async_body(computation):
            place = "is asynchronous"
        elif graph.is_fusion_body(computation):
            place = "is in a fusion"
        for collective in computation.instructions:
            if collective.opcode in kinds:
                yield collective, place


@dataclass(frozen=True, slots=True)
class _Taken(Generic[SiteT, FormT]):
    """A collective that a trial takes in a form, and the step with it."""

    key: Key
    site: SiteT
    form: FormT
    step: Step


@dataclass(slots=True)
class ChainChoice(ABC, Generic[OptionsT, SiteT, FormT]):
    """Decides, collective by collective, by simulated steps.

    Attributes:
        options: of the pass.
        module: that is rewritten.
        trials: of its copies.
        left: what can be rewritten.
        channels: new ones, for the module.
        report: that counts and explains.
    """

    options: OptionsT
    module: Module
    trials: ChainTrials
    left: dict[Key, SiteT]
    channels: Iterator[int]
    report: Report

    @abstractmethod
    def promising(self, key: Key, now: Step) -> list[FormT] | str:
        """The forms that can pay, the best first, or why there is none."""

    @abstractmethod
    def words(self, form: FormT) -> str:
        """What a form is called in remarks."""

    @abstractmethod
    def write(
        self,
        collective: Instruction,
        site: SiteT,
        form: FormT,
        channels: Iterator[int],
    ) -> list[Instruction]:
        """Rewrite a collective of the module or of a copy; all that is new."""

    @abstractmethod
    def count(self, opcode: str, new: list[Instruction]) -> None:
        """Count a collective of the module that was rewritten."""

    def run(self, refusal: str) -> None:
        """Rewrite what pays, the most exposed first, until nothing does.

        Args:
            refusal: how remarks on collectives that stay begin.
        """
        if self._is_spent():
            for _, name in self.left:
                self.report.remark(f"{refusal}: %{name} {SPENT}")
            return
        # What is tried is written into a copy, what is kept into the module.
        given = self.module
        self.module = self.trials.module = given.clone()
        first = self.trials.step(self.module.clone(), self.left)
        taken: list[_Taken[SiteT, FormT]] = []
        in_xla: list[float] = []
        while True:
            remarks: list[str] = []
            now = taken[-1].step if taken else first
            found = self._take_one(now, remarks)
            if found is None:
                break
            taken.append(found)
            if not self.options.after_xla:
                continue
            if not in_xla:
                in_xla.append(self._in_xla_us(given))
            in_xla.append(self._in_xla_us(self.module))
        self.module = given
        kept = most_that_pay(in_xla) if self.options.after_xla else len(taken)
        for one in taken[:kept]:
            opcode = found_in(given, one.key).opcode
            self.count(opcode, self._write(one.key, one.site, one.form, self.channels))
        for one, us in zip(taken[kept:], in_xla[kept + 1 :], strict=True):
            what = f"with {self.words(one.form)}"
            remarks.append(f"%{one.key[1]} {stays(us, what, in_xla[kept])}")
        for remark in remarks:
            self.report.remark(f"{refusal}: {remark}")
        if kept:
            self.report.details[self.options.name] = {
                "step_us": taken[kept - 1].step.simulated_us,
                "step_us_before": first.simulated_us,
            }

    def _is_spent(self) -> bool:
        options = self.options
        return self.trials.is_spent(
            options.most_instructions, after_xla=options.after_xla
        )

    def _in_xla_us(self, module: Module) -> float:
        """How long the step of a module takes after XLA's own passes."""
        return self.trials.followed_us(module.clone(), self.options.follow)

    def _take_one(self, now: Step, remarks: list[str]) -> _Taken[SiteT, FormT] | None:
        """Rewrite the first collective that pays; what was taken, or None."""

        def exposure(key: Key) -> float:
            row = now.rows.get(key)
            return 0.0 if row is None else row.total_exposed_us

        for key in sorted(self.left, key=exposure, reverse=True):
            found = self._judged(key, now, exposure(key))
            if isinstance(found, str):
                remarks.append(f"%{key[1]} {found}")
                continue
            form, after = found
            site = self.left.pop(key)
            new = self._write(key, site, form, count(next_channel_id(self.module)))
            self.trials.added |= set(map(key_of, new))
            return _Taken(key, site, form, after)
        return None

    def _write(
        self, key: Key, site: SiteT, form: FormT, channels: Iterator[int]
    ) -> list[Instruction]:
        """Rewrite a collective of the module; all that is new."""
        collective = found_in(self.module, key)
        computation = collective.computation
        new = self.write(collective, site, form, channels)
        restore_text_order(computation)
        return new

    def _judged(self, key: Key, now: Step, exposed: float) -> tuple[FormT, Step] | str:
        """The form that makes the step shortest, or why none makes it shorter."""
        worth = self.options.min_gain * now.us
        if exposed <= worth:
            return f"is exposed for {time_text(exposed)} of {time_text(now.us)}"
        promising = self.promising(key, now)
        if isinstance(promising, str):
            return promising
        best: tuple[FormT, Step] | None = None
        said = ""
        for form in promising:
            if self._is_spent():
                said = said or SPENT
                break
            after = self._tried(key, form)
            said = said or (
                f"stays: the step takes {time_text(after.us)} with "
                f"{self.words(form)}, {time_text(now.us)} without"
            )
            if after.timeline.fits is False and now.timeline.fits is not False:
                said = f"stays: {self.words(form)} does not fit into memory"
            elif (
                now.us - after.us > worth
                and after.simulated_us <= now.simulated_us
                and (best is None or after.us < best[1].us)
            ):
                best = form, after
        return said if best is None else best

    def _tried(self, key: Key, form: FormT) -> Step:
        copy, new = self.rewritten(key, form)
        others = [other for other in self.left if other != key]
        return self.trials.step(copy, others, new)

    def rewritten(self, key: Key, form: FormT) -> tuple[Module, list[Instruction]]:
        """A copy of the module with one collective as a chain, and what is new."""
        copy = self.module.clone()
        collective = found_in(copy, key)
        computation = collective.computation
        channels = count(next_channel_id(copy))
        new = self.write(collective, self.left[key], form, channels)
        restore_text_order(computation)
        return copy, new


def is_in(module: Module, key: Key) -> bool:
    """Whether the instruction of a key is still there."""
    computation = module.computation(key[0])
    return computation is not None and computation.find(key[1]) is not None


def found_in(module: Module, key: Key) -> Instruction:
    """The instruction of a key, which is there."""
    computation = module.computation(key[0])
    found = None if computation is None else computation.find(key[1])
    assert found is not None, f"%{key[1]} was there when it was judged"
    return found
