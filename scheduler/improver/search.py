"""The search of one computation: starts, rounds, and which order is taken in the end.

starts   the order given, the best list schedules
rounds   annealing from the best order, at changing temperatures
choice   of the best of all rounds within 0.1 %: what suffers least from wrong costs
proof    the whole order again: edges, limits, memory and XLA's statistic, exactly
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.scheduler.improver.annealing import Best, Budget, Opinion, anneal
from hlo_passes.scheduler.improver.atoms import Atoms, make_atoms
from hlo_passes.scheduler.improver.bounds import lower_bound
from hlo_passes.scheduler.improver.evaluation import (
    ROUNDING,
    opinion_against,
    step_us,
)
from hlo_passes.scheduler.improver.list_start import list_orders
from hlo_passes.scheduler.improver.polish import polish
from hlo_passes.scheduler.improver.problem import Problem
from hlo_passes.scheduler.improver.proof import fault_of, peak_bytes, xla_us
from hlo_passes.scheduler.improver.robustness import robustness
from hlo_passes.scheduler.improver.squeeze import squeeze
from hlo_passes.scheduler.improver.window import RESOLUTION_US, Window
from hlo_passes.scheduler.simulation.bound import Bound
from hlo_passes.scheduler.sums import sequential_sum

#: Moves of a round: so many, so many more per atom, at most.
_MOVES: Final = 5_000
_MOVES_PER_ATOM: Final = 100
_MOST_MOVES: Final = 20_000
#: From this many atoms on a search begins at lower temperatures.
_LARGE: Final = 1_000
#: First temperature of a start and of each round, in mean exposed waits.
_START_HEAT: Final = 1.0
_START_HEAT_OF_LARGE: Final = 0.3
_HEAT: Final = (0.3, 1.0, 3.0, 0.1)
_HEAT_OF_LARGE: Final = (0.1, 0.3, 0.1, 1.0)
_LEAST_HEAT_US: Final = 1e-3
#: Of an order that needs too much memory: moves, and temperature in mean exposed waits.
_SQUEEZE_MOVES: Final = 20_000
_SQUEEZE_HEAT: Final = 0.1
#: Below that number of atoms, so many times as many rounds, as long as they help.
_ROUNDS_OF_SMALL: Final = 3
#: Rounds end after so many that each bring less than this share of the step.
_IDLE_ROUNDS: Final = 4
_LITTLE: Final = 1e-5
#: A step this near to the bound is the bound.
_AT_BOUND: Final = 1e-6
#: Orders within this share of the best one are equals.
_EQUAL: Final = 1e-3
#: So many of them are compared under wrong costs.
_MOST_EQUALS: Final = 4
#: What is exposed below this is nothing, us.
_NOTHING_US: Final = 1e-3
#: Apart, so that no two rounds of a module share a seed.
_SEEDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how a search goes.

    Attributes:
        factor: on the moves of a round; 0 for none.
        rounds: after the starts, at most; three times as many of a small computation.
        seed: of this computation.
        refuse_regressions: no done may wait longer than in the order given.
    """

    factor: float = 1.0
    rounds: int = 6
    seed: int = 0
    refuse_regressions: bool = False


@dataclass(slots=True)
class Improvement:
    """What became of one computation.

    Attributes:
        problem: in the order given.
        before_us, after_us: the step.
        bound: that no order can be below.
        order: of the nodes; the order given if nothing better was found.
        kept: why it stays as it was, '' if it does not.
        atoms: their number.
        tried, taken: moves.
        rounds: after the starts.
        start: from which order the best one came.
        robustness: mean step under wrong costs, as a share of the order given.
    """

    problem: Problem
    before_us: float
    after_us: float
    bound: Bound
    order: list[int]
    kept: str = ""
    atoms: int = 0
    tried: int = 0
    taken: int = 0
    rounds: int = 0
    start: str = "given"
    robustness: float = 1.0

    @property
    def is_better(self) -> bool:
        """Whether there is another order."""
        return not self.kept

    @property
    def is_proven(self) -> bool:
        """Whether no order is faster."""
        return self.after_us <= self.bound.us * (1 + _AT_BOUND)


def improve(
    problem: Problem,
    cap_bytes: int,
    effort: Effort,
    budget: Budget,
    why_not: str = "",
) -> Improvement:
    """Search a better order of one computation.

    Args:
        problem: in the order given.
        cap_bytes: the most that may be live, with what lives below it.
        effort: how long.
        budget: of the whole run.
        why_not: why it keeps its order anyway, '' for nothing.
    """
    given = list(range(len(problem)))
    atoms = make_atoms(problem)
    before = step_us(atoms, range(len(atoms)))
    result = Improvement(
        problem, before, before, lower_bound(atoms), given, atoms=len(atoms)
    )
    result.kept = why_not or _reason_to_keep(problem, atoms, result, cap_bytes)
    if not result.kept and effort.factor <= 0.0:
        result.kept = "effort is 0"
    if not result.kept and budget.look():
        result.kept = "the time was over"
    if result.kept:
        return result
    tried, taken = budget.tried, budget.taken
    _Search(problem, atoms, cap_bytes, effort, budget, result).run()
    result.tried, result.taken = budget.tried - tried, budget.taken - taken
    return result


def _reason_to_keep(
    problem: Problem, atoms: Atoms, result: Improvement, cap_bytes: int
) -> str:
    """Why there is nothing to search; '' if there is."""
    if problem.breaks_edge is not None:
        first, then = map(problem.name, problem.breaks_edge)
        return f"%{then} is before %{first}, on which it depends"
    window = Window(atoms, cap_bytes)
    if not window.set_order(range(len(atoms))):
        return "more is in flight together than the overlap limits allow"
    if sequential_sum(window.wait_us) <= _NOTHING_US:
        return "nothing is exposed"
    if result.is_proven:
        return f"no order is faster: {result.bound.why}"
    if peak_bytes(problem, range(len(problem))) > cap_bytes:
        return "its order needs more memory than the cap"
    return ""


@dataclass(slots=True)
class _Search:
    """A search while it runs."""

    problem: Problem
    atoms: Atoms
    cap_bytes: int
    effort: Effort
    budget: Budget
    result: Improvement
    window: Window = field(init=False)
    opinion: Opinion = field(init=False)
    seen: list[tuple[float, list[int], str]] = field(default_factory=list)
    turn: int = 0

    def __post_init__(self) -> None:
        """Set up a window whose memory is counted as by the exact count."""
        atoms, problem = self.atoms, self.problem
        given = range(len(atoms))
        most = None
        if self.effort.refuse_regressions:
            first = Window(atoms, self.cap_bytes)
            first.set_order(given)
            most = [us + RESOLUTION_US for us in first.wait_us]
        self.window = Window(atoms, self.cap_bytes, most)
        self.window.set_order(given)
        # Instructions that float are in the exact count alone.
        exact = peak_bytes(problem, range(len(problem)))
        count = self.window.peak_bytes + problem.memory.initial_bytes
        self.window.cap_bytes = (
            self.cap_bytes - problem.memory.initial_bytes - max(0, exact - count)
        )
        self.opinion = opinion_against(atoms, given)

    def run(self) -> None:
        atoms, effort = self.atoms, self.effort
        moves = min(_MOST_MOVES, _MOVES + _MOVES_PER_ATOM * len(atoms))
        moves = max(1, int(moves * effort.factor))
        enough = self.result.bound.us * (1 + _AT_BOUND)
        given = list(range(len(atoms)))
        best = Best(self.result.before_us, given)
        is_large = len(atoms) >= _LARGE
        heat = _START_HEAT_OF_LARGE if is_large else _START_HEAT
        # From every start, half a round.
        self.window.set_order(given)
        waits = self._mean_wait_us()
        label = "given"
        for name, order in self._starts(given):
            if self.budget.is_over:
                break
            own = self._begin(order, best)
            if own is None:
                continue
            self._anneal(own, max(1, moves // 2), waits * heat, enough)
            if own.us < best.us:
                best, label = own, name
            self.seen.append((own.us, own.order, name))
        # From the best, in rounds of changing temperature.
        idle = 0
        heats = _HEAT_OF_LARGE if is_large else _HEAT
        for number in range(effort.rounds * (1 if is_large else _ROUNDS_OF_SMALL)):
            if best.us <= enough or idle >= _IDLE_ROUNDS or self.budget.is_over:
                break
            self.window.set_order(best.order)
            own = Best(best.us, best.order)
            factor = heats[number % len(heats)]
            self._anneal(own, moves, self._mean_wait_us() * factor, enough)
            self.result.rounds += 1
            idle = 0 if own.us < best.us * (1 - _LITTLE) else idle + 1
            if own.us < best.us:
                best = own
                self.seen.append((own.us, own.order, label))
        self._choose()

    def _starts(self, given: list[int]) -> list[tuple[str, list[int]]]:
        """The order given, and the best list schedules that fit, or can be made to.

        The best of all often needs a little more memory than there is.
        """
        starts = [("given", given)]
        window = self.window
        for order in list_orders(self.atoms):
            if not window.set_order(order):
                continue
            if window.peak_bytes <= window.cap_bytes:
                starts.append(("list", order))
                break
            if len(starts) == 1 and self._squeeze():
                starts.append(("squeezed", list(window.order)))
        return starts

    def _squeeze(self) -> bool:
        """Make the window's order fit under the cap; whether that worked."""
        self.turn += 1
        return squeeze(
            self.window,
            moves=max(1, int(_SQUEEZE_MOVES * self.effort.factor)),
            seed=self.effort.seed * _SEEDS + self.turn,
            temperature_us=self._mean_wait_us() * _SQUEEZE_HEAT,
            budget=self.budget,
        )

    def _begin(self, order: list[int], best: Best) -> Best | None:
        """A start as the first best of its own; None if it is not legal."""
        if not self.window.set_order(order):
            return None
        if self.opinion(order):
            return Best(self.window.total_us, list(order))
        return Best(best.us, best.order)

    def _anneal(
        self, own: Best, moves: int, temperature_us: float, enough: float
    ) -> None:
        anneal(
            self.window,
            own,
            moves=moves,
            seed=self.effort.seed * _SEEDS + self.turn,
            temperature_us=temperature_us,
            budget=self.budget,
            enough_us=enough,
            opinion=self.opinion,
        )
        self.turn += 1

    def _mean_wait_us(self) -> float:
        """The mean of what is exposed, over the pairs that are."""
        waits = [us for us in self.window.wait_us if us > 0.0]
        return max(sequential_sum(waits) / max(1, len(waits)), _LEAST_HEAT_US)

    # -- the choice -----------------------------------------------------------

    def _choose(self) -> None:
        """Take the first order that passes the whole proof: equals by robustness."""
        result, atoms = self.result, self.atoms
        better = [
            each for each in self.seen if each[0] < result.before_us * (1 - ROUNDING)
        ]
        better.sort(key=lambda each: each[0])
        equals = [each for each in better if each[0] <= better[0][0] * (1 + _EQUAL)]
        others = better[len(equals) :]
        # With wider windows an order suffers less from wrong costs, as a rule.
        equals = equals[:_MOST_EQUALS]
        equals += [(us, self._polished(order), name) for us, order, name in equals]
        ratios = robustness(atoms, range(len(atoms)), [each[1] for each in equals])
        ranked = sorted(range(len(equals)), key=lambda k: (ratios[k], equals[k][0], k))
        choices = [(ratios[k], *equals[k]) for k in ranked if ratios[k] < 1.0]
        choices += [(1.0, *each) for each in others]
        why = "no better order was found"
        if equals and min(ratios) >= 1.0:
            why = "with costs that are 20 % wrong it would be no better"
            choices = []
        for ratio, _, order, name in choices:
            nodes = atoms.expand(order)
            why = self._fault(nodes)
            if not why:
                result.order, result.start = nodes, name
                result.after_us = step_us(atoms, order)
                result.robustness = ratio
                return
        result.kept = why

    def _polished(self, order: list[int]) -> list[int]:
        """An order with wider windows, at no more than its own peak."""
        window = self.window
        window.set_order(order)
        cap, window.cap_bytes = window.cap_bytes, window.peak_bytes
        polish(window)
        window.cap_bytes = cap
        return list(window.order) if self.opinion(window.order) else order

    def _fault(self, nodes: Sequence[int]) -> str:
        """What speaks against an order of all instructions; '' for nothing."""
        problem = self.problem
        found = fault_of(problem, nodes)
        if found:
            return found
        if peak_bytes(problem, nodes) > self.cap_bytes:
            return "it needs more memory than the cap"
        given = range(len(problem))
        if xla_us(problem, nodes) > xla_us(problem, given) * (1 + ROUNDING):
            return "XLA's statistic calls it worse"
        return ""
