"""The scheduler as XLA:TPU has it: settings by chip, sizes, its own rule."""

from __future__ import annotations

import pathlib
import random

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, UsageError
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.latency_hiding.edges import connect_all
from hlo_passes.scheduler.latency_hiding.gpu_tracker import make_tracker
from hlo_passes.scheduler.latency_hiding.graph import ScheduleGraph
from hlo_passes.scheduler.latency_hiding.resources import Resource, Usage
from hlo_passes.scheduler.latency_hiding.rules import RULES, active_rules
from hlo_passes.scheduler.latency_hiding.sent_after import SentAfter
from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings
from hlo_passes.scheduler.latency_hiding.tpu_tracker import LINKS
from hlo_passes.scheduler.memory.tpu_sizes import tpu_memory_limit_bytes, tpu_sizes
from hlo_passes.scheduler.tpu.chips import chip, chip_names
from hlo_passes.scheduler.tpu.costs import require_tpu_costs, tpu_costs
from hlo_passes.scheduler.tpu.settings import tpu_settings
from hlo_passes.text.reader import parse
from tests.tpu.test_modules import COSTS, TILED, costs_file


def shape(text: str) -> Shape:
    module = parse(f"HloModule m\n\nENTRY %e {{\n  ROOT %p = {text} parameter(0)\n}}\n")
    return module.entry.root.shape


def test_the_chips() -> None:
    assert chip_names() == ("v4", "v5e", "v5p", "v6e", "tpu7x")
    assert chip("v5e").us(3000) == 2.0
    for name in chip_names():
        part = chip(name)
        # Matrix units of 128 x 128, or 256 x 256, that multiply and add at the clock.
        at_once = part.bf16_flops / (part.tensorcore_mhz * 1e6) / 2
        assert at_once / 128**2 == pytest.approx(round(at_once / 128**2), rel=0.06)
    with pytest.raises(UsageError, match="U250"):
        chip("v5x")


def test_settings_are_a_row_of_the_chip_and_the_flags() -> None:
    v5e, v5p = tpu_settings("v5e"), tpu_settings("v5p")
    assert v5e.aggressive_scheduling_policies
    assert not v5p.aggressive_scheduling_policies
    assert (v5e.collective_permute_overlap_limit, v5e.copy_overlap_limit) == (5, 5)
    assert (v5e.all_gather_overlap_limit, v5e.rerun) == (1, 1)
    flags = (
        "xla_max_concurrent_async_all_gathers=3,xla_tpu_use_aggressive_scheduling=AUTO,"
        "xla_latency_hiding_scheduler_rerun=2,xla_tpu_some_other=7"
    )
    changed = tpu_settings("v5e", flags)
    assert (changed.all_gather_overlap_limit, changed.rerun) == (3, 2)
    assert changed.aggressive_scheduling_policies
    off = tpu_settings("v5e", "xla_tpu_enable_async_collective_fusion=false")
    assert not off.aggressive_scheduling_policies
    on = tpu_settings("v5p", "xla_tpu_use_aggressive_scheduling=true")
    assert on.aggressive_scheduling_policies


def test_an_edge_to_a_control_successor_has_no_latency_of_a_pair(
    tmp_path: pathlib.Path,
) -> None:
    """Only the edge from a start to its done takes what the pair takes."""
    module = parse(TILED.replace("negate(%p)", "negate(%p), control-predecessors={%s}"))
    estimator = require_tpu_costs(costs_file(tmp_path)).in_cycles()
    tracker = make_tracker(tpu_settings("v5e"))
    entry = module.entry
    graph = ScheduleGraph(entry, entry.instructions, estimator, tracker)
    connect_all(graph)
    at = {i.name: n for n, i in enumerate(entry.instructions)}
    assert graph.latency_us(at["s"], at["d"]) == COSTS["latency_cycles"]["s"]
    assert graph.latency_us(at["s"], at["n"]) == 1.0
    # Of a start whose done is in another trip of a loop, the start itself is asked.
    start = entry.instructions[at["s"]]
    assert estimator.latency(start, start).us == COSTS["latency_cycles"]["s"]


def test_the_improver_counts_as_the_compiler_does(tmp_path: pathlib.Path) -> None:
    """Whole cycles in XLA's statistic, whole tiles in memory, the compiler's limit."""
    module = parse(TILED)
    context = PassContext(Pricing(costs=costs_file(tmp_path)))
    found = ScheduleImprover(memory_cap="limit").conditions(module, context)
    work = next(i for i in module.entry.instructions if i.name == "n")
    us = found.prices.node_cost(work)
    cycles = found.xla_prices.node_cost(work)
    assert us is not None
    assert cycles is not None
    assert (us.us, cycles.us) == (2.0, 3000.0)
    sizes = found.settings.part_sizes
    assert sizes is not None
    # Eight rows of 128 elements at least.
    assert sizes(shape("f32[1,5]{1,0:T(8,128)}")) == 8 * 128 * 4
    assert found.cap_bytes(7) == COSTS["memory_limit_bytes"]
    assert SchedulerSettings().part_sizes is None


def test_a_pair_holds_the_links_of_its_kind() -> None:
    """All-gathers use four directions of the torus, permutes all six."""
    module = parse("""HloModule m

ENTRY %e {
  %p = f32[8] parameter(0)
  %g = (f32[8], f32[16]) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}
  %gd = f32[16] all-gather-done(%g)
  %c = (f32[8], f32[8]) collective-permute-start(%p), source_target_pairs={{0,1}}
  %cd = f32[8] collective-permute-done(%c)
  ROOT %t = (f32[16], f32[8]) tuple(%gd, %cd)
}
""")
    tracker = make_tracker(tpu_settings("v5e"))
    for name, usage, kind, links in (
        ("g", Usage.RELEASE, Resource.ALL_GATHER, LINKS[:4]),
        ("gd", Usage.OCCUPY, Resource.ALL_GATHER, LINKS[:4]),
        ("c", Usage.RELEASE, Resource.COLLECTIVE_PERMUTE, LINKS),
        ("cd", Usage.OCCUPY, Resource.COLLECTIVE_PERMUTE, LINKS),
    ):
        half = module.entry.find(name)
        assert half is not None
        expected = tuple((resource, usage) for resource in (kind, *links))
        assert tracker.resources(half) == expected


@pytest.mark.parametrize("flags", ["fast", "xla_latency_hiding_scheduler_rerun=yes"])
def test_flags_that_are_none(flags: str) -> None:
    with pytest.raises(UsageError, match="U251"):
        tpu_settings("v5e", flags)


@pytest.mark.parametrize(
    "flag", ["xla_max_concurent_async_all_gathers=2", "xla_tpu_scoped_vmem_limit_kib=1"]
)
def test_flags_given_to_the_pass_are_settings(
    flag: str, tmp_path: pathlib.Path
) -> None:
    """A flag of the costs file that the scheduler does not have was in effect."""
    context = PassContext(Pricing(costs=costs_file(tmp_path, flags=flag)))
    Pipeline.parse("latency-hiding-scheduler", context).run(parse(TILED))
    given = f"latency-hiding-scheduler{{tpu-flags='{flag}'}}"
    pipeline = Pipeline.parse(given, context)
    with pytest.raises(UsageError, match="no setting of XLA:TPU's") as refused:
        pipeline.run(parse(TILED))
    assert refused.value.code == "U251"
    assert "did you mean xla_" in refused.value.hint
    assert "in the costs file already" in refused.value.hint


def test_a_wrapped_collective_is_no_slice() -> None:
    module = parse("""HloModule m

%exchange (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %x = f32[8] all-to-all(%a), replica_groups={{0,1}}, dimensions={0}
}

ENTRY %e {
  %p = f32[8] parameter(0)
  %s = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%exchange
  ROOT %d = f32[8] async-done(%s)
}
""")
    tracker = make_tracker(tpu_settings("v6e"))
    done = module.entry.root
    assert tracker.resources(done) == ((Resource.ALL_TO_ALL, Usage.OCCUPY),)
    (first,) = done.operands
    assert tracker.resources(first) == ((Resource.ALL_TO_ALL, Usage.RELEASE),)


def test_other_flavours_do_not_have_its_rule() -> None:
    (row,) = (r for r in RULES if r.reason == "kAsyncDoneDataDependency")
    assert row not in active_rules(SchedulerSettings())
    assert row not in active_rules(SchedulerSettings.generic())
    assert row in active_rules(tpu_settings("v6e"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("f32[8,128]{1,0:T(8,128)}", 4096),
        ("bf16[100,200]{1,0:T(8,128)(2,1)}", 104 * 256 * 2),
        ("bf16[3,100,200]{2,1,0:T(8,128)(2,1)}", 3 * 104 * 256 * 2),
        ("f32[100,200]{0,1:T(8,128)}", 200 * 128 * 4),
        ("s32[]{:T(128)}", 512),
        ("f32[200]{0:T(1024)}", 4096),
        ("u32[]", 4096),
        ("f32[1025]{0}", 8192),
        ("(f32[8]{0}, f32[8]{0})", 512),
        ("token[]", 0),
    ],
)
def test_sizes_are_whole_tiles(text: str, size: int) -> None:
    assert tpu_sizes("v5e")(shape(text)) == size


def test_tables_of_pointers_depend_on_the_chip() -> None:
    eight = shape(f"({', '.join(['f32[8]{0}'] * 8)})")
    nine = shape(f"({', '.join(['f32[8]{0}'] * 9)})")
    assert [tpu_sizes("v5p")(each) for each in (eight, nine)] == [32, 64]
    assert [tpu_sizes("v4")(each) for each in (eight, nine)] == [512, 512]


def test_the_memory_limit() -> None:
    module = parse(TILED)
    limit = tpu_memory_limit_bytes(module, "v5e", 10_000_000, percent=50)
    assert limit == 5_000_000 - 64 * 256 * 4 - 5 * 10_240
    # XLA:TPU leaves a twentieth to others unless it is told otherwise.
    assert tpu_memory_limit_bytes(module, "v5e", 10_000_000) == limit + 4_500_000
    assert tpu_memory_limit_bytes(module, "v5e", 100) == 0


def naive_is_after(preds: list[list[int]], given: bytearray, start: int, other: int):
    above, work = set[int](), list(preds[start])
    while work:
        p = work.pop()
        if p not in above:
            above.add(p)
            work += preds[p]
    own = set(preds[start])
    return any(p in above and p not in own and not given[p] for p in preds[other])


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sent_after_what(seed: int) -> None:
    draw = random.Random(seed)
    count = 24
    preds = [draw.sample(range(n), min(n, draw.randint(0, 2))) for n in range(count)]
    given = bytearray(not near and draw.random() < 0.5 for near in preds)
    nodes = draw.sample(range(4, count), 6)
    starts = {100 + n: n for n in nodes}
    found = SentAfter(preds, starts, given)
    spoke = False
    for a in starts:
        for b in starts:
            wanted = naive_is_after(preds, given, starts[a], starts[b])
            wanted -= naive_is_after(preds, given, starts[b], starts[a])
            assert found.compare(a, b) == wanted
            spoke |= wanted != 0
        assert found.compare(a, nodes[0]) == found.compare(nodes[0], a) == 0
    assert found.speaks or not spoke


LATE = """\
HloModule late, is_scheduled=true, entry_computation_layout={(f32[8]{0:T(128)}, f32[8]{0:T(128)})->f32[8]{0:T(128)}}

ENTRY %main (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8]{0:T(128)} parameter(0)
  %q = f32[8]{0:T(128)} parameter(1)
  %a = f32[8]{0:T(128)} negate(%p)
  %second = (f32[8]{0:T(128)}, f32[8]{0:T(128)}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%q), channel_id=2, source_target_pairs={{0,1},{1,0}}
  %first = (f32[8]{0:T(128)}, f32[8]{0:T(128)}, u32[]{:S(2)}, u32[]{:S(2)}) collective-permute-start(%a), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %d2 = f32[8]{0:T(128)} collective-permute-done(%second)
  %d1 = f32[8]{0:T(128)} collective-permute-done(%first)
  ROOT %r = f32[8]{0:T(128)} add(%d1, %d2)
}
"""


def test_the_pass_follows_the_chip_of_its_costs(tmp_path: pathlib.Path) -> None:
    module = hlo_passes.parse(LATE)
    on = Pricing(
        costs=costs_file(
            tmp_path,
            node_cost_cycles=dict.fromkeys(("first", "second", "d1", "d2"), 1.0)
            | {"a": 3000.0, "r": 1500.0},
            latency_cycles={"first": 6e3, "second": 6e3},
        )
    )
    pipeline = Pipeline.parse("latency-hiding-scheduler", PassContext(on))
    result = pipeline.run(module)
    assert any("cycles before" in remark for remark in result.remarks)
    hlo_passes.verify(module)
    limit = result.passes[0].details["memory"]["limit_bytes"]
    assert limit == COSTS["memory_limit_bytes"]


def test_an_explanation_is_in_cycles(tmp_path: pathlib.Path) -> None:
    pricing = Pricing(costs=costs_file(tmp_path))
    context = PassContext(pricing, explain="s")
    result = Pipeline.parse("latency-hiding-scheduler", context).run(parse(TILED))
    (said,) = result.passes[0].explanations
    assert "cycles before its done %d, latency 6,000 cycles" in said
    assert "cycles before the end" in said
    assert " us" not in said
    # What a rule prefers is told in the same unit.
    told = [rule.prefers_in("cycles") for rule in RULES]
    assert "the shorter stall, cycles" in told
    assert "more asynchronous latency above it, cycles" in told
    assert not any(text.endswith(" us") for text in told)
    assert [rule.prefers_in("us") for rule in RULES] == [r.prefers for r in RULES]


def test_the_flavour_needs_costs() -> None:
    module = hlo_passes.parse(TILED)
    pipeline = Pipeline.parse("latency-hiding-scheduler{flavour=tpu}", PassContext())
    with pytest.raises(UsageError, match="U208"):
        pipeline.run(module)


@pytest.mark.parametrize(
    "changes",
    [
        {"chip": "h100"},
        {"tensorcore_mhz": 0},
        {"tensorcore_mhz": "fast"},
        {"node_cost_cycles": {"n": -1}},
        {"latency_cycles": [1]},
        {"memory_limit_bytes": "all"},
    ],
)
def test_costs_that_are_none(
    tmp_path: pathlib.Path, changes: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match="U206"):
        tpu_costs(costs_file(tmp_path, **changes))


def test_costs_in_both_units(tmp_path: pathlib.Path) -> None:
    costs = require_tpu_costs(costs_file(tmp_path))
    root = hlo_passes.parse(TILED).entry.root
    assert costs.in_cycles().node_cost(root).us == 1500.0
    assert costs.in_us().node_cost(root).us == 1.0
    other = hlo_passes.parse(TILED.replace("%r ", "%other ")).entry.root
    assert costs.in_cycles().node_cost(other).us == 1.0
