"""The fold over all that is reached, compared with a walk from each value."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hlo_passes.analysis.reachable_fold import ReachableFold

NODES = 9


def walk(start: int, after: list[list[int]]) -> frozenset[int]:
    seen: set[int] = set()
    stack = [start]
    while stack:
        value = stack.pop()
        if value not in seen:
            seen.add(value)
            stack += after[value]
    return frozenset(seen)


@given(
    st.lists(
        st.lists(st.integers(0, NODES - 1), max_size=3), min_size=NODES, max_size=NODES
    ),
    st.permutations(range(NODES)),
)
def test_it_joins_all_that_is_reached(
    after: list[list[int]], questions: list[int]
) -> None:
    looked: list[int] = []

    def look(value: int) -> tuple[frozenset[int], list[int]]:
        looked.append(value)
        return frozenset((value,)), after[value]

    fold = ReachableFold(look, frozenset[int].union)
    for value in questions:
        assert fold.of(value) == walk(value, after)
    assert sorted(looked) == list(range(NODES))


def test_a_long_chain_needs_no_deep_stack() -> None:
    fold = ReachableFold(lambda k: (k, [k + 1] if k < 50_000 else []), max)
    assert fold.of(0) == 50_000
