"""The search for the best combination of levers, within a number of compilations.

    search = Search(choices, evaluator, budget=40)
    search.run()
    search.best, search.outcome(search.best)

First every lever alone, then those that help together, then pairs of those that change
the module, as some help only together, then many at once, by chance. Then every other
setting around the best, more draws, and last each part taken back. What is tried next
depends on outcomes alone, and the draws are the same each time, so the same program and
budget give the same answer, with however many workers. At any moment `best` is the best
so far.

Levers of the order cost next to nothing where our scheduler prices them. So no
compilation is spent on them alone: whatever is compiled is priced with other orders,
too, as far as an order can still make it the best.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.draws import drawn
from hlo_passes.scheduler.tuning.lever import Lever
from hlo_passes.scheduler.tuning.outcome import Outcome

#: A change by less than this share of the step is none: nobody should set a flag for
#: it.
LEAST_GAIN: Final = 2e-3
#: Settings of a lever that are tried whatever comes out: two ends of a scale.
_ENDS: Final = 2
#: The share of the budget that levers alone may take.
_ALONE_SHARE: Final = 0.5
#: The share of the budget for pairs of levers that change the module.
_PAIRED_SHARE: Final = 0.2
#: The share of the budget for draws, before the search goes on around the best.
_DRAWN_SHARE: Final = 0.15
#: Draws for each that is tried: a program may have few different combinations.
_DRAWS: Final = 20
_SEED: Final = 1
#: Levers of a combination that are taken back one by one.
_FEW: Final = 4
#: Rounds over all levers around the best.
_MOST_ROUNDS: Final = 8
#: Of the budget, what is kept to take parts of the best back: a part, and at most.
_RESERVED_PART: Final = 5
_MOST_RESERVED: Final = 10

Tried = tuple[Combination, Outcome]


class Evaluator(Protocol):
    """Finds out what combinations do."""

    def compiled(self, batch: Sequence[Combination]) -> Iterable[Tried]:
        """All of a batch as the compiler makes them, each when it is ready."""
        ...

    def scheduled(self, batch: Sequence[Combination]) -> Iterable[Tried]:
        """The same with our scheduler on modules that were compiled already.

        A combination is left out if nothing was compiled with its other levers.
        """
        ...


@dataclass(slots=True)
class Search:
    """A search and what it has found so far.

    Attributes:
        choices: the settings to try, by lever.
        evaluator: that tries them.
        budget: the most combinations that are compiled, the baseline included.
        memory_bytes: the most that a step may need; None without a limit.
        progress: called after every combination.
        tried: what was compiled, in the order of the answers.
        own: what our scheduler alone has priced.
        baseline: what all is compared with.
        best: the best that was compiled; the baseline where nothing is better.
        interrupted: whether the user ended it.
    """

    choices: Mapping[str, Sequence[str]]
    evaluator: Evaluator
    budget: int
    memory_bytes: int | None = None
    progress: Callable[[Search], None] = lambda search: None
    tried: dict[Combination, Outcome] = field(default_factory=dict)
    own: dict[Combination, Outcome] = field(default_factory=dict)
    baseline: Combination = field(default_factory=Combination)
    best: Combination = field(default_factory=Combination)
    interrupted: bool = False
    _reserve: int = 0
    _has_more: bool = False

    @property
    def levers(self) -> Mapping[str, Lever]:
        """All levers of the family, by name."""
        return self.baseline.table

    # -- what was found -------------------------------------------------------

    def outcome(self, chosen: Combination) -> Outcome:
        """What a combination did; KeyError if it was not compiled."""
        return self.tried[chosen]

    def is_better(self, one: Combination, other: Combination) -> bool:
        """Whether one that was compiled is to be preferred to another.

        Less memory comes first where the limit is exceeded; then the step, where
        rounding does not count.
        """
        return self._is_better(self.tried.get(one), self.tried.get(other))

    def _is_better(self, a: Outcome | None, b: Outcome | None) -> bool:
        if a is None or not self.compares(a):
            return False
        if b is None or not self.compares(b):
            return True
        excess_a, excess_b = self._excess(a), self._excess(b)
        if excess_a != excess_b:
            return excess_a < excess_b
        return a.step_us < b.step_us * (1.0 - LEAST_GAIN)

    def compares(self, found: Outcome) -> bool:
        """Whether there is a step, and a price for whatever the baseline has one for.

        An operation without a price counts as a constant, a matrix product that XLA's
        table lacks counts several times, and kernels that it has no model for count
        next to nothing; none is a time.
        """
        baseline = self.tried.get(self.baseline, found)
        return (
            found.is_done
            and found.unpriced <= baseline.unpriced
            and found.overcounted <= baseline.overcounted
            and not found.neglects_more_than(baseline)
        )

    @property
    def doubt(self) -> str:
        """Why XLA's prices hide what was tried (`Outcome.misleads`); '' if not."""
        found = itertools.chain(self.tried.values(), self.own.values())
        hidden = (each for each in found if each.is_done and not self.compares(each))
        return next((each.misleads for each in hidden if each.misleads), "")

    def _rank(self, chosen: Combination, found: Outcome) -> tuple[int, float, int]:
        """Smaller is better: memory over the limit, the step, levers."""
        return self._excess(found), found.step_us, len(chosen.settings)

    def fits(self, found: Outcome) -> bool:
        """Whether a step needs no more memory than it may."""
        return self._excess(found) == 0

    def _excess(self, found: Outcome) -> int:
        if self.memory_bytes is None:
            return 0
        return max(0, found.memory_bytes - self.memory_bytes)

    @property
    def left(self) -> int:
        """Compilations that the budget still has, without those kept for the end."""
        return self.budget - self._reserve - len(self.tried)

    @property
    def unspent(self) -> str:
        """Why a part of the budget is left; '' if none is, or the user ended it."""
        if self.interrupted or len(self.tried) >= self.budget:
            return ""
        if not self._has_more:
            return "no other combination was left to try"
        kept = "the rest was kept to leave out parts of the best, and "
        return kept + ("that took fewer" if self.best else "there is none")

    # -- the search -----------------------------------------------------------

    def run(self) -> None:
        """Search until the budget is spent or nothing is left to try.

        Ctrl-C ends it; what was found until then stays.
        """
        try:
            self._run()
        except KeyboardInterrupt:
            self.interrupted = True

    def _run(self) -> None:
        self._reserve = min(_MOST_RESERVED, self.budget // _RESERVED_PART)
        self.compile_all([self.baseline])
        if not self.tried or not self.tried[self.baseline].is_done:
            return
        self._compile_orders(self.baseline)
        self._alone()
        self._together()
        self._pair(round(self.budget * _PAIRED_SHARE))
        self._draw(round(self.budget * _DRAWN_SHARE))
        if len(self.best.levers) > _FEW:
            self._take_back()
        for _ in range(_MOST_ROUNDS):
            before = self.best
            self._try(self._neighbors(before))
            # Where nothing helps, draws find more than pairs.
            if self.best == before and before:
                self._try(self._pairs(before))
            if self.best == before or self.left <= 0:
                break
        self._draw(self.left)
        if not self.best:
            # Nothing has to be taken back so far, and less of what comes.
            self._reserve //= 2
            self._draw(self.left)
        self._has_more = self.left <= 0
        self._reserve = 0
        self._take_back()

    def compile_all(self, batch: Iterable[Combination]) -> None:
        """Compile what was not compiled yet, as far as the budget goes."""
        new = [c for c in dict.fromkeys(batch) if c not in self.tried]
        new = new[: max(0, self.left)]
        try:
            for chosen, outcome in self.evaluator.compiled(new) if new else ():
                self.tried[chosen] = outcome
                self.progress(self)
        finally:
            # Answers come in any order, which must not matter.
            for chosen in new:
                if chosen in self.tried:
                    self.tried[chosen] = self.tried.pop(chosen)
                    if self.is_better(chosen, self.best):
                        self.best = chosen

    def _try(self, batch: Iterable[Combination]) -> None:
        """Compile combinations, and orders with which one of them becomes the best."""
        known = set(self.tried)
        before = self.best
        self.compile_all(batch)
        new = [c for c in self.tried if c not in known and self._may_gain(c)]
        found = {order: self.own[order] for order in map(self._quick_order, new)}
        for order in sorted(found, key=lambda c: self._rank(c, found[c])):
            if self._is_better(found[order], self.tried.get(self.best)):
                self.compile_all([order])
        if self.best != before:
            self._compile_orders(self.best)

    @property
    def _prices_orders(self) -> bool:
        """Whether our scheduler prices levers of the order."""
        return self.baseline in self.own

    def _may_gain(self, chosen: Combination) -> bool:
        """Whether another order could make what was compiled the best.

        No order is faster than what is computed.
        """
        found, best = self.tried[chosen], self.tried[self.best]
        if not self.compares(found) or chosen not in self._price([chosen]):
            return False
        computed_us = found.step_us - found.exposed_us
        return computed_us < best.step_us * (1.0 - LEAST_GAIN)

    def _quick_order(self, around: Combination) -> Combination:
        """The best of a few orders of a module that was compiled."""
        orders = dict.fromkeys(
            [
                self.best.part("schedule").settings,
                *(
                    ((name, setting),)
                    for name in self._order_levers
                    for setting in self.choices[name][:1]
                ),
            ]
        )
        batch = [around]
        for settings in orders:
            changed = around.part("module")
            for name, setting in settings:
                changed = changed.with_(name, setting)
            batch.append(changed)
        found = self._price(_orders_of(around, batch))
        return min(found, key=lambda c: self._rank(c, found[c]))

    @property
    def _order_levers(self) -> list[str]:
        """Levers that change the order alone."""
        return [n for n in self.choices if self.levers[n].scope == "schedule"]

    def _compile_orders(self, around: Combination) -> None:
        """Find the best schedule for a module with our scheduler, and compile that."""
        levers = self._order_levers
        best, outcome = around, self._price([around]).get(around)
        if outcome is None or not outcome.is_done:
            return
        for _ in range(len(levers)):
            batch = [c for name in levers for c in self._changes(best, name)]
            # Levers that need another one are tried with each of its settings.
            batch += [
                both
                for name in levers
                for needed in self.levers[name].only_with
                for one in self._changes(best, needed)
                for both in self._changes(one, name)
            ]
            found = self._price(_orders_of(around, batch))
            better = [c for c in found if self._is_better(found[c], outcome)]
            if not better:
                break
            best = min(better, key=lambda c: self._rank(c, found[c]))
            outcome = found[best]
        if best != around:
            self.compile_all([best])

    def _price(self, batch: Sequence[Combination]) -> dict[Combination, Outcome]:
        """Our scheduler's outcomes, those that are known already included."""
        new = [c for c in batch if c not in self.own]
        if new:
            for chosen, outcome in self.evaluator.scheduled(new):
                self.own[chosen] = outcome
                self.progress(self)
        return {c: self.own[c] for c in batch if c in self.own}

    # -- what to try ----------------------------------------------------------

    def _alone(self) -> None:
        """Every lever alone: the first settings of all, then the second ones, ..."""
        share = max(1, round(self.budget * _ALONE_SHARE))
        depth = max(map(len, self.choices.values()), default=0)
        for k in range(depth):
            batch = [
                self.baseline.with_(name, settings[k])
                for name, settings in self.choices.items()
                if k < len(settings)
                and not self.levers[name].only_with
                and (k < _ENDS or self._may_matter(name))
            ]
            # Orders are priced by our scheduler where it can, without a compilation.
            priced = self._price([c for c in batch if not c.part("module")])
            others = [c for c in batch if c not in priced]
            self._try(others[: max(0, share - len(self.tried))])

    def _may_matter(self, name: str) -> bool:
        """Whether a setting of a lever that was tried changed anything."""
        baseline = self.tried[self.baseline]
        return any(
            not found.is_done or found.module != baseline.module
            for chosen, found in self.tried.items()
            if chosen.levers == (name,)
        )

    def helpful(self) -> list[tuple[str, str]]:
        """Settings that help alone, the best of each lever, most helpful first."""
        known = {**self.own, **self.tried}
        baseline = self.tried[self.baseline]
        own_baseline = self.own.get(self.baseline, baseline)
        best: dict[str, tuple[float, str]] = {}
        for chosen, found in known.items():
            if len(chosen.settings) != 1:
                continue
            against = baseline if found.source == "xla" else own_baseline
            if not self._is_better(found, against):
                continue
            ((name, setting),) = chosen.settings
            change = found.change_from(against)
            if name not in best or change < best[name][0]:
                best[name] = change, setting
        place = list(self.levers).index
        order = sorted(best, key=lambda name: (best[name][0], place(name)))
        return [(name, best[name][1]) for name in order]

    def _together(self) -> None:
        """Add to the best what helps alone, one after another and all at once."""
        helpful = self.helpful()
        if len(helpful) > 1:
            together = [
                Combination.of(dict(helpful[:k]), self.baseline.family)
                for k in range(2, len(helpful) + 1)
            ]
            self._try(reversed(together))
        while helpful and self.left > 0:
            best = self.best
            batch = [best.with_(n, s) for n, s in helpful if best.get(n) != s]
            self._try(batch)
            if self.best == best:
                break
            # Only what helped here is tried again with the new best.
            helpful = [
                (n, s) for n, s in helpful if self.is_better(best.with_(n, s), best)
            ]

    def _draw(self, count: int) -> None:
        """Try combinations by chance; of the levers of modules, if we price orders."""
        orders = self._order_levers if self._prices_orders else []
        choices = {n: list(self._able(n)) for n in self.choices if n not in orders}
        draws = drawn(
            {name: able for name, able in choices.items() if able},
            seed=_SEED,
            family=self.baseline.family,
        )
        new = dict.fromkeys(
            c
            for c in itertools.islice(draws, _DRAWS * max(0, count))
            if c not in self.tried
        )
        self._try(itertools.islice(new, max(0, count)))

    def _pair(self, count: int) -> None:
        """Try two levers that change the module, those that cost least alone first."""
        alone: dict[tuple[str, str], float] = {}
        baseline = self.tried[self.baseline]
        for chosen, found in self.tried.items():
            changes = found.module != baseline.module
            if len(chosen.part("module").settings) == 1 and changes:
                (pair,) = chosen.part("module").settings
                if self.compares(found) and self.fits(found):
                    alone[pair] = min(found.step_us, alone.get(pair, math.inf))
        pairs = sorted(
            itertools.combinations(alone, 2), key=lambda two: sum(alone[p] for p in two)
        )
        batch = [
            Combination.of(dict(two), self.baseline.family)
            for two in pairs
            if two[0][0] != two[1][0]
        ]
        self._try([c for c in batch if _is_sound(c) and c not in self.tried][:count])

    def _changes(self, around: Combination, name: str) -> Iterator[Combination]:
        """The other settings of one lever."""
        for setting in (*self._able(name), ""):
            if around.get(name) != setting:
                yield around.with_(name, setting)

    def _able(self, name: str) -> Iterator[str]:
        """The settings of a lever, without those that failed alone."""
        for setting in self.choices.get(name, ()):
            alone = self.tried.get(self.baseline.with_(name, setting))
            if alone is None or alone.is_done:
                yield setting

    def _neighbors(self, around: Combination) -> list[Combination]:
        """One lever otherwise; those that interact with what is set come first."""
        near = {n for set_ in around.levers for n in self.levers[set_].interacts}
        names = sorted(self.choices, key=lambda name: name not in near)
        return [
            changed
            for name in names
            for changed in self._changes(around, name)
            if _is_sound(changed) and self._is_worth(name)
        ]

    def _is_worth(self, name: str) -> bool:
        """Whether a lever did anything so far, or was not tried."""
        lever = self.levers[name]
        if lever.scope == "schedule" and self._prices_orders:
            return False  # `_compile_orders` does it, for every new best
        alone = [c for c in self.tried if c.levers == (name,)]
        return not alone or self._may_matter(name)

    def _pairs(self, around: Combination) -> Iterator[Combination]:
        """Two levers that interact otherwise, both at once."""
        for one, other in itertools.combinations(self.choices, 2):
            near = self.levers[one].interacts, self.levers[other].interacts
            if not (other in near[0] or one in near[1]) or not (
                self._is_worth(one) or self._is_worth(other)
            ):
                continue
            for first in self._changes(around, one):
                for both in self._changes(first, other):
                    if _is_sound(both):
                        yield both

    def _take_back(self) -> None:
        """Take back what the best does not need; what each part gives shows on the way.

        Nobody should set a flag for less than `LEAST_GAIN`. Most of a drawn combination
        does nothing: first go all levers that did nothing alone, then halves.
        """
        levers = self.best.levers
        if len(levers) > _FEW:
            idle = [name for name in levers if not self._may_matter(name)]
            self._took_back([_without(self.best, idle)] if idle else [])
        size = len(self.best.levers)
        while self.best:
            size = max(1, (size + 1) // 2 if size > _FEW else 1)
            levers = self.best.levers
            parts = [
                _without(self.best, levers[k : k + size])
                for k in range(0, len(levers), size)
            ]
            if self._took_back(parts):
                size = len(self.best.levers)
            elif size == 1:
                return

    def _took_back(self, parts: Sequence[Combination]) -> bool:
        """Compile less than the best; take the best of what is as good, if any is."""
        best = self.best
        self.compile_all(parts)
        enough = [c for c in parts if c in self.tried and not self.is_better(best, c)]
        if enough:
            self.best = min(enough, key=lambda c: self._rank(c, self.tried[c]))
        return bool(enough)


def _without(chosen: Combination, levers: Iterable[str]) -> Combination:
    """Without several levers."""
    return functools.reduce(Combination.without, levers, chosen)


def _orders_of(around: Combination, batch: Iterable[Combination]) -> list[Combination]:
    """Those of a batch that change the order alone of what was compiled, each once."""
    same = around.part("module")
    return [
        c for c in dict.fromkeys(batch) if _is_sound(c) and c.part("module") == same
    ]


def _is_sound(chosen: Combination) -> bool:
    """Whether every lever that needs another one has it."""
    return all(map(chosen.is_sound, chosen.levers))
