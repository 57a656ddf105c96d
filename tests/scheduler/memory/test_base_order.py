"""Memory schedulers: each order, the adjustments, limits, the pass."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.base_order import SCHEDULERS, base_order
from hlo_passes.scheduler.memory.curve import memory_curve, parameter_bytes
from hlo_passes.scheduler.memory.fragmentation import fragmentation_bytes
from hlo_passes.scheduler.memory.memory_limit import (
    entry_bytes,
    scheduler_memory_limit_bytes,
)
from hlo_passes.scheduler.memory.packing import Packing
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from tests.scheduler.memory.programs import random_program

BROADCASTS = """HloModule m

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %e (p: f32[], q: f32[]) -> (f32[], f32[]) {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  %zero = f32[] constant(0)
  %a = f32[4096]{0} broadcast(%p), dimensions={}
  %b = f32[4096]{0} broadcast(%q), dimensions={}
  %r = f32[] reduce(%a, %zero), dimensions={0}, to_apply=%add
  %t = f32[] reduce(%b, %zero), dimensions={0}, to_apply=%add
  ROOT %out = (f32[], f32[]) tuple(%r, %t)
}
"""


def _names(module: Module, scheduler: str = "") -> str:
    orders = base_order(module, scheduler=scheduler).orders
    return " ".join(i.name for i in orders[module.entry])


def test_greedy_order_frees_before_it_makes() -> None:
    module = hlo_passes.parse(BROADCASTS)
    # Scalars first, of equals the last; then one broadcast at a time.
    assert _names(module, "list") == "zero q p a r b t out"


def test_greedy_order_ranks_the_last_use_of_a_value_again() -> None:
    """The slice frees the broadcast only after the reduction; `c` would free nothing.

    No value ends at the reduction, as the constant is a result too.
    """
    module = hlo_passes.parse("""HloModule m

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %e (p: f32[]) -> (f32[1024], f32[512], f32[]) {
  %p = f32[] parameter(0)
  %zero = f32[] constant(0)
  %a = f32[4096]{0} broadcast(%p), dimensions={}
  %r = f32[] reduce(%a, %zero), dimensions={0}, to_apply=%add
  %b = f32[1024]{0} slice(%a), slice={[0:1024]}
  %c = f32[512]{0} broadcast(%r), dimensions={}
  ROOT %out = (f32[1024]{0}, f32[512]{0}, f32[]) tuple(%b, %c, %zero)
}
""")
    assert _names(module, "list") == "zero p a r b c out"


def test_two_tuples_of_one_value_end_with_the_last_user_of_either() -> None:
    """%y makes the least; of the others, which free nothing, the last is the first."""
    module = hlo_passes.parse("""HloModule m

ENTRY %e {
  %p = f32[1] parameter(0)
  %v = f32[64] custom-call(%p), custom_call_target="f"
  %s = (f32[64]) tuple(%v)
  %t = (f32[64]) tuple(%v)
  %w = f32[8] custom-call(%t), custom_call_target="f"
  %x = f32[8] custom-call(%s), custom_call_target="f"
  %y = f32[4] custom-call(%s, %t), custom_call_target="f"
  %z = f32[8] custom-call(%t, %s), custom_call_target="f"
  ROOT %r = (f32[8], f32[8], f32[4], f32[8]) tuple(%w, %x, %y, %z)
}
""")
    assert _names(module, "list") == "p v t s y z x w r"


def test_the_last_user_of_one_of_two_tuples_frees_it() -> None:
    """%z makes 128 bytes and frees 80 of both tuples; %other makes 64 and frees none."""
    module = hlo_passes.parse("""HloModule m

ENTRY %e {
  %p = f32[1] parameter(0)
  %a = f32[16] custom-call(%p), custom_call_target="f"
  %b = f32[4] custom-call(%p), custom_call_target="f"
  %other = f32[16] custom-call(%p), custom_call_target="f"
  %s = (f32[16]) tuple(%a)
  %t = (f32[4]) tuple(%b)
  %v = f32[2] custom-call(%t, %s), custom_call_target="f"
  %w = f32[4] custom-call(%t), custom_call_target="f"
  %x = f32[2] custom-call(%s, %t), custom_call_target="f"
  %y = f32[2] custom-call(%s, %t), custom_call_target="f"
  %z = f32[32] custom-call(%s, %t), custom_call_target="f"
  ROOT %r = (f32[2], f32[4], f32[2], f32[2], f32[32]) tuple(%v, %w, %x, %y, %z)
}
""")
    names = _names(module, "list").split()
    assert names.index("z") < names.index("other")


@pytest.mark.parametrize("beside", ["t", "far", "p"])
def test_a_heap_that_packs_the_largest_first_loses_eight_bytes(beside: str) -> None:
    """%last is at 0, %b after %a, and %c after both: 84 bytes, of which 76 live.

    A table of pointers takes none of the heap, nor does what is in another memory.
    """
    module = hlo_passes.parse(f"""HloModule m, is_scheduled=true

ENTRY %e {{
  %p = f32[] parameter(0)
  %a = f32[12] custom-call(%p), custom_call_target="f"
  %t = (f32[]) tuple(%p)
  %far = f32[2]{{0:S(1)}} custom-call(%p), custom_call_target="f"
  %b = f32[6] custom-call(%a, %{beside}), custom_call_target="f"
  %c = f32[3] custom-call(%{beside}, %b), custom_call_target="f"
  ROOT %last = f32[16] custom-call(%c), custom_call_target="f"
}}
""")
    assert fragmentation_bytes(module, ModuleMemory(module).buffers) == 84 - 76


@pytest.mark.parametrize(
    ("config", "gibibytes", "expected"),
    [
        # An outfeed counts as if it freed 2 GiB, an infeed as if it made as much.
        (True, 1, "p q t b o r i out"),
        (True, 1.5, "p q t b o r i out"),
        (True, 3, "p q t i b r o out"),
        (False, 1, "p q t i b r o out"),
    ],
)
def test_feeds_with_a_config_keep_their_place(
    config: bool, gibibytes: float, expected: str
) -> None:
    count = int(gibibytes * 2**28)
    out, into = (', outfeed_config="x"', ', infeed_config="x"') if config else ("", "")
    module = hlo_passes.parse(f"""HloModule m

ENTRY %e (p: f32[], q: f32[8]) -> (f32[8], token[], ((f32[8]), token[])) {{
  %p = f32[] parameter(0)
  %q = f32[8]{{0}} parameter(1)
  %t = token[] after-all()
  %b = f32[{count}]{{0}} broadcast(%p), dimensions={{}}
  %i = ((f32[8]{{0}}), token[]) infeed(%t){into}
  %o = token[] outfeed(%q, %t), outfeed_shape=f32[8]{{0}}{out}, control-predecessors={{%b}}
  %r = f32[8]{{0}} slice(%b), slice={{[0:8]}}
  ROOT %out = (f32[8]{{0}}, token[], ((f32[8]{{0}}), token[])) tuple(%r, %o, %i)
}}
""")
    found = _names(module, "list").split()
    assert sorted(found) == sorted(expected.split())
    assert [n for n in found if n in "bori"] == [
        n for n in expected.split() if n in "bori"
    ]


def test_post_order_and_depth_first_order() -> None:
    module = hlo_passes.parse(BROADCASTS)
    assert _names(module, "post-order") == "p a zero r q b t out"
    # Equal in users and bytes: by name.
    assert _names(module, "dfs") == "p a zero r q b t out"


def test_large_modules_show_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    module = hlo_passes.parse(BROADCASTS)
    base_order(module, progress=told.append)
    assert told == []
    monkeypatch.setattr("hlo_passes.scheduler.memory.base_order.LARGE_MODULE", 1)
    base_order(module, progress=told.append)
    assert told == [
        "memory scheduler: list (1 of 3)",
        "memory scheduler: dfs (2 of 3)",
        "memory scheduler: post-order (3 of 3)",
        "",
    ]


def test_depth_first_order_prefers_what_many_use() -> None:
    module = hlo_passes.parse("""HloModule m

ENTRY %e (p: f32[4], q: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %q = f32[4]{0} parameter(1)
  %a = f32[4]{0} negate(%p)
  %b = f32[4]{0} negate(%q)
  %b1 = f32[4]{0} add(%b, %b)
  %b2 = f32[4]{0} multiply(%b, %b)
  %c = f32[4]{0} add(%b1, %b2)
  %dead = f32[4]{0} negate(%p)
  ROOT %r = f32[4]{0} add(%a, %c)
}
""")
    assert _names(module, "post-order") == "p dead a q b b1 b2 c r"
    assert _names(module, "dfs") == "p dead q b b1 b2 c a r"


def test_the_least_memory_wins_and_list_in_doubt() -> None:
    found = base_order(hlo_passes.parse(BROADCASTS))
    assert found.scheduler == "list"
    assert list(found.considered_bytes) == list(SCHEDULERS)
    assert found.minimum_bytes == min(found.considered_bytes.values())


# -- limits, curves, laws ----------------------------------------------------


def test_memory_limit() -> None:
    text = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY %e (p: f32[256], q: f32[256]) -> (f32[256], f32[256]) {
  %p = f32[256]{0} parameter(0)
  %q = f32[256]{0:S(5)} parameter(1)
  %n = f32[256]{0} negate(%p)
  ROOT %t = (f32[256]{0}, f32[256]{0}) tuple(%n, %n)
}
"""
    module = hlo_passes.parse(text)
    # p, one of the results, the result's table; q lies in host memory.
    assert entry_bytes(module) == 1024 + 1024 + 16
    assert scheduler_memory_limit_bytes(module, 10_000) == (8000 - 2064) * 95 // 100
    limit = scheduler_memory_limit_bytes(module, 1, base_bytes=3064, slop_percent=120)
    assert limit == 1200
    assert scheduler_memory_limit_bytes(module, 1000) == 0
    assert parameter_bytes(module) == 1024


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30))
def test_laws_of_orders_and_heaps(seed: int) -> None:
    module = hlo_passes.parse(random_program(random.Random(seed)))
    found = base_order(module)
    for computation, order in found.orders.items():
        place = {i: k for k, i in enumerate(order)}
        assert set(order) == set(computation.instructions)
        assert all(
            place[o] < place[i]
            for i in order
            for o in (*i.operands, *i.control_predecessors)
        )
        computation.set_order(order)
    memory = ModuleMemory(module)
    assert fragmentation_bytes(module, memory.buffers) >= 0
    for curve in memory_curve(module, memory).values():
        tables = memory.of(curve.computation)
        assert max([curve.initial_bytes, *curve.while_bytes]) == curve.peak_bytes
        assert curve.peak_bytes == tables.peak_bytes()
        assert min(curve.after_bytes) >= 0
        assert curve.after_bytes[-1] == curve.initial_bytes


@pytest.mark.parametrize(
    ("events", "size"),
    [
        # +NAME SIZE begins, -NAME ends, NAME@OTHER SIZE lies where OTHER lay. The sizes
        # of the heap are those that XLA's own simulator is tested for.
        ("+a10 +b30 +c20 +d40 -a -b -c -d", 100),
        ("+a10 +b20 +c40 -a +d30 +e50 -b -c -d -e", 140),
        ("+a40 -a +b20 -b c@a40 -c", 40),
        ("+a40 -a +b20 c@a40 -c -b", 60),
        ("+a10 -a +b30 c@a10 -c -b", 40),
        ("+a40 -a +b20 c@a30 -c -b", 60),
        ("+a0 -a", 0),
    ],
)
def test_packing(events: str, size: int) -> None:
    packing = Packing()
    for event in events.split():
        if event[0] == "-":
            packing.free(ord(event[1]))
        elif event[0] == "+":
            packing.allocate(ord(event[1]), int(event[2:]))
        else:
            packing.allocate(ord(event[0]), int(event[3:]), ord(event[2]))
    assert packing.packed_bytes() == size


def test_the_pass_schedules_and_reports() -> None:
    module = hlo_passes.parse(BROADCASTS)
    pipeline = hlo_passes.Pipeline.parse("hlo-memory-scheduler")
    result = pipeline.run(module)
    assert module.is_scheduled
    assert " ".join(i.name for i in module.entry.instructions) == "zero q p a r b t out"
    assert result.changed
    chosen = hlo_passes.Pipeline.parse("hlo-memory-scheduler{scheduler=dfs}")
    chosen.run(module)
    assert " ".join(i.name for i in module.entry.instructions) == "p a zero r q b t out"
