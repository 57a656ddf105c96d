"""What lives when, and which values share a place in memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.buffer_table import ordered_blocks
from hlo_passes.scheduler.memory.buffers import build_buffers
from hlo_passes.scheduler.memory.heap_simulation import HeapSimulation
from hlo_passes.scheduler.memory.live_ranges import live_ranges
from hlo_passes.scheduler.memory.sharing import may_share, sharing_operands
from hlo_passes.scheduler.memory.value_sizes import ValueSizes


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
        ("ROOT %o = f32[64]{0} negate(%y)", "f32[64]{0}", False),  # does not read it
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
            f"""%k = s32[64]{{0}} bitcast-convert(%x)
  ROOT %o = f32[64]{{0}} scatter(%y, %k, %y), {_SCATTER}""",
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
