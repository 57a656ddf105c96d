"""What the checker says of small modules made for one rule each."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.asynchronous import flights
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.checker.overlap import lane_of
from hlo_passes.scheduler.checker.schedule_checker import check_schedule

_ADD = """%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
"""
_GROUPS = "replica_groups={{0,1}}, to_apply=%add"


def _module(entry: str, *computations: str) -> hlo_passes.Module:
    """A scheduled module; `entry` has a line per instruction."""
    lines = "\n".join(f"  {line}" for line in entry.strip().splitlines())
    head = "HloModule m, is_scheduled=true, replica_count=2\n"
    body = "\n".join((head, _ADD, *computations))
    return hlo_passes.parse(f"{body}\nENTRY %main {{\n{lines}\n}}\n")


def _codes(module: hlo_passes.Module, **options: object) -> list[tuple[str, str]]:
    return [(f.code, f.instruction) for f in check_schedule(module, **options)]


def test_a_computation_that_went_or_came_is_told() -> None:
    entry = "%p = f32[8] parameter(0)\nROOT %r = f32[8] negate(%p)"
    without = _module(entry)
    more = _module(entry, _ADD.replace("%add", "%sum"))
    for before, after, word in ((more, without, "went"), (without, more, "is new")):
        (found,) = check_schedule(after, before)
        assert (found.code, found.message) == ("C002", f"computation %sum {word}")
    assert check_schedule(more, more) == []


def test_of_strangers_in_a_group_the_first_is_named() -> None:
    group = 'frontend_attributes={_scheduling_group_id="5"}'
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p), {group}
        %b = f32[8] cosine(%p)
        %c = f32[8] sine(%p)
        %d = f32[8] tanh(%a), {group}
        ROOT %r = (f32[8], f32[8], f32[8]) tuple(%b, %c, %d)
        """
    )
    assert _codes(module, scheduling_groups=True) == [("C070", "b")]


def test_a_start_that_something_else_reads_has_no_end() -> None:
    module = _module(
        f"""
        %p = f32[8] parameter(0)
        %s = f32[8] all-reduce-start(%p), {_GROUPS}
        ROOT %r = f32[8] negate(%s)
        """
    )
    assert ("C021", "s") in _codes(module)


def test_a_transfer_that_nothing_reads_has_no_end() -> None:
    module = _module(
        """
        %p = f32[8] parameter(0)
        %t = token[] after-all()
        %s = (f32[8], u32[], token[]) send(%p, %t), channel_id=1
        ROOT %r = f32[8] negate(%p)
        """
    )
    assert ("C021", "s") in _codes(module)


_LOOP = """%condition (c: (s32[], (f32[8], u32[], token[]))) -> pred[] {
  %c = (s32[], (f32[8], u32[], token[])) parameter(0)
  %i.c = s32[] get-tuple-element(%c), index=0
  ROOT %less = pred[] compare(%i.c, %i.c), direction=LT
}

%body (t: (s32[], (f32[8], u32[], token[]))) -> (s32[], (f32[8], u32[], token[])) {
  ROOT %t.b = (s32[], (f32[8], u32[], token[])) parameter(0)
}
"""


def test_what_does_not_end_here_flies_to_the_loop_that_it_enters() -> None:
    module = _module(
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
    (flight,) = flights(module.entry)
    assert (flight.begin, flight.end) == (2, 7)
    assert flight.half.name == "s"


def test_a_done_without_a_start_has_flown_from_before_the_first() -> None:
    module = _module(
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


def test_a_parameter_is_there_before_its_line() -> None:
    """The caller holds what it passes on, wherever the callee names it."""
    early = """%f (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %m = f32[8,8] broadcast(%a), dimensions={0}
  %n = f32[8,8] sine(%m)
  %s = f32[1,8] slice(%n), slice={[0:1], [0:8]}
  %v = f32[8] bitcast(%s)
  ROOT %r = f32[8] add(%v, %b)
}
"""
    line = "  %b = f32[8] parameter(1)\n"
    late = early.replace(line, "").replace("  ROOT", f"{line}  ROOT")
    entry = """
        %p = f32[8] parameter(0)
        %x = f32[8] negate(%p)
        %y = f32[8] sine(%p)
        %c = f32[8] call(%x, %y), to_apply=%f
        ROOT %w = f32[8] negate(%c)
        """
    sizes = [peak_memory(_module(entry, f)).size_bytes for f in (early, late)]
    # One array of the caller, its other one was read, and two of the callee.
    assert sizes == [32 + 512] * 2


def test_a_copy_of_a_tuple_has_its_elements() -> None:
    text = """
        %p = f32[8] parameter(0)
        %a = f32[8] negate(%p)
        %b = f32[8] sine(%p)
        %t = (f32[8], f32[8]) tuple(%a, %b)
        %c = (f32[8], f32[8]) copy(%t)
        %x = f32[8] get-tuple-element(%c), index=0
        %y = f32[8] get-tuple-element(%c), index=1
        ROOT %r = f32[8] add(%x, %y)
        """
    found = peak_memory(_module(text)).size_bytes
    assert found == 32 + 32 + 32


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
    module = _module(
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
    module = _module(
        """
        %p = f32[8] parameter(0)
        %k = s32[] parameter(1)
        %s = ((f32[8], s32[]), f32[1], u32[]) async-start(%p, %k), calls=%wrapped
        ROOT %r = f32[1] async-done(%s)
        """,
        wrapped,
    )
    assert lane_of(module.entry.root) == "asynchronous compute"
