"""Asynchronous work in small modules made for one rule each: what flies, and where."""

from __future__ import annotations

import pytest

from hlo_passes.scheduler.checker.asynchronous import flights
from hlo_passes.scheduler.checker.overlap import lane_of
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from tests.scheduler.checker.small_modules import GROUPS, codes, small_module

_MANY = """%many (a: f32[8]) -> (f32[8], f32[8]) {
  %a.m = f32[8] parameter(0)
  %a.1 = f32[8] all-reduce(%a.m), replica_groups={{0,1}}, to_apply=%add
  %a.2 = f32[8] all-reduce(%a.m), replica_groups={{0,1}}, to_apply=%add
  ROOT %both = (f32[8], f32[8]) tuple(%a.1, %a.2)
}
"""
_BESIDE = """%beside (b: f32[8]) -> f32[8] {
  %b.0 = f32[8] parameter(0)
  ROOT %b.1 = f32[8] negate(%b.0)
}, execution_thread="parallel"
"""
_STARTED = "((f32[8]), (f32[8], f32[8]), u32[])"


def test_a_start_is_compared_with_all_that_fly_on_other_streams() -> None:
    def on(stream: int) -> str:
        return f'{GROUPS}, backend_config={{"operation_queue_id":"{stream}"}}'

    module = small_module(
        f"""
        %p = f32[8] parameter(0)
        %u = f32[8] negate(%p)
        %v = f32[8] sine(%p)
        %a = f32[8] all-reduce-start(%p), {on(6)}
        %b = f32[8] all-reduce-start(%u), {on(5)}
        %c = f32[8] all-reduce-start(%v), {on(6)}
        %x = f32[8] all-reduce-done(%a)
        %y = f32[8] all-reduce-done(%b)
        %z = f32[8] all-reduce-done(%c)
        ROOT %r = (f32[8], f32[8], f32[8]) tuple(%x, %y, %z)
        """
    )
    assert codes(module, device_order=False) == [("C031", "b"), ("C031", "c")]


def test_a_start_is_compared_with_nothing_that_has_ended() -> None:
    def on(stream: int) -> str:
        return f'backend_config={{"operation_queue_id":"{stream}"}}'

    # Nor with what is no collective, which brings no devices together.
    module = small_module(
        f"""
        %p = f32[8] parameter(0)
        %u = f32[8] negate(%p)
        %f = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%beside, {on(7)}
        %a = f32[8] all-reduce-start(%p), {GROUPS}, {on(6)}
        %x = f32[8] all-reduce-done(%a)
        %b = f32[8] all-reduce-start(%u), {GROUPS}, {on(5)}
        %g = ((f32[8]), f32[8], u32[]) async-start(%u), calls=%beside, {on(8)}
        %y = f32[8] all-reduce-done(%b)
        %v = f32[8] async-done(%f)
        %w = f32[8] async-done(%g)
        ROOT %r = (f32[8], f32[8], f32[8], f32[8]) tuple(%x, %y, %v, %w)
        """,
        """%beside (c: f32[8]) -> f32[8] {
  %c = f32[8] parameter(0)
  ROOT %n = f32[8] negate(%c)
}
""",
    )
    assert codes(module, device_order=False, alias_hazards="off") == []


def test_of_strangers_in_a_group_the_first_is_named() -> None:
    group = 'frontend_attributes={_scheduling_group_id="5"}'
    module = small_module(
        f"""
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p), {group}
        %b = f32[8] cosine(%p)
        %c = f32[8] sine(%p)
        %d = f32[8] tanh(%a), {group}
        ROOT %r = (f32[8], f32[8], f32[8]) tuple(%b, %c, %d)
        """
    )
    assert codes(module, scheduling_groups=True) == [("C070", "b")]


def test_a_start_that_something_else_reads_has_no_end() -> None:
    module = small_module(
        f"""
        %p = f32[8] parameter(0)
        %s = f32[8] all-reduce-start(%p), {GROUPS}
        ROOT %r = f32[8] negate(%s)
        """
    )
    assert ("C021", "s") in codes(module)


def test_a_transfer_that_nothing_reads_has_no_end() -> None:
    module = small_module(
        """
        %p = f32[8] parameter(0)
        %t = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %t), channel_id=1
        ROOT %r = f32[8] negate(%p)
        """
    )
    assert ("C021", "s") in codes(module)


_LOOP = """%condition (c: (s32[], (f32[8], u32[], token[]))) -> pred[] {
  %c = (s32[], (f32[8], u32[], token[])) parameter(0)
  %i.c = s32[] get-tuple-element(%c), index=0
  ROOT %less = pred[] compare(%i.c, %i.c), direction=LT
}

%body (t: (s32[], (f32[8], u32[], token[]))) -> (s32[], (f32[8], u32[], token[])) {
  ROOT %t.b = (s32[], (f32[8], u32[], token[])) parameter(0)
}
"""


@pytest.mark.parametrize("order", ["pksnitmwr", "pkistmnwr"])
def test_what_does_not_end_here_flies_to_the_loop_that_it_enters(order: str) -> None:
    module = small_module(
        """
        %p = f32[8] parameter(0)
        %k = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %k), channel_id=1
        %n = f32[8] negate(%p)
        %i = s32[] constant(0)
        %t = (s32[], (f32[8], u32[], token[])) tuple(%i, %s)
        %m = f32[8] sine(%p)
        %w = (s32[], (f32[8], u32[], token[])) while(%t), condition=%condition, body=%body
        ROOT %r = f32[8] add(%n, %m)
        """,
        _LOOP,
    )
    module.entry.set_order([module.entry.find(name) for name in order])
    (flight,) = flights(module.entry)
    assert (flight.begin, flight.end) == (order.index("s"), order.index("w"))
    assert flight.half.name == "s"


def test_a_done_without_a_start_has_flown_from_before_the_first() -> None:
    module = small_module(
        """
        %t = (f32[8], u32[], token[]) parameter(0)
        %d = token[] send-done(%t), channel_id=1
        %p = f32[8] parameter(1)
        %k = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %k), channel_id=2
        ROOT %r = f32[8] negate(%p)
        """
    )
    done, start = flights(module.entry)
    assert (done.begin, done.end, done.half.name) == (-1, 1, "d")
    assert (start.begin, start.end) == (4, 6)


@pytest.mark.parametrize(
    ("start", "done", "lane"),
    [
        (
            "(f32[8], f32[8], u32[]) copy-start(%x)",
            "f32[8] copy-done",
            "asynchronous compute",
        ),
        (
            f"{_STARTED} async-start(%x), calls=%many, "
            'frontend_attributes={_collectives_group=""}',
            "(f32[8], f32[8]) async-done",
            "collectives",
        ),
        (f"{_STARTED} async-start(%x), calls=%many", "(f32[8], f32[8]) async-done", ""),
    ],
    ids=["copy", "group", "computation"],
)
def test_what_flies_in_a_loop_counts_around_it(
    start: str, done: str, lane: str
) -> None:
    """XLA adds all but what it does not overlap there: its own thread's computations."""
    loop = f"""%again (x: f32[8]) -> f32[8] {{
  %x = f32[8] parameter(0)
  %s = {start}
  %d = {done}(%s)
  ROOT %n = f32[8] negate(%x)
}}

%more (y: f32[8]) -> pred[] {{
  %y = f32[8] parameter(0)
  ROOT %no = pred[] constant(false)
}}
"""
    module = small_module(
        f"""
        %p = f32[8] parameter(0)
        %q = f32[8] all-reduce-start(%p), {GROUPS}
        %b = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%beside, async_execution_thread="parallel"
        %w = f32[8] while(%p), condition=%more, body=%again
        %e = f32[8] async-done(%b)
        ROOT %r = f32[8] all-reduce-done(%q)
        """,
        _MANY,
        _BESIDE,
        loop,
    )
    found = check_schedule(
        module,
        parallel_collective_overlap_limit=1,
        parallel_async_compute_limit=1,
        alias_hazards="off",
    )
    around = "%q" if lane == "collectives" else "%b"
    message = (
        f"2 in flight on the lane of {lane}, the limit is 1: {around} and 1 inside %w"
    )
    assert [f.message for f in found] == ([message] if lane else [])


@pytest.mark.parametrize(
    ("root", "config", "lane"),
    [
        ("dynamic-slice", "dynamic_slice_config", "memory copies"),
        ("bitcast", "dynamic_slice_config", "memory copies"),
        ("fusion", "dynamic_slice_config", "memory copies"),
        ("fusion", "dynamic_memcpy_config", "memory copies"),
        ("fusion", "another_config", "asynchronous compute"),
        ("dynamic-slice", "another_config", "asynchronous compute"),
        ("negate", "dynamic_slice_config", "asynchronous compute"),
    ],
)
def test_a_fusion_that_copies_a_slice_has_a_lane(
    root: str, config: str, lane: str
) -> None:
    mark = f'backend_config={{"{config}":{{"loop_index":0}}}}'
    slice_ = f"f32[1] dynamic-slice(%a, %i), dynamic_slice_sizes={{1}}, {mark}"
    last = {
        "fusion": "ROOT %d = f32[1] dynamic-slice(%a, %i), dynamic_slice_sizes={1}",
        "dynamic-slice": f"ROOT %d = {slice_}",
        "bitcast": f"%d = {slice_}\n  ROOT %e = f32[1] bitcast(%d)",
        "negate": f"%d = {slice_}\n  ROOT %e = f32[1] negate(%d), {mark}",
    }[root]
    fused = f"""%fused (a: f32[8], i: s32[]) -> f32[1] {{
  %a = f32[8] parameter(0)
  %i = s32[] parameter(1)
  {last}
}}
"""
    own = f", {mark}" if root == "fusion" else ""
    wrapped = f"""%wrapped (a.w: f32[8], i.w: s32[]) -> f32[1] {{
  %a.w = f32[8] parameter(0)
  %i.w = s32[] parameter(1)
  ROOT %f = f32[1] fusion(%a.w, %i.w), kind=kLoop, calls=%fused{own}
}}
"""
    module = small_module(
        """
        %p = f32[8] parameter(0)
        %k = s32[] parameter(1)
        %s = ((f32[8], s32[]), f32[1], u32[]) async-start(%p, %k), calls=%wrapped
        ROOT %r = f32[1] async-done(%s)
        """,
        fused,
        wrapped,
    )
    assert lane_of(module.entry.root) == lane
    assert lane_of(module.entry.root.operands[0]) == lane


@pytest.mark.parametrize("config", ["dynamic_slice_config", "dynamic_memcpy_config"])
def test_a_slice_that_is_no_fusion_is_on_the_lane_of_compute(config: str) -> None:
    wrapped = f"""%wrapped (a.w: f32[8], i.w: s32[]) -> f32[1] {{
  %a.w = f32[8] parameter(0)
  %i.w = s32[] parameter(1)
  ROOT %f = f32[1] dynamic-slice(%a.w, %i.w), dynamic_slice_sizes={{1}}, backend_config={{"{config}":{{"loop_index":0}}}}
}}
"""
    module = small_module(
        """
        %p = f32[8] parameter(0)
        %k = s32[] parameter(1)
        %s = ((f32[8], s32[]), f32[1], u32[]) async-start(%p, %k), calls=%wrapped
        ROOT %r = f32[1] async-done(%s)
        """,
        wrapped,
    )
    assert lane_of(module.entry.root) == "asynchronous compute"
