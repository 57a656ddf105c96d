"""How a list of rules becomes steps, and which of its rules have no opinion."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from hlo_passes.scheduler.latency_hiding.classes import Classes
from hlo_passes.scheduler.latency_hiding.plan import ClassRules, Plan, Ranking, Step
from hlo_passes.scheduler.latency_hiding.rule import Rule, by_number
from hlo_passes.scheduler.latency_hiding.scan import Scan
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from tests.scheduler.latency_hiding.graphs import graph_of
from tests.scheduler.latency_hiding.scenes import two_gathers
from tests.scheduler.latency_hiding.test_metrics import TEXT


def _is_half(s: Any, n: Any) -> Any:
    return s.graph.is_start[n] + s.graph.is_done[n]


def _is_no_half(s: Any, n: Any) -> Any:
    return 1 - _is_half(s, n)


def _is_done(s: Any, n: Any) -> Any:
    return s.graph.is_done[n]


def _rule(name: str, number: Any = _is_done, **facts: Any) -> Rule:
    return by_number(name, "own", name, number, **facts)


@pytest.fixture
def state() -> SchedulingState:
    """Two pairs and other work: three classes."""
    return SchedulingState(graph_of(TEXT), delays_starts=False)


def test_rules_without_an_opinion_on_classes_of_one_rank(
    state: SchedulingState,
) -> None:
    """Starts and dones tie: a rule of their kind looks at nodes before any other."""
    other = _rule("other", _is_no_half, by_class="all")
    of_kind = _rule("of-kind", by_class="kind", kind=_is_half)
    dones = _rule("dones", by_class="all")
    among_others = _rule("among-others", by_class="all", kind=_is_no_half)
    rules = (other, of_kind, dones, among_others)
    classes = Classes(state, tests_fit=False)
    classes.refresh()
    ranking = ClassRules(state, classes, rules).ranking()
    assert ranking is not None
    names = [state.graph.name(n) for n in classes.members]
    rank = dict(zip(names, ranking.ranks, strict=True))
    assert {rank[name] for name in ("sa", "da")} == {0}
    assert max(ranking.ranks) == 1
    assert ranking.silent == [{other, among_others}, {*rules}]


def _told(steps: tuple[Step, ...]) -> list[tuple[str, int, bool, bool]]:
    """The rules of each step, how many are left, and its two flags."""
    return [
        (
            " ".join(
                r.name
                for r in (
                    step.asks.rules
                    if isinstance(step.asks, ClassRules)
                    else (step.asks,)
                )
            ),
            len(step.rest),
            step.in_tail,
            step.smaller,
        )
        for step in steps
    ]


def test_neighbors_that_classes_decide_are_one_step(state: SchedulingState) -> None:
    first, last = _rule("first", smaller=True), _rule("last")
    a, b = _rule("a", by_class="all", smaller=True), _rule("b", by_class="all")
    some = _rule("some", by_class="all", kind=_is_half, smaller=True)
    c, d = _rule("c", by_class="all"), _rule("d", by_class="all")
    classes = Classes(state, tests_fit=False)
    tail = frozenset((last, c, d))
    plan = Plan(state, classes, (first, a, b, some, last, c, d), tail)
    assert plan.head.rules == ()
    assert _told(plan.without_head()) == [
        ("first", 7, False, True),
        ("a b", 6, False, False),
        ("some", 4, False, True),
        ("last", 3, True, False),
        ("c d", 2, True, False),
    ]
    # A step is left out where none of its rules has an opinion.
    for silent, left in (
        ({first, a}, "a b, some, last, c d"),
        ({a, b, some}, "first, last, c d"),
        ({last, c, d}, "first, a b, some"),
    ):
        assert (
            ", ".join(told[0] for told in _told(plan.after(frozenset(silent)))) == left
        )


def test_the_head_ends_where_a_rule_looks_at_nodes(state: SchedulingState) -> None:
    """What follows its first rule that is for some kinds is asked once more."""
    a, b = _rule("a", by_class="all"), _rule("b", by_class="all")
    some, last = _rule("some", by_class="kind", kind=_is_half), _rule("last")
    classes = Classes(state, tests_fit=False)
    plan = Plan(state, classes, (a, b, some, a, b, last, a), frozenset())
    assert plan.head.rules == (a, b, some, a, b)
    after = [("some", 5, False, False), ("a b", 4, False, False)]
    after += [("last", 2, False, False), ("a", 1, False, False)]
    assert _told(plan.after(frozenset())) == after
    assert _told(plan.without_head()) == [("a b", 7, False, False), *after]


@pytest.mark.parametrize("fusions", [2, 12])
def test_classes_in_no_order_are_asked_rule_by_rule(fusions: int) -> None:
    """Few candidates and many: of the fusions the second rule chooses the first one."""
    ranking = ClassRules.ranking

    def no_rank(self: ClassRules, *, fitting: bool = False) -> Ranking | None:
        return None if fitting else ranking(self, fitting=fitting)

    first = _rule("first", lambda s, n: n, smaller=True)
    rules = (_rule("others", _is_no_half, by_class="all"), first)
    for method in (ranking, no_rank):
        state = SchedulingState(
            graph_of(two_gathers(fusions).text()), delays_starts=False
        )
        state.seed()
        state.place(state.ready.take(0))
        assert len(state.ready) == 2 + fusions
        with mock.patch.object(ClassRules, "ranking", method):
            slot = Scan(state, rules).pick(state.ready)
        assert slot is not None
        assert state.graph.name(state.ready[slot]) == "f0"
