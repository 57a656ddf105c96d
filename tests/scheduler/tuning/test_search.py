"""The search, on steps that a formula gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from hlo_passes.runtime.tuning.searching import fairly
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.draws import drawn
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome, Source
from hlo_passes.scheduler.tuning.search import Search, Tried

CHOICES = {
    "pipelined all-gather": ("on",),
    "pipelined reduce-scatter": ("on",),
    "overlap limit": ("2", "4"),
    "early starts": ("on",),
    "loop unrolling": ("double buffering", "full"),
    "combined all-gather": ("128 MiB", "off"),
    "windowed einsum": ("all",),
}
Formula = Callable[[Combination], float]


class Formulas:
    """Steps by a formula; our scheduler knows orders alone."""

    def __init__(self, formula: Formula, memory=lambda chosen: 0, *, orders=True):
        self.formula, self.memory, self.orders = formula, memory, orders
        self.asked: list[Combination] = []

    def outcome(self, chosen: Combination, source: Source = "xla") -> Outcome:
        step = self.formula(chosen)
        return Outcome(
            step,
            memory_bytes=self.memory(chosen),
            steps_us=(step,),
            source=source,
            module=f"{step}",
        )

    def compiled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        for chosen in batch:
            self.asked.append(chosen)
            yield chosen, self.outcome(chosen)

    def scheduled(self, batch: Sequence[Combination]) -> Iterator[Tried]:
        known = {c.part("module") for c in self.asked}
        for chosen in batch:
            if self.orders and chosen.part("module") in known:
                yield chosen, self.outcome(chosen, "own")


def searched(formula: Formula, budget=40, **more) -> Search:
    memory = more.pop("memory", lambda chosen: 0)
    orders = more.pop("orders", True)
    found = Search(CHOICES, Formulas(formula, memory, orders=orders), budget, **more)
    found.run()
    return found


def additive(chosen: Combination) -> float:
    gains = {
        "pipelined all-gather": 4,
        "pipelined reduce-scatter": 2,
        "windowed einsum": -50,
    }
    step = 100.0 - sum(gains.get(name, 0) for name in chosen.levers)
    return step - {"2": 5, "4": 3}.get(chosen.get("overlap limit"), 0)


class Unpriced(Formulas):
    """Where windowed einsum is set, more operations have a poor price."""

    field = "unpriced"

    def outcome(self, chosen: Combination, source: Source = "xla") -> Outcome:
        found = super().outcome(chosen, source)
        count = 4 if chosen.get("windowed einsum") else 1
        return replace(found, **{self.field: count})


class Overcounted(Unpriced):
    """The same of matrix products that XLA's table counts several times."""

    field = "overcounted"


@pytest.mark.parametrize("kind", [Unpriced, Overcounted])
def test_a_step_with_more_poor_prices_is_compared_with_nothing(
    kind: type[Unpriced],
) -> None:
    def formula(chosen: Combination) -> float:
        return 10.0 if chosen.get("windowed einsum") else additive(chosen)

    for is_late in (False, True):
        choices = dict(sorted(CHOICES.items(), reverse=is_late))
        search = Search(choices, kind(formula), 40)
        search.run()
        assert search.best == searched(additive).best
        windowed = search.baseline.with_("windowed einsum", "all")
        assert search.tried[windowed].step_us == 10.0
        assert not search.compares(search.tried[windowed])
        assert "windowed einsum" not in dict(search.helpful())


def test_what_helps_is_put_together() -> None:
    found = searched(additive)
    assert found.best == Combination.of(
        {
            "pipelined all-gather": "on",
            "pipelined reduce-scatter": "on",
            "overlap limit": "2",
        }
    )
    assert found.outcome(found.best).step_us == 89.0


def test_each_part_of_the_best_was_taken_back() -> None:
    found = searched(additive)
    for name in found.best.levers:
        assert found.best.without(name) in found.tried


def test_a_lever_that_helps_only_with_another() -> None:
    def formula(chosen: Combination) -> float:
        both = chosen.get("loop unrolling") == "full" and chosen.get(
            "pipelined all-gather"
        )
        return 80.0 if both else 100.0 + len(chosen.settings)

    found = searched(formula, budget=60)
    assert found.best == Combination.of(
        {"loop unrolling": "full", "pipelined all-gather": "on"}
    )


def test_early_starts_come_with_a_limit() -> None:
    def formula(chosen: Combination) -> float:
        both = chosen.get("early starts") and chosen.get("overlap limit") == "4"
        return 90.0 if both else 100.0

    for orders in (True, False):
        found = searched(formula, budget=60, orders=orders)
        assert found.best == Combination.of(
            {"early starts": "on", "overlap limit": "4"}
        )
        assert not any(
            "early starts" in c.levers and "overlap limit" not in c.levers
            for c in found.tried
        )


def test_flags_that_give_nothing_are_not_recommended() -> None:
    found = searched(lambda chosen: 100.0 - 0.01 * len(chosen.settings))
    assert found.best == Combination()


def test_the_limit_of_memory() -> None:
    def memory(chosen: Combination) -> int:
        return 200 if chosen.get("pipelined all-gather") else 100

    found = searched(additive, memory=memory, memory_bytes=150)
    assert "pipelined all-gather" not in found.best.levers
    assert found.outcome(found.best).memory_bytes == 100


def test_a_baseline_that_does_not_fit() -> None:
    def memory(chosen: Combination) -> int:
        return 100 if chosen.get("combined all-gather") == "off" else 200

    found = searched(
        lambda c: 100.0 + 9 * len(c.settings), memory=memory, memory_bytes=150
    )
    assert found.best == Combination.of({"combined all-gather": "off"})


def test_the_budget_is_kept() -> None:
    for budget in (1, 2, 5, 9):
        found = searched(additive, budget=budget)
        assert len(found.tried) <= budget
    assert searched(additive, budget=1).best == Combination()


def test_nothing_is_compiled_twice() -> None:
    evaluator = Formulas(additive)
    Search(CHOICES, evaluator, 60).run()
    assert len(evaluator.asked) == len(set(evaluator.asked))


def test_the_order_of_answers_does_not_matter() -> None:
    class Backwards(Formulas):
        def compiled(self, batch):
            return reversed(list(super().compiled(batch)))

    one, other = (
        Search(CHOICES, Formulas(additive), 30),
        Search(CHOICES, Backwards(additive), 30),
    )
    one.run()
    other.run()
    assert list(one.tried) == list(other.tried)
    assert one.best == other.best


def test_an_interrupted_search_keeps_what_it_has() -> None:
    class Interrupted(Formulas):
        def compiled(self, batch):
            for count, tried in enumerate(super().compiled(batch)):
                if count == 2:
                    raise KeyboardInterrupt
                yield tried

    found = Search(CHOICES, Interrupted(additive, orders=False), 30)
    found.run()
    assert found.interrupted
    assert found.best == Combination.of({"pipelined all-gather": "on"})


def test_what_fails_is_never_the_best() -> None:
    class Failing(Formulas):
        def outcome(self, chosen, source: Source = "xla"):
            if chosen.get("pipelined all-gather"):
                return Outcome.failed("XLA's process was ended by signal 6")
            return super().outcome(chosen, source)

    found = Search(CHOICES, Failing(additive), 40)
    found.run()
    assert "pipelined all-gather" not in found.best.levers
    assert found.outcome(found.best).step_us == 93.0


def test_outcomes_come_back_from_json() -> None:
    for outcome in (
        Outcome(1.5, steps_us=(1.0, 2.0), remarks=("a",)),
        Outcome.failed("no"),
    ):
        assert Outcome.from_json(outcome.to_json()) == outcome


def test_the_best_of_all_small_tables_is_found() -> None:
    """With budget enough, where levers only add up, nothing better is missed."""
    choices = {
        name: CHOICES[name]
        for name in ("pipelined all-gather", "overlap limit", "loop unrolling")
    }
    for gains in itertools.product((-3, 0, 7), repeat=3):

        def formula(chosen: Combination, gains=gains) -> float:
            return 100.0 - sum(
                g for n, g in zip(choices, gains, strict=True) if n in chosen.levers
            )

        found = Search(choices, Formulas(formula), 60)
        found.run()
        assert found.outcome(found.best).step_us == 100.0 - sum(
            g for g in gains if g > 0
        )


def test_choices_name_levers() -> None:
    assert set(CHOICES) <= set(LEVERS)


def test_what_is_drawn_is_sound_and_the_same_each_time() -> None:
    choices = {"overlap limit": ("2", "4"), "early starts": ("on",)}
    one, other = (drawn(choices, seed=5) for _ in range(2))
    found = list(itertools.islice(one, 60))
    assert found == list(itertools.islice(other, 60))
    assert all(each.is_sound(name) for each in found for name in each.levers)
    assert len(set(found)) == 5


def test_a_module_that_only_another_order_makes_faster() -> None:
    """Harm alone, and our scheduler tells which order makes it the best."""

    def formula(chosen: Combination) -> float:
        unrolled = chosen.get("loop unrolling") == "full"
        if chosen.get("overlap limit") == "2":
            return 70.0 if unrolled else 101.0
        return 105.0 if unrolled else 100.0

    class Exposed(Formulas):
        exposed_us = 60.0

        def outcome(self, chosen, source: Source = "xla"):
            found = super().outcome(chosen, source)
            return replace(found, exposed_us=self.exposed_us)

    best = Combination.of({"loop unrolling": "full", "overlap limit": "2"})
    evaluator = Exposed(formula)
    found = Search(CHOICES, evaluator, 14)
    found.run()
    assert found.best == best
    # No compilation was spent on an order that is not the best.
    orders = [c for c in evaluator.asked if c.part("schedule")]
    assert orders[0] == best
    # Where no order hides anything, none is priced.
    hidden = Exposed(formula)
    hidden.exposed_us = 0.0
    found = Search(CHOICES, hidden, 14)
    found.run()
    assert found.best != best
    assert not any(c.part("module") for c in found.own if c.part("schedule"))


def test_pairs_that_change_the_module_are_tried_the_most_promising_first() -> None:
    """Two levers that do little harm alone, before those that do much."""

    def formula(chosen: Combination) -> float:
        harm = {"windowed einsum": 20.0, "combined all-gather": 1.0}
        harm |= {"loop unrolling": 2.0}
        both = chosen.get("combined all-gather") == "off" and chosen.get(
            "loop unrolling"
        )
        step = 100.0 + sum(harm.get(name, 0.0) for name in chosen.levers)
        return 80.0 + step / 100.0 if both else step

    found = searched(formula, budget=20, orders=False)
    assert found.outcome(found.best).step_us < 90.0
    pairs = [c for c in found.tried if len(c.settings) == 2]
    assert not pairs[0].get("windowed einsum")


def test_levers_that_help_all_together_alone_are_found_by_chance() -> None:
    """Three levers that do harm alone and in pairs; four others do nothing."""
    wanted = {
        "pipelined reduce-scatter": "on",
        "loop unrolling": "full",
        "combined all-gather": "off",
    }

    def formula(chosen: Combination) -> float:
        there = sum(chosen.get(name) == setting for name, setting in wanted.items())
        return {0: 100.0, 1: 101.0, 2: 102.0, 3: 80.0}[there]

    for is_ordered in (False, True):
        found = searched(formula, budget=60, orders=is_ordered)
        assert found.best == Combination.of(wanted)
        assert len(found.tried) <= 60


def test_where_nothing_helps_most_of_the_budget_is_drawn() -> None:
    found = searched(lambda chosen: 100.0 + len(chosen.settings), budget=40)
    assert found.best == Combination()
    assert len(found.tried) == 36


@pytest.mark.parametrize("others_us", [0.0, 0.5])
def test_of_many_levers_those_that_do_nothing_are_taken_back(others_us: float) -> None:
    """At once where they did nothing alone, else by halves."""
    wanted = {"pipelined reduce-scatter": "on", "combined all-gather": "off"}

    def formula(chosen: Combination) -> float:
        there = sum(chosen.get(name) == setting for name, setting in wanted.items())
        return 80.0 if there == 2 else 100.0 + there + others_us * len(chosen.settings)

    evaluator = Formulas(formula, orders=False)
    found = Search(CHOICES, evaluator, 60)
    every = Combination.of({name: values[-1] for name, values in CHOICES.items()})
    found.compile_all([found.baseline, every])
    assert found.best == every
    found.run()
    assert found.best == Combination.of(wanted)
    assert len(found.tried) <= 60


def test_a_setting_that_fails_alone_is_not_tried_again() -> None:
    class Failing(Formulas):
        def outcome(self, chosen, source: Source = "xla"):
            if chosen.get("windowed einsum"):
                return Outcome.failed("XLA cannot compile it")
            return super().outcome(chosen, source)

    found = Search(CHOICES, Failing(additive, orders=False), 60)
    found.run()
    failed = [c for c in found.tried if c.get("windowed einsum")]
    assert [len(c.settings) for c in failed] == [1]


class Neglecting(Formulas):
    """XLA's prices leave out bytes where all-gathers are pipelined, ours count them."""

    by_ours = False

    def outcome(self, chosen: Combination, source: Source = "xla") -> Outcome:
        found = super().outcome(chosen, source)
        leaves_out = bool(chosen.get("pipelined all-gather")) and not self.by_ours
        return replace(found, neglected=leaves_out, neglected_us=5.0 * leaves_out)


def test_what_xlas_prices_hide_is_searched_by_ours() -> None:
    evaluator, told = Neglecting(additive), []

    def search() -> Search:
        found = Search(CHOICES, evaluator, 40)
        found.run()
        return found

    def settle(why: str) -> None:
        told.append(why)
        evaluator.by_ours = True

    hidden = search()
    assert not hidden.best.get("pipelined all-gather")
    assert "leave out the bytes" in hidden.doubt
    found = fairly(search, settle)
    assert told == [hidden.doubt]
    assert found.best.get("pipelined all-gather") == "on"
    assert found.doubt == ""
    # Nothing is searched twice without need, or after Ctrl-C.
    assert fairly(search, settle).best == found.best
    assert len(told) == 1
    hidden.interrupted = True
    assert fairly(lambda: hidden, settle) is hidden
    assert len(told) == 1
