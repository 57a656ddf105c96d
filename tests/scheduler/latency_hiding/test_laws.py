"""Laws: the scan chooses as pairs do, orders are legal, nothing depends on hashes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limited
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.errors import PassError
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.latency_hiding import scan
from hlo_passes.scheduler.latency_hiding.attempt import Attempt, Environment
from hlo_passes.scheduler.latency_hiding.candidates import Candidates
from hlo_passes.scheduler.latency_hiding.driver import schedule_module
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.pairs import (
    FIRST_COME,
    PairScan,
    concerned,
    considered,
)
from hlo_passes.scheduler.latency_hiding.plan import ClassRules, Ranking
from hlo_passes.scheduler.latency_hiding.rule import Rule, by_number
from hlo_passes.scheduler.latency_hiding.rules import RULES, active_rules
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.state import SchedulingState
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from tests.scheduler.latency_hiding.random_scenes import RandomScene, random_scenes
from tests.scheduler.latency_hiding.scenes import names

OTHER_POLICIES: tuple[dict[str, Any], ...] = (
    {"enable_collective_multi_streaming": True, "parallel_collective_overlap_limit": 3},
    {"top_down_scheduling": True, "flavour": "generic"},
    {"flavour": "generic", "all_gather_overlap_limit": 3},
    {"aggressive_scheduling_policies": False},
    {"prioritize_async_depth_over_stall": True},
    {"enable_release_start_policy": True, "flavour": "generic"},
    {"enable_schedule_by_structure": True},
    {"depth_based_memory_pressure_reduction": True, "memory_limit_bytes": 500},
    {"force_delay_over_memory_pressure": True, "memory_limit_bytes": 500},
    {"enable_selective_memcpy_overlap": True, "xla": "0.12"},
    {"resource_serializing": True, "track_sync_op_resource_usage": True},
    {"memory_limit_bytes": 1000, "rerun": 3, "estimate_fragmentation_size": True},
)


def outcome(
    made: RandomScene,
    rules: tuple[Rule, ...],
    preferred: dict[str, float],
    *,
    watched: bool,
    settings: dict[str, Any],
) -> str:
    """The new order or the error; a log makes the scheduler compare pair by pair."""
    module = hlo_passes.parse(made.scene.text())
    try:
        schedule_module(
            module,
            made.costs,
            SchedulerSettings(**settings),
            rules=rules,
            preferences=lambda computation: {
                i: preferred[i.name]
                for i in computation.instructions
                if i.name in preferred
            },
            log_decisions=watched,
        )
    except PassError as problem:
        return str(problem)
    return names(module)


def assert_legal(module: Module) -> None:
    """Operands come before their users, in every computation."""
    for computation in module.computations:
        seen = set()
        for instruction in computation.instructions:
            assert all(o in seen for o in instruction.operands), instruction
            assert all(p in seen for p in instruction.control_predecessors)
            seen.add(instruction)


LIMITS = st.sampled_from((None, 0, 100, 500, 1000, 5000, 20000))
FLAGS = (
    "collective_start_as_early_as_possible enable_collective_multi_streaming "
    "enable_selective_memcpy_overlap prioritize_async_depth_over_stall "
    "enable_release_start_policy enable_schedule_by_structure "
    "depth_based_memory_pressure_reduction force_delay_over_memory_pressure "
    "track_sync_op_resource_usage resource_serializing deannotate_group_if_blocked "
    "flexible_scheduling_annotation_scheduling "
    "aggressive_flexible_annotation_scheduling"
).split()


@st.composite
def any_settings(draw: st.DrawFn) -> dict[str, Any]:
    """Any settings: overlap limits, memory, start delay, direction, policies."""
    settings: dict[str, Any] = dict.fromkeys(
        draw(st.sets(st.sampled_from(FLAGS))), True
    )
    settings |= {
        "memory_limit_bytes": draw(LIMITS),
        "start_delay": draw(st.sampled_from(("flag", "on", "off"))),
        "parallel_collective_overlap_limit": draw(st.integers(1, 4)),
        "parallel_async_compute_limit": draw(st.integers(1, 3)),
        "aggressive_scheduling_policies": draw(st.sampled_from((True, True, False))),
    }
    if draw(st.booleans()):
        settings |= {
            "flavour": "generic",
            "all_reduce_overlap_limit": draw(st.integers(1, 3)),
            "collective_permute_overlap_limit": draw(st.integers(1, 3)),
            "send_recv_host_overlap_limit": draw(st.integers(1, 3)),
            "top_down_scheduling": draw(st.booleans()),
        }
    return settings


def later_name(state: Any, a: int, b: int) -> int:
    """A comparison that has no number, and no opinion on neighbors."""
    of_a, of_b = state.graph.name(a), state.graph.name(b)
    return 0 if abs(a - b) < 2 else (of_a > of_b) - (of_a < of_b)


def sum_of_all(s: Any, n: Any) -> Any:
    """Not what it is for one node: an array has a sum."""
    return s.graph.cost[n] - np.min(s.graph.cost[n])


#: Rules as users write them: for arrays too, for one node only, wrong for arrays.
OWN = (
    by_number("cost", "own", "dear", lambda s, n: s.graph.cost[n]),
    by_number("cheap", "own", "cheap", lambda s, n: s.graph.cost[n], smaller=True),
    by_number("wait", "own", "late", lambda s, n: s.ready_at[n] - s.now),
    by_number("third", "own", "every third", lambda s, n: n % 3 == 0),
    by_number("one", "own", "many", lambda s, n: len(s.graph.preds[n])),
    by_number("max", "own", "late", lambda s, n: max(s.ready_at[n], s.now)),
    by_number("if", "own", "done", lambda s, n: 2 if s.graph.is_done[n] else 1),
    by_number("name", "own", "name", lambda s, n: s.graph.name(n), smaller=True),
    by_number("wrong", "own", "none", sum_of_all),
    by_number("text", "own", "digits", lambda s, n: str(n)),
    by_number("bytes", "own", "less", lambda s, n: s.graph.is_start[n] - s.graph.is_done[n]),
    by_number(
        "kind", "own", "cost among thirds", lambda s, n: s.graph.cost[n],
        kind=lambda s, n: n % 3,
    ),
    by_number(
        "never-wins", "own", "cost", lambda s, n: s.graph.cost[n],
        kind=lambda s, n: n % 2, winner_only=True, smaller=True,
    ),
    Rule("pair", "own", "later name", later_name, lambda s, n: s.graph.name(n)),
)  # fmt: skip


@st.composite
def any_rules(draw: st.DrawFn) -> tuple[Rule, ...]:
    """XLA's list, one with rules dropped, moved and added, or one of its own."""
    kind = draw(st.sampled_from(("xla", "edits", "edits", "own")))
    if kind == "xla":
        return RULES
    if kind == "own":
        return tuple(draw(st.lists(st.sampled_from((*RULES, *OWN)), max_size=12)))
    rules = list(RULES)
    for _ in range(draw(st.integers(0, 6))):
        rules.pop(draw(st.integers(0, len(rules) - 1)))
    for _ in range(draw(st.integers(0, 4))):
        moved = rules.pop(draw(st.integers(0, len(rules) - 1)))
        rules.insert(draw(st.integers(0, len(rules))), moved)
    for own in draw(st.lists(st.sampled_from(OWN), max_size=3)):
        rules.insert(draw(st.integers(0, len(rules))), own)
    return tuple(rules)


@given(
    made=random_scenes(hints=True) | random_scenes(grouped=True),
    settings=any_settings(),
    rules=any_rules(),
    preferred=st.dictionaries(
        st.sampled_from([f"v{k}" for k in range(8)]),
        st.sampled_from((0.0, 1.0, 2.0)),
        max_size=4,
    ),
    few=st.sampled_from((1, 3, 8)),
)
def test_the_scan_chooses_as_pairs_do_for_every_list_and_setting(
    made: RandomScene,
    settings: dict[str, Any],
    rules: tuple[Rule, ...],
    preferred: dict[str, float],
    few: int,
) -> None:
    with mock.patch.object(scan, "_FEW", few):
        fast = outcome(made, rules, preferred, watched=False, settings=settings)
    assert fast == outcome(made, rules, preferred, watched=True, settings=settings)


def no_rank(self: ClassRules, *, fitting: bool = False) -> Ranking | None:
    """As if the classes at the head of the list were in no order."""
    return None if fitting else ranking(self, fitting=fitting)


ranking = ClassRules.ranking


@pytest.mark.parametrize("few", [1, 8])
@limited(max_examples=20)
@given(made=random_scenes(hints=True))
def test_without_ranks_of_classes_the_choices_are_the_same(
    few: int, made: RandomScene
) -> None:
    with (
        mock.patch.object(scan, "_FEW", few),
        mock.patch.object(ClassRules, "ranking", no_rank),
    ):
        fast = outcome(made, RULES, {}, watched=False, settings={})
    assert fast == outcome(made, RULES, {}, watched=True, settings={})


#: Costs decide between nodes of one kind, but a number and a text are in no order.
SEVERAL_KINDS = by_number(
    "several-kinds", "own", "cost", lambda s, n: s.graph.cost[n],
    kind=lambda s, n: "odd" if int(n) % 2 else 2,
)  # fmt: skip


@limited(max_examples=20)
@given(made=random_scenes())
def test_kinds_that_are_in_no_order_are_compared_pair_by_pair(
    made: RandomScene,
) -> None:
    rules = (SEVERAL_KINDS, *RULES)
    with mock.patch.object(scan, "_FEW", 1):
        fast = outcome(made, rules, {}, watched=False, settings={})
    assert fast == outcome(made, rules, {}, watched=True, settings={})


class ClosestRival:
    """A scan that checks its runner-up: nobody tied with the winner for longer."""

    def __init__(self, state: SchedulingState, rules: tuple[Rule, ...]) -> None:
        self.state, self.rules = state, concerned(state, rules)
        self.scan, self.pairs = scan.Scan(state, rules), PairScan(state, rules)
        self.runner_up: int | None = None
        self.seen = 0

    def pick(self, candidates: Candidates, group: int = -1) -> int | None:
        slot = self.scan.pick(candidates, group)
        if slot is None:
            return None
        winner = candidates[slot]
        fitting = considered(self.state, candidates, group)
        others = [n for n in fitting if n != winner]
        steps = self.steps()
        decided = {n: steps[self.pairs.compare(winner, n)[0].name] for n in others}
        self.runner_up = self.scan.runner_up
        if not others:
            assert self.runner_up is None
        else:
            assert self.runner_up in decided
            assert decided[self.runner_up] == max(decided.values())
            self.seen += 1
        return slot

    def steps(self) -> dict[str, int]:
        """Rules by when they are asked; neighbors that classes decide are one step."""
        found: dict[str, int] = {}
        step, was_by_class = 0, False
        for rule in self.rules:
            if rule.awake is None or rule.awake(self.state):
                step += not (was_by_class and rule.by_class)
                was_by_class = bool(rule.by_class)
                found[rule.name] = step
        return found | {FIRST_COME.name: step}


@given(
    random_scenes(40),
    any_settings(),
    st.sampled_from((1, 3, 8)),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(OWN[:3])), max_size=2),
)
def test_the_runner_up_is_the_closest_rival(
    made: RandomScene,
    settings: dict[str, Any],
    few: int,
    own: list[tuple[int, Rule]],
) -> None:
    module = hlo_passes.parse(made.scene.text())
    # Rules that compare all candidates by a number make one order of them.
    chosen = SchedulerSettings(**settings)
    plain = [r for r in RULES if r.by_number and r.kind is None]
    for at, rule in own:
        plain.insert(at, rule)
    rules = active_rules(chosen, tuple(plain))
    memory = ModuleMemory(module, top_down=chosen.top_down_scheduling)
    environment = Environment(made.costs, chosen, make_tracker(chosen), rules)
    attempt = Attempt(
        module.entry, memory, environment, memory_limit_bytes=chosen.memory_limit_bytes
    )
    policy = ClosestRival(attempt.state, rules)
    with mock.patch.object(scan, "_FEW", few):
        attempt.place_all(policy)
    assert policy.seen or len(module.entry.instructions) < 12


@given(random_scenes(25), st.sampled_from(OTHER_POLICIES))
def test_orders_are_legal_under_every_policy(
    made: RandomScene, settings: dict[str, Any]
) -> None:
    module = hlo_passes.parse(made.scene.text())
    hlo_passes.verify(module)
    before = [sorted(i.name for i in c.instructions) for c in module.computations]
    schedule_module(module, made.costs, SchedulerSettings(**settings))
    assert_legal(module)
    hlo_passes.verify(module)
    after = [sorted(i.name for i in c.instructions) for c in module.computations]
    assert after == before


HASHED = """
import sys, hlo_passes
from hlo_passes import Pipeline
module = hlo_passes.parse(sys.stdin.read())
Pipeline.parse(
    "latency-hiding-scheduler{parallel-collective-overlap-limit=3,"
    "enable-collective-multi-streaming=true,estimator=gpu-approximate}"
).run(module)
sys.stdout.write(module.to_text())
"""


@pytest.mark.parametrize("seeds", [("0", "1", "4242")])
def test_hash_seeds_change_nothing(seeds: tuple[str, ...]) -> None:
    from tests.scheduler.latency_hiding.test_groups import group_scene

    text = group_scene().text()
    found = {
        subprocess.run(
            [sys.executable, "-c", HASHED],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in seeds
    }
    assert len(found) == 1
