"""Which buffers hold values and what must share memory, opcode by opcode."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.module import Module
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.shapes import array_shape, intern, tuple_shape
from hlo_passes.scheduler.memory.buffer_sizes import part_size_bytes, parts_of
from hlo_passes.scheduler.memory.buffers import Buffers, build_buffers
from hlo_passes.scheduler.memory.dataflow import ValueRanks, build_points_to
from hlo_passes.scheduler.memory.in_place import in_place_pairs


def _module(body: str, *, before: str = "", header: str = "") -> Module:
    return hlo_passes.parse(
        f"HloModule m{header}\n\n{before}\n\nENTRY %e {{\n{body}\n}}"
    )


def _sharing(module: Module) -> list[set[str]]:
    """Names with paths ('x', 't{0}') by buffer, only where several share one."""
    buffers = build_buffers(module)
    flow = buffers.flow
    found: dict[int, set[str]] = {}
    for n, instruction in enumerate(flow.reached.instructions):
        for k, path in enumerate(flow.parts(n).paths):
            label = instruction.name
            if path:
                label += f"{{{','.join(map(str, path))}}}"
            for b in buffers.at(flow.start[n] + k):
                found.setdefault(b, set()).add(label)
    return [names for names in found.values() if len(names) > 1]


def test_parts_and_their_sizes() -> None:
    parts = parts_of(parse_shape("(f32[4], (s32[], pred[3]), token[])"))
    assert parts.paths == ((), (0,), (1,), (1, 0), (1, 1), (2,))
    assert parts.sizes_bytes == (24, 16, 16, 4, 3, 0)
    assert parts.span((1,)) == (2, 5)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("s4[8]{0}", 8),
        ("s4[8]{0:E(4)}", 4),
        ("f32[<=8,2]{1,0}", 8 * 2 * 4 + 2 * 4),
        ("opaque[]", 8),
        ("()", 0),
    ],
)
def test_odd_sizes(shape: str, size: int) -> None:
    assert part_size_bytes(parse_shape(shape)) == size


def test_forwarding_and_tuples() -> None:
    module = _module("""
  %p = f32[4] parameter(0)
  %b = f32[2,2] bitcast(%p)
  %t = (f32[2,2], f32[4]) tuple(%b, %p)
  %o = (f32[2,2], f32[4]) opt-barrier(%t)
  %c = (f32[2,2], f32[4]) copy(%o)
  ROOT %g = f32[4] get-tuple-element(%c), index=1""")
    shared = _sharing(module)
    assert {"p", "b", "t{0}", "t{1}", "o{0}", "o{1}", "c{0}", "c{1}", "g"} in shared
    assert {"t", "o"} in shared


PAIRS = {
    "all-gather": (
        """
  %p = f32[4] parameter(0)
  %s = (f32[4], f32[8]) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}
  ROOT %d = f32[8] all-gather-done(%s)""",
        [{"p", "s{0}"}, {"s{1}", "d"}],
    ),
    "all-gather of two": (
        """
  %p = f32[4] parameter(0)
  %q = f32[4] parameter(1)
  %s = ((f32[4], f32[4]), (f32[8], f32[8])) all-gather-start(%p, %q), \
replica_groups={{0,1}}, dimensions={0}
  ROOT %d = (f32[8], f32[8]) all-gather-done(%s)""",
        [{"p", "s{0,0}"}, {"q", "s{0,1}"}, {"s{1,0}", "d{0}"}, {"s{1,1}", "d{1}"}],
    ),
    "all-reduce": (
        """
  %p = f32[4] parameter(0)
  %n = f32[4] negate(%p)
  %s = f32[4] all-reduce-start(%n), replica_groups={{0,1}}, to_apply=%add
  ROOT %d = f32[4] all-reduce-done(%s)""",
        [{"n", "s", "d"}],
    ),
    "collective-permute": (
        """
  %p = f32[4] parameter(0)
  %s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(%p), \
source_target_pairs={{0,1}}
  ROOT %d = f32[4] collective-permute-done(%s)""",
        [{"p", "s{0}"}, {"s{1}", "d"}],
    ),
    "copy": (
        """
  %p = f32[4] parameter(0)
  %s = (f32[4], f32[4], u32[]) copy-start(%p)
  ROOT %d = f32[4] copy-done(%s)""",
        [{"p", "s{1}"}, {"s{0}", "d"}],
    ),
    "send and recv": (
        """
  %p = f32[4] parameter(0)
  %t = token[] after-all()
  %s = (f32[4], u32[], token[]) send(%p, %t), channel_id=1
  %u = token[] send-done(%s), channel_id=1
  %r = (f32[4], u32[], token[]) recv(%u), channel_id=2
  ROOT %d = (f32[4], token[]) recv-done(%r), channel_id=2""",
        [{"p", "s{0}"}, {"r{0}", "d{0}"}],
    ),
    "wrapped": (
        """
  %p = f32[4] parameter(0)
  %s = ((f32[4]), f32[8]) async-start(%p), calls=%wrapped
  ROOT %d = f32[8] async-done(%s)""",
        [{"p", "s{0,0}", "w"}, {"s{1}", "d", "x"}],
    ),
    "sugar": (
        """
  %p = f32[8] parameter(0)
  %s = ((f32[8]), f32[4]) reduce-scatter-start(%p), replica_groups={{0,1}}, \
dimensions={0}, to_apply=%add
  ROOT %d = f32[4] reduce-scatter-done(%s)""",
        [{"p", "s{0,0}"}, {"s{1}", "d"}],
    ),
    "wrapped update": (
        """
  %p = f32[8] parameter(0)
  %u = f32[4] parameter(1)
  %i = s32[] parameter(2)
  %s = ((f32[8], f32[4], s32[]), f32[8], u32[]) async-start(%p, %u, %i), calls=%upd
  ROOT %d = f32[8] async-done(%s)""",
        [
            {"p", "s{0,0}", "s{1}", "d", "a", "y"},
            {"u", "s{0,1}", "b"},
            {"i", "s{0,2}", "j"},
        ],
    ),
}
_CALLED = """%add (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r.1 = f32[] parameter(1)
  ROOT %sum = f32[] add(%l, %r.1)
}

%wrapped (w: f32[4]) -> f32[8] {
  %w = f32[4] parameter(0)
  ROOT %x = f32[8] all-gather(%w), replica_groups={{0,1}}, dimensions={0}
}

%upd (a: f32[8], b: f32[4], j: s32[]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[4] parameter(1)
  %j = s32[] parameter(2)
  ROOT %y = f32[8] dynamic-update-slice(%a, %b, %j)
}"""


@pytest.mark.parametrize("name", PAIRS)
def test_asynchronous_pairs(name: str) -> None:
    body, expected = PAIRS[name]
    shared = _sharing(_module(body, before=_CALLED))
    assert sorted(map(sorted, shared)) == sorted(map(sorted, expected))


def test_a_permute_of_several_operands_has_no_operand_table() -> None:
    module = _module("""
  %p = f32[4] parameter(0)
  %q = f32[8] parameter(1)
  %s = ((f32[4], f32[8]), (f32[4], f32[8])) collective-permute-start(%p, %q), \
source_target_pairs={{0,1}}
  ROOT %d = (f32[4], f32[8]) collective-permute-done(%s)""")
    buffers: Buffers = build_buffers(module)
    start = module.entry.find("s")
    assert start is not None
    assert buffers.at(buffers.flow.position(start, (0,))) == ()
    assert {"p", "s{0,0}"} in _sharing(module)
    assert {"s{1,1}", "d{1}"} in _sharing(module)


def test_donation_and_annotated_calls() -> None:
    module = _module(
        """
  %p = f32[4] parameter(0)
  %q = f32[8] parameter(1)
  %c = (f32[8], u8[16]) custom-call(%q), custom_call_target="f", \
output_to_operand_aliasing={{0}: (0, {})}
  %g = f32[8] get-tuple-element(%c), index=0
  %n = f32[4] negate(%p)
  ROOT %t = (f32[4], f32[8]) tuple(%n, %g)""",
        header=", input_output_alias={ {0}: (0, {}, may-alias) }",
    )
    assert _sharing(module) == [{"p", "n", "t{0}"}, {"q", "c{0}", "g", "t{1}"}]


FUSIONS = {
    "update of the root": ("ROOT %r = f32[8] dynamic-update-slice(%x, %y, %i)", True),
    "after a bitcast and a reshape": (
        """%v = f32[2,4] reshape(%x)
  %w = f32[8] bitcast(%v)
  %u = f32[8] dynamic-update-slice(%w, %y, %i)
  ROOT %r = f32[8] bitcast(%u)""",
        True,
    ),
    "of something computed": (
        """%n = f32[8] negate(%x)
  ROOT %r = f32[8] dynamic-update-slice(%n, %y, %i)""",
        False,
    ),
    "an update that is not a result": (
        """%u = f32[8] dynamic-update-slice(%x, %y, %i)
  ROOT %r = f32[8] negate(%u)""",
        False,
    ),
    "a part of a tuple": (
        """%u = f32[8] dynamic-update-slice(%x, %y, %i)
  %n = f32[8] negate(%u)
  ROOT %r = (f32[8], f32[8]) tuple(%n, %u)""",
        True,
    ),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_in_place_fusions(name: str) -> None:
    body, shares = FUSIONS[name]
    is_tuple = "ROOT %r = (" in body
    shape = "(f32[8], f32[8])" if is_tuple else "f32[8]"
    module = _module(
        f"""
  %p = f32[8] parameter(0)
  %q = f32[4] parameter(1)
  %k = s32[] parameter(2)
  ROOT %f = {shape} fusion(%p, %q, %k), kind=kLoop, calls=%fused""",
        before=f"""%fused (x: f32[8], y: f32[4], i: s32[]) -> {shape} {{
  %x = f32[8] parameter(0)
  %y = f32[4] parameter(1)
  %i = s32[] parameter(2)
  {body}
}}""",
    )
    pairs = in_place_pairs(module.entry.root)
    result = (1,) if is_tuple else ()
    assert pairs == ([(0, (), result)] if shares else [])
    assert bool(_sharing(module)) == shares


def test_a_fusion_works_in_place_where_one_inside_it_does() -> None:
    module = _module(
        """
  %p = f32[8] parameter(0)
  %q = f32[4] parameter(1)
  %k = s32[] parameter(2)
  ROOT %f = f32[8] fusion(%p, %q, %k), kind=kLoop, calls=%outer""",
        before="""%inner (x: f32[8], y: f32[4], i: s32[]) -> f32[8] {
  %x = f32[8] parameter(0)
  %y = f32[4] parameter(1)
  %i = s32[] parameter(2)
  ROOT %u = f32[8] dynamic-update-slice(%x, %y, %i)
}

%outer (v: f32[8], w: f32[4], j: s32[]) -> f32[8] {
  %v = f32[8] parameter(0)
  %w = f32[4] parameter(1)
  %j = s32[] parameter(2)
  %f1 = f32[8] fusion(%v, %w, %j), kind=kLoop, calls=%inner
  ROOT %z = f32[8] dynamic-update-slice(%f1, %w, %j)
}""",
    )
    assert in_place_pairs(module.entry.root) == [(0, (), ())]


def test_an_update_shares_the_operands_that_it_binds() -> None:
    """The alias counts operands over the whole chain, each step those of its own."""
    module = _module(
        """
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %r = f32[8] parameter(2)
  %s = ((f32[8]), f32[8], u32[]) async-start(%p), calls=%three, \
output_to_operand_aliasing={{1}: (2, {})}
  %u = ((f32[8], f32[8]), f32[8], u32[]) async-update(%s, %q)
  %v = ((f32[8], f32[8], f32[8]), f32[8], u32[]) async-update(%u, %r)
  ROOT %d = f32[8] async-done(%v)""",
        before="""%three (a: f32[8], b: f32[8], c: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %c = f32[8] parameter(2)
  %n = f32[8] add(%a, %b)
  ROOT %m = f32[8] add(%n, %c)
}""",
    )
    found = {name: module.entry.find(name) for name in "suvd"}
    own = {
        name: [pair for pair in in_place_pairs(i) if pair.output_path == (1,)]
        for name, i in found.items()
        if i is not None
    }
    assert own["s"] == []
    assert (1, (), (1,)) not in own["u"]
    assert (1, (), (1,)) in own["v"]
    # The result of the done is that of the chain, in which the operand is at {0,2}.
    assert found["d"] is not None
    assert in_place_pairs(found["d"]) == [(0, (0, 2), ())]


def test_scatter_counts_its_inputs() -> None:
    module = _module(
        """
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  %i = s32[2,1] parameter(2)
  %u = f32[2] parameter(3)
  ROOT %s = (f32[8], f32[8]) scatter(%a, %b, %i, %u, %u), \
update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, \
index_vector_dim=1, to_apply=%both""",
        before="""%both (c: f32[], d: f32[], g: f32[], h: f32[]) -> (f32[], f32[]) {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  %g = f32[] parameter(2)
  %h = f32[] parameter(3)
  ROOT %t = (f32[], f32[]) tuple(%g, %h)
}""",
    )
    assert in_place_pairs(module.entry.root) == [(0, (), (0,)), (1, (), (1,))]


def test_a_loop_shares_what_it_changes_and_hands_on_the_rest() -> None:
    module = _module(
        """
  %p = f32[4] parameter(0)
  %z = s32[] constant(0)
  %i = (s32[], f32[4]) tuple(%z, %p)
  ROOT %w = (s32[], f32[4]) while(%i), condition=%cond, body=%body""",
        before="""%body (b: (s32[], f32[4])) -> (s32[], f32[4]) {
  %b = (s32[], f32[4]) parameter(0)
  %k = s32[] get-tuple-element(%b), index=0
  %m = s32[] negate(%k)
  %v = f32[4] get-tuple-element(%b), index=1
  ROOT %t = (s32[], f32[4]) tuple(%m, %v)
}

%cond (c: (s32[], f32[4])) -> pred[] {
  %c = (s32[], f32[4]) parameter(0)
  ROOT %no = pred[] constant(false)
}""",
    )
    shared = _sharing(module)
    assert {"p", "i{1}", "w{1}", "b{1}", "v", "t{1}", "c{1}"} in shared
    assert {"z", "i{0}", "w{0}", "b{0}", "k", "m", "t{0}", "c{0}"} in shared
    flow = build_buffers(module).flow
    p, w, b = (
        flow.value[flow.position(i, path)]
        for i, path in (
            (module.entry.parameters[0], ()),
            (module.entry.root, (1,)),
            (module.entry.root.called_computations[0].parameters[0], (1,)),
        )
    )
    assert p == w == b  # unchanged: one value; the counter has one at each place
    counter = flow.value[flow.position(module.entry.root, (0,))]
    assert counter in flow.phis


def test_loops_with_one_condition_hand_nothing_on() -> None:
    """What several call is not known call by call, so the loop makes a value."""
    body = """%body.K (b: (f32[4])) -> (f32[4]) {
  %b.K = (f32[4]) parameter(0)
  %v.K = f32[4] get-tuple-element(%b.K), index=0
  ROOT %t.K = (f32[4]) tuple(%v.K)
}
"""
    condition = """%cond.K (c: (f32[4])) -> pred[] {
  %c.K = (f32[4]) parameter(0)
  ROOT %no.K = pred[] constant(false)
}
"""
    for other, passes_on in (("2", True), ("1", False)):
        module = _module(
            f"""
  %p = f32[4] parameter(0)
  %i = (f32[4]) tuple(%p)
  %w = (f32[4]) while(%i), condition=%cond.1, body=%body.1
  ROOT %x = (f32[4]) while(%w), condition=%cond.{other}, body=%body.2""",
            before="".join((body + condition).replace("K", k) for k in "12"),
        )
        flow = build_buffers(module).flow
        values = {
            flow.value[flow.position(loop, (0,))]
            for loop in module.entry.instructions
            if loop.opcode == "while"
        }
        given = flow.value[flow.position(module.entry.parameters[0], ())]
        assert (values == {given}) == passes_on
        assert (values <= flow.phis) == (not passes_on)


@pytest.mark.parametrize(
    ("result", "is_passed_on"), [("f32[8]", True), ("(f32[8], f32[8])", False)]
)
def test_the_older_analysis_finds_the_results_of_a_done_in_its_start(
    result: str, is_passed_on: bool
) -> None:
    """Where the shapes agree; else the done makes values of its own."""
    given = "f32[8]"
    module = _module(
        f"""
  %p = {given} parameter(0)
  %s = (({given}), f32[8]) async-start(%p), calls=%inside
  ROOT %d = {result} async-done(%s)""",
        before=f"""%inside (a: {given}) -> f32[8] {{
  %a = {given} parameter(0)
  ROOT %n = f32[8] negate(%a)
}}""",
    )
    flow = build_points_to(build_buffers(module).flow.reached)
    start, done = module.entry.instructions[1:]
    own = flow.position(done, ())
    inside = flow.position(start, (1,)) if is_passed_on else own
    assert flow.value[own] == inside


def test_a_buffer_has_the_size_of_its_first_value() -> None:
    """First in post order, which is XLA's numbering, and not in the schedule."""
    module = _module(
        """
  %r = f32[<=8] custom-call(), custom_call_target="fill"
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  ROOT %t = (f32[8], f32[<=8]) tuple(%n, %r)""",
        header=", input_output_alias={ {1}: (0, {}, may-alias) }",
    )
    buffers = build_buffers(module)
    flow = buffers.flow
    r, p = (flow.position(module.entry.instructions[k], ()) for k in (0, 1))
    assert buffers.at(r) == buffers.at(p)
    assert buffers.sizes_bytes[buffers.at(r)[0]] == 8 * 4


def test_values_of_one_instruction_rank_part_by_part() -> None:
    module = _module("""
  %p = f32[4] parameter(0)
  ROOT %c = (f32[4], f32[4], f32[4]) custom-call(%p), custom_call_target="three"
""")
    flow = build_buffers(module).flow
    first = flow.position(module.entry.root, ())
    ranks = [ValueRanks(flow)(value) for value in range(first, first + 4)]
    assert [part for _, part in ranks] == [0, 1, 2, 3]
    assert len({place for place, _ in ranks}) == 1


def test_a_shape_that_does_not_fit_is_refused() -> None:
    module = _module("""
  %p = (f32[4], f32[4]) parameter(0)
  ROOT %g = f32[4] get-tuple-element(%p), index=0""")
    module.entry.root.shape = intern(tuple_shape([array_shape("f32", (4,))] * 2))
    with pytest.raises(UnsupportedHloError) as refused:
        build_buffers(module)
    assert refused.value.code == "S301"
    assert "%g" in str(refused.value)
