"""Memory schedulers: each order, the adjustments, the simulation, the pass."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.base_order import SCHEDULERS, base_order
from hlo_passes.scheduler.memory.buffer_table import ordered_blocks
from hlo_passes.scheduler.memory.buffers import build_buffers
from hlo_passes.scheduler.memory.curve import memory_curve, parameter_bytes
from hlo_passes.scheduler.memory.fragmentation import fragmentation_bytes
from hlo_passes.scheduler.memory.heap_simulation import HeapSimulation
from hlo_passes.scheduler.memory.live_ranges import live_ranges
from hlo_passes.scheduler.memory.memory_limit import (
    entry_bytes,
    scheduler_memory_limit_bytes,
)
from hlo_passes.scheduler.memory.packing import Packing
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from hlo_passes.scheduler.memory.sharing import may_share, sharing_operands
from hlo_passes.scheduler.memory.value_sizes import ValueSizes
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
    """%last is at 0, %b behind %a, and %c behind both: 84 bytes, of which 76 live.

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
        (True, 3, "p q t i b r o out"),
        (False, 1, "p q t i b r o out"),
    ],
)
def test_feeds_with_a_config_keep_their_place(
    config: bool, gibibytes: int, expected: str
) -> None:
    count = gibibytes << 28
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


# -- the simulation ----------------------------------------------------------


def _minimum(module: Module) -> int:
    buffers = build_buffers(module)
    blocks = ordered_blocks(buffers.flow.reached, {})
    return HeapSimulation(
        buffers, blocks, ValueSizes(buffers.flow).bytes_of
    ).minimum_bytes


def test_a_result_takes_over_a_dying_operand() -> None:
    text = """HloModule m

ENTRY %e (p: f32[256]) -> f32[256] {{
  %p = f32[256]{{0}} parameter(0)
  %x = f32[256]{{0}} negate(%p)
  %y = f32[256]{{0}} {opcode}(%x)
  ROOT %z = f32[256]{{0}} negate(%y)
}}
"""
    kib = 1024
    assert _minimum(hlo_passes.parse(text.format(opcode="negate"))) == 2 * kib
    # A copy never does, a cosine may.
    assert _minimum(hlo_passes.parse(text.format(opcode="copy"))) == 3 * kib
    assert _minimum(hlo_passes.parse(text.format(opcode="cosine"))) == 2 * kib


def test_live_ranges_of_a_loop() -> None:
    module = hlo_passes.parse("""HloModule m

%body (b: (s32[], f32[4])) -> (s32[], f32[4]) {
  %b = (s32[], f32[4]) parameter(0)
  %k = s32[] get-tuple-element(%b), index=0
  %m = s32[] negate(%k)
  %v = f32[4] get-tuple-element(%b), index=1
  ROOT %t = (s32[], f32[4]) tuple(%m, %v)
}

%cond (c: (s32[], f32[4])) -> pred[] {
  %c = (s32[], f32[4]) parameter(0)
  ROOT %no = pred[] constant(false)
}

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %n = f32[4] negate(%p)
  %z = s32[] constant(0)
  %i = (s32[], f32[4]) tuple(%z, %n)
  %w = (s32[], f32[4]) while(%i), condition=%cond, body=%body
  ROOT %g = f32[4] get-tuple-element(%w), index=1
}
""")
    last_time, span = _spans(module)
    # p n z i | c no | b k m v t | w g: the condition first, then the body.
    assert last_time == 13
    assert span("p") == (0, 13)  # nothing takes it over
    assert span("n") == (1, 13)  # through the loop to the result
    assert span("no") == (5, 6)
    assert span("m") == (8, 11)  # to the end of the body
    assert span("z") == (2, 4)  # until the condition takes the counter over


def test_values_of_one_buffer_follow_one_another() -> None:
    """Updates in place share a buffer, which ends one where the next begins.

    That holds even where the first is read later, before copies are inserted.
    """
    module = hlo_passes.parse("""HloModule m

ENTRY %e (p: f32[8], u: f32[1], i: s32[]) -> (f32[8], f32[8]) {
  %a = f32[8] iota(), iota_dimension=0
  %p = f32[8] parameter(0)
  %u = f32[1] parameter(1)
  %i = s32[] parameter(2)
  %b = f32[8] dynamic-update-slice(%a, %u, %i)
  %c = f32[8] dynamic-update-slice(%b, %u, %i)
  %x = f32[8] cosine(%a)
  %y = f32[8] negate(%x)
  ROOT %t = (f32[8], f32[8]) tuple(%c, %y)
}
""")
    _, span = _spans(module)
    assert [span(name) for name in "abc"] == [(0, 4), (4, 5), (5, 9)]
    assert [span(name) for name in "xy"] == [(6, 7), (7, 9)]


def test_live_ranges_of_what_runs_asynchronously() -> None:
    """The wrapped computation runs at its start, and its values live up to the done."""
    module = hlo_passes.parse("""HloModule m

%wrapped (q: f32[4]) -> f32[4] {
  %q = f32[4] parameter(0)
  %n = f32[4] negate(%q)
  ROOT %c = f32[4] cosine(%n)
}

ENTRY %e (p: f32[4], o: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %o = f32[4] parameter(1)
  %s = ((f32[4]), f32[4], u32[]) async-start(%p), calls=%wrapped
  %x = f32[4] negate(%o)
  %d = f32[4] async-done(%s)
  ROOT %r = f32[4] add(%d, %x)
}
""")
    last_time, span = _spans(module)
    # p o | q n c | s x d r: the wrapped computation is first called at its start.
    assert last_time == 9
    assert span("n")[0] == 3
    assert span("c")[0] == 4
    assert span("x") == (6, 8)


def test_live_ranges_reach_through_calls_of_calls() -> None:
    """A value lives as long as any computation reads it, however many calls away."""
    module = hlo_passes.parse("""HloModule m

%f (q: f32[4]) -> f32[4] {
  %q = f32[4] parameter(0)
  ROOT %m = f32[4] negate(%q)
}

%g (a: f32[4]) -> f32[4] {
  %a = f32[4] parameter(0)
  %h = f32[4] call(%a), to_apply=%f
  ROOT %i = f32[4] call(%h), to_apply=%f
}

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %x = f32[4] negate(%p)
  %y = f32[4] cosine(%p)
  %c = f32[4] call(%x), to_apply=%g
  %d = f32[4] call(%y), to_apply=%g
  ROOT %r = f32[4] add(%c, %d)
}
""")
    last_time, span = _spans(module)
    # p x y | a | q m | h i | c d r: each computation where it is first called.
    assert last_time == 11
    assert span("x") == (1, 5)
    assert span("y") == (2, 5)
    assert span("m") == (5, 10)


def _spans(module: Module) -> tuple[int, Callable[..., tuple[int, int]]]:
    """(time at the end, first and last time of a value by name and path)."""
    buffers = build_buffers(module)
    flow = buffers.flow
    found = live_ranges(buffers, ordered_blocks(flow.reached, {}))

    def span(name: str, path: tuple[int, ...] = ()) -> tuple[int, int]:
        for computation in module.computations:
            instruction = computation.find(name)
            if instruction is not None:
                v = flow.value[flow.position(instruction, path)]
                return found.start[v], found.end[v]
        raise AssertionError(name)

    return found.last_time, span


FUSED = """HloModule m

%fused (x: f32[64], y: f32[64]) -> f32[64] {{
  %x = f32[64]{{0}} parameter(0)
  %y = f32[64]{{0}} parameter(1)
  {body}
}}

%sum (l: f32[], r: f32[]) -> f32[] {{
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %s = f32[] add(%l, %r)
}}

ENTRY %e (p: f32[64], q: f32[64]) -> f32[64] {{
  %p = f32[64]{{0}} parameter(0)
  %q = f32[64]{{0}} parameter(1)
  %a = f32[64]{{0}} negate(%p)
  ROOT %f = {shape} fusion(%a, %q), kind=kLoop, calls=%fused
}}
"""


@pytest.mark.parametrize(
    ("body", "shape", "expected"),
    [
        ("ROOT %o = f32[64]{0} add(%x, %y)", "f32[64]{0}", True),
        ("ROOT %o = f32[64]{0} reverse(%x), dimensions={0}", "f32[64]{0}", False),
        # Read in another order, though only beside the result.
        (
            """%v = f32[64]{0} reverse(%x), dimensions={0}
  ROOT %o = f32[64]{0} add(%x, %v)""",
            "f32[64]{0}",
            False,
        ),
        # The same room for each element.
        ("ROOT %o = s32[64]{0} convert(%x)", "s32[64]{0}", True),
        ("ROOT %o = f16[64]{0} convert(%x)", "f16[64]{0}", False),
        ("ROOT %o = f32[8,8]{1,0} bitcast(%x)", "f32[8,8]{1,0}", True),
        ("ROOT %o = f32[64]{0} copy(%x)", "f32[64]{0}", False),
        # What an update writes, if the update is the result.
        (
            """%i = s32[] constant(0)
  ROOT %o = f32[64]{0} dynamic-update-slice(%y, %x, %i)""",
            "f32[64]{0}",
            True,
        ),
        (
            """%i = s32[] constant(0)
  %u = f32[64]{0} dynamic-update-slice(%y, %x, %i)
  ROOT %o = f32[64]{0} negate(%u)""",
            "f32[64]{0}",
            False,
        ),
        (
            """%m = f32[64,64]{1,0} broadcast(%y), dimensions={0}
  ROOT %o = f32[64]{0} dot(%m, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}""",
            "f32[64]{0}",
            False,
        ),
    ],
)
def test_fusions_may_take_over_what_they_read_in_order(
    body: str, shape: str, *, expected: bool
) -> None:
    module = hlo_passes.parse(FUSED.format(body=body, shape=shape))
    a = module.entry.find("a")
    assert a is not None
    assert may_share(a, module.entry.root, ()) == expected


_INDEX = "%i = s32[] constant(0)\n  %j = s32[] constant(1)\n  "
_PLACES = "%k = s32[4,1]{1,0} constant({{0},{1},{2},{3}})\n  "
_SCATTER = (
    "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=1, to_apply=%sum"
)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # What is read is written at once, at the same place.
        (
            f"""{_INDEX}%s = f32[8]{{0}} dynamic-slice(%x, %i), dynamic_slice_sizes={{8}}
  %n = f32[8]{{0}} negate(%s)
  ROOT %o = f32[64]{{0}} dynamic-update-slice(%x, %n, %i)""",
            True,
        ),
        (
            f"""{_INDEX}%s = f32[8]{{0}} dynamic-slice(%x, %i), dynamic_slice_sizes={{8}}
  %n = f32[8]{{0}} negate(%s)
  ROOT %o = f32[64]{{0}} dynamic-update-slice(%x, %n, %j)""",
            False,
        ),
        # Only what it scatters into, once, and if the scatter is the result.
        (
            f"""{_PLACES}%u = f32[4]{{0}} slice(%y), slice={{[0:4]}}
  ROOT %o = f32[64]{{0}} scatter(%x, %k, %u), {_SCATTER}""",
            True,
        ),
        (
            f"""{_PLACES}%u = f32[4]{{0}} slice(%y), slice={{[0:4]}}
  %c = f32[64]{{0}} scatter(%x, %k, %u), {_SCATTER}
  ROOT %o = f32[64]{{0}} negate(%c)""",
            False,
        ),
        (
            f"""%k = s32[64,1]{{1,0}} iota(), iota_dimension=0
  ROOT %o = f32[64]{{0}} scatter(%y, %k, %x), {_SCATTER}""",
            False,
        ),
        (
            f"""%k = s32[64,1]{{1,0}} iota(), iota_dimension=0
  ROOT %o = f32[64]{{0}} scatter(%x, %k, %x), {_SCATTER}""",
            False,
        ),
    ],
)
def test_fusions_that_write_a_part(body: str, *, expected: bool) -> None:
    module = hlo_passes.parse(FUSED.format(body=body, shape="f32[64]{0}"))
    a = module.entry.find("a")
    assert a is not None
    assert may_share(a, module.entry.root, ()) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("negate(%y)", True),
        ("exponential(%x)", True),
        ("subtract(%x, %y)", True),
        # The kernel of a transpose goes through its tiles.
        ("add(%x, %v)", False),
        ("negate(%v)", True),  # does not read it
    ],
)
def test_results_beside_it_are_written_in_the_same_order(
    other: str, *, expected: bool
) -> None:
    square = "f32[64,64]{1,0}"
    entry = hlo_passes.parse(f"""HloModule m

%fused {{
  %x = {square} parameter(0)
  %y = {square} parameter(1)
  %v = {square} transpose(%y), dimensions={{1,0}}
  %n = {square} negate(%x)
  %o = {square} {other}
  ROOT %t = ({square}, {square}) tuple(%n, %o)
}}

ENTRY %e {{
  %p = {square} parameter(0)
  %q = {square} parameter(1)
  %a = {square} negate(%p)
  ROOT %f = ({square}, {square}) fusion(%a, %q), kind=kInput, calls=%fused
}}
""").entry
    assert may_share(entry.root.operands[0], entry.root, (0,)) == expected


def test_what_may_take_over_an_operand() -> None:
    module = hlo_passes.parse("""HloModule m

ENTRY %e (p: f32[8,8], k: f32[8]) -> f32[8] {
  %p = f32[8,8]{1,0} parameter(0)
  %k = f32[8]{0} parameter(1)
  %c = f32[8]{0} constant({1,2,3,4,5,6,7,8})
  %n = f32[8]{0} add(%k, %c)
  %t = f32[8,8]{1,0} transpose(%p), dimensions={1,0}
  %g = (f32[8,8]{1,0}, s8[32]{0}) custom-call(%p, %t, %t), \
custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"beta":1}}
  %h = (f32[8,8]{1,0}, s8[32]{0}) custom-call(%p, %p, %t), \
custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"beta":1}}
  ROOT %r = f32[8]{0} negate(%n)
}
""")
    i = {x.name: x for x in module.entry.instructions}
    assert may_share(i["n"], i["r"], ())
    assert not may_share(i["c"], i["n"], ())
    assert not may_share(i["p"], i["t"], ())
    assert may_share(i["t"], i["h"], (0,))
    assert not may_share(i["t"], i["g"], (0,))  # is an operand twice
    assert not may_share(i["t"], i["h"], (1,))  # the workspace


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("while(%t), condition=%go, body=%same", True),
        ("conditional(%c, %t, %t), branch_computations={%same, %same}", True),
        ("call(%t), to_apply=%same", False),
    ],
)
def test_what_calls_may_take_over_its_operand(user: str, *, expected: bool) -> None:
    entry = hlo_passes.parse(f"""HloModule m

%same {{ ROOT %s = (f32[8]) parameter(0) }}
%go {{
  %g = (f32[8]) parameter(0)
  ROOT %no = pred[] constant(false)
}}

ENTRY %e {{
  %a = f32[8] parameter(0)
  %c = s32[] parameter(1)
  %t = (f32[8]) tuple(%a)
  ROOT %u = (f32[8]) {user}
}}
""").entry
    (t,) = (i for i in entry.instructions if i.name == "t")
    assert may_share(t, entry.root, ()) == expected


def test_what_may_take_over_its_only_place() -> None:
    module = hlo_passes.parse("""HloModule m

%less (x: f32[], y: f32[]) -> pred[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %z = pred[] compare(%x, %y), direction=LT
}

%sum (v: f32[], w: f32[]) -> f32[] {
  %v = f32[] parameter(0)
  %w = f32[] parameter(1)
  ROOT %s = f32[] add(%v, %w)
}

ENTRY %e {
  %a = f32[8]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %k = s32[] parameter(2)
  %m = f32[8,8]{1,0} parameter(3)
  %r = f32[8,8]{1,0} parameter(4)
  %alone = f32[8]{0} parameter(5)
  %c = f32[8]{0} negate(%a)
  %d = f32[8]{0} negate(%b)
  %update = f32[8]{0} dynamic-update-slice(%a, %b, %k)
  %itself = f32[8]{0} dynamic-update-slice(%a, %a, %k)
  %solve = f32[8,8]{1,0} triangular-solve(%m, %r), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
  %sorted = f32[8]{0} sort(%alone), dimensions={0}, to_apply=%less
  %again = f32[8]{0} sort(%d), dimensions={0}, to_apply=%less
  %reduced = f32[8]{0} all-reduce(%c), replica_groups={{0}}, to_apply=%sum
  %both = (f32[8]{0}, f32[8]{0}) all-reduce(%c, %d), replica_groups={{0}}, to_apply=%sum
  %joined = f32[8]{0} custom-call(%c, %d, %a, %b), custom_call_target="joined"
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%reduced, %sorted)
}
""")
    i = {x.name: x for x in module.entry.instructions}

    def sharing(name: str, path: tuple[int, ...] = ()) -> list[str]:
        """Operands that share, each of which the shorter list must have."""
        user = i[name]
        found = [o for o in dict.fromkeys(user.operands) if may_share(o, user, path)]
        assert {*found} <= {*sharing_operands(user, path)}
        return [operand.name for operand in found]

    assert sharing("joined") == []
    assert sharing_operands(i["joined"], ()) == (i["a"],)  # a GEMM adds its third
    assert sharing("update") == ["a"]
    assert sharing("itself") == []
    assert sharing("solve") == ["r"]
    assert sharing("sorted") == ["alone"]
    assert sharing("again") == []  # something else reads what it sorts
    assert sharing("reduced") == ["c"]
    assert [sharing("both", (k,)) for k in range(2)] == [["c"], ["d"]]


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
