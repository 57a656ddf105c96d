"""A module that lacks copies: all hazards are met that can be met together."""

from __future__ import annotations

import random

import pytest

import hlo_passes
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.scheduler.latency_hiding import edges
from hlo_passes.scheduler.latency_hiding.fitting_hazards import connect_what_fits
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.hazard_edges import readers_in_window
from hlo_passes.scheduler.latency_hiding.metrics import topological_order
from hlo_passes.scheduler.memory.alias_hazards import HazardTable
from tests.scheduler.checker.scheduled_modules import module_to_schedule, pipeline
from tests.scheduler.latency_hiding.test_hazard_edges import random_text, scheduled

#: The loop carries one array twice. Its input order is illegal: %s.3 reads %d.1 after
#: %reduce, that takes the buffer of %d.1. XLA's edges close a cycle here.
_CARRIED_TWICE = """HloModule carried_twice, is_scheduled=true, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%whole (all.p: f32[8]) -> f32[8] {
  %all.p = f32[8]{0} parameter(0)
  ROOT %all = f32[8]{0} all-to-all(%all.p), channel_id=5, replica_groups=[1,2]<=[2], dimensions={0}
}

%body (p: (s32[], f32[8], f32[8])) -> (s32[], f32[8], f32[8]) {
  %p = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %a = f32[8]{0} get-tuple-element(%p), index=1
  %s.1 = (f32[8]{0}, f32[8]{0}) collective-permute-start(%a), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %d.1 = f32[8]{0} collective-permute-done(%s.1)
  %s.2 = (f32[8]{0}, f32[8]{0}) collective-permute-start(%d.1), channel_id=2, source_target_pairs={{0,1}}
  %d.2 = f32[8]{0} collective-permute-done(%s.2)
  %b = f32[8]{0} get-tuple-element(%p), index=2
  %all-start = ((f32[8]{0}), f32[8]{0}) async-start(%b), calls=%whole
  %all-done = f32[8]{0} async-done(%all-start)
  %reduce = f32[8]{0} all-reduce-start(%all-done), channel_id=6, replica_groups=[2,1]<=[2], use_global_device_ids=true, to_apply=%add
  %s.3 = (f32[8]{0}, f32[8]{0}) collective-permute-start(%d.2), channel_id=8, source_target_pairs={{0,1},{1,0}}
  %reduced = f32[8]{0} all-reduce-done(%reduce)
  %t = f32[8]{0} tanh(%reduced)
  %d.3 = f32[8]{0} collective-permute-done(%s.3)
  ROOT %r = (s32[], f32[8]{0}, f32[8]{0}) tuple(%next, %reduced, %d.2)
}

%condition (q: (s32[], f32[8], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  %at = s32[] get-tuple-element(%q), index=0
  %limit = s32[] constant(3)
  ROOT %less = pred[] compare(%at, %limit), direction=LT
}

ENTRY %main (v: f32[8]) -> (s32[], f32[8], f32[8]) {
  %v = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8]{0}, f32[8]{0}) tuple(%zero, %v, %v)
  ROOT %loop = (s32[], f32[8]{0}, f32[8]{0}) while(%start), condition=%condition, body=%body
}
"""


def _checked(text: str) -> list[str]:
    """The order of the loop's body, of which the checker has nothing to say."""
    module = hlo_passes.parse(text)
    Pipeline.parse("latency-hiding-scheduler").run(module, verify_each=True)
    return [i.name for i in module.computation("body").instructions]


def test_an_array_carried_twice_is_read_before_it_is_overwritten() -> None:
    with pytest.raises(hlo_passes.PassError, match="%reduce overwrites"):
        Pipeline.parse("schedule-checker").run(hlo_passes.parse(_CARRIED_TWICE))
    order = _checked(_CARRIED_TWICE)
    assert order.index("d.3") < order.index("reduce") or order.index(
        "reduced"
    ) < order.index("s.2")


def test_a_hazard_is_met_or_closes_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[tuple[ScheduleGraph, list[tuple[int, list[int]]]]] = []

    def connect(graph: ScheduleGraph, table: HazardTable) -> None:
        dones = [n for n, is_done in enumerate(graph.is_done) if is_done]
        readers = [readers_in_window(graph, table, done) for done in dones]
        connect_what_fits(graph, table)
        wanted.append((graph, readers))

    monkeypatch.setattr(edges, "connect_what_fits", connect)
    for seed in range(60):
        scheduled(random_text(seed), "0.10.2", few=16)
    dropped = met = 0
    for graph, readers in wanted:
        assert len(topological_order(graph)) == len(graph)
        for start, nodes in readers:
            after = _after(graph, start)
            for node in nodes:
                is_met = start in _after(graph, node)
                assert is_met != (node in after)
                assert is_met != ((node, start) in graph.dropped_hazards)
                met, dropped = met + is_met, dropped + (not is_met)
    assert min(met, dropped) > 20


def _after(graph: ScheduleGraph, node: int) -> set[int]:
    """All that edges lead to."""
    found, work = {node}, [node]
    while work:
        new = set(graph.succs[work.pop()]) - found
        found |= new
        work += new
    return found


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_the_checker_accepts_orders_of_modules_without_copies(first: int) -> None:
    """Among the modules are some whose input orders it does not accept."""
    for seed in range(first, first + 30):
        draw = random.Random(seed)
        module = module_to_schedule(draw, draw.choice((2, 4, 8)))
        pipeline("released").run(module, verify_each=True)
