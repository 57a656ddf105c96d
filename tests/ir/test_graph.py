"""The graph's own methods: use lists, order, control edges, printing of changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.computation import Computation

TEXT = """HloModule m

// what f does
%f (p: f32[4], q: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %q = f32[4]{0} parameter(1)   // kept
  %s = f32[4]{0} add(%p, %q), metadata={op_name="s"}
  %d = f32[4]{0} multiply(%s, %s)
  ROOT %r = f32[4]{0} subtract(%d, %p)
}

ENTRY %e (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %c = f32[4]{0} call(%x, %x), to_apply=%f
}
"""


@pytest.fixture
def computation() -> Computation:
    module = hlo_passes.parse(TEXT)
    found = module.computation("f")
    assert found is not None
    return found


def test_users_are_listed_once(computation: Computation) -> None:
    p, q, s, d, r = computation.instructions
    assert s.users == (d,)
    assert p.users == (s, r)
    assert q.users == (s,)
    assert r.is_root


def test_names_are_found_after_every_change(computation: Computation) -> None:
    """Names are in a table once one is asked for again."""
    last = computation.instructions[-1]
    name = last.name
    for _ in range(3):
        assert computation.find(name) is computation.find(f"%{name}") is last
        assert computation.find("no-such-name") is None
    computation.rename(last, "renamed")
    for _ in range(3):
        assert computation.find(name) is None
        assert computation.find("renamed") is last
    new = computation.new("negate", last.shape, [last], name="another")
    for _ in range(3):
        assert computation.find("another") is new
    computation.remove(new)
    for _ in range(3):
        assert computation.find("another") is None


def test_only_touched_lines_are_printed_anew(computation: Computation) -> None:
    p, q, s, d, _ = computation.instructions
    computation.replace_operand(d, s, q)
    text = computation.module.to_text()
    assert text == TEXT.replace("multiply(%s, %s)", "multiply(%q, %q)")
    assert s.users == ()
    assert q.users == (s, d)
    assert p.users[0] is s


def test_new_instructions_stand_where_asked(computation: Computation) -> None:
    p, _q, s, d, _ = computation.instructions
    n = computation.new("negate", s.shape, [s], after=s)
    m = computation.new("negate", s.shape, [n], after=n)
    b = computation.new("abs", p.shape, [p], before=s)
    assert [i.name for i in computation.instructions] == [
        "p", "q", "abs", "s", "negate", "negate.1", "d", "r",
    ]  # fmt: skip
    computation.replace_uses(s, m)
    assert n.operands == (s,) or n.operands == (m,)
    assert d.operands == (m, m)
    assert b.users == ()


def test_remove_refuses_what_is_used(computation: Computation) -> None:
    s = computation.instructions[2]
    with pytest.raises(ValueError, match="in use"):
        computation.remove(s)
    with pytest.raises(ValueError, match="in use"):
        computation.remove(computation.root)


def test_replace_hands_on_metadata_and_removes_the_dead(
    computation: Computation,
) -> None:
    p, q, s, d, _ = computation.instructions
    new = computation.new("maximum", s.shape, [p, q], after=s)
    assert computation.replace(s, new)
    assert new.metadata.op_name == "s"
    assert d.operands == (new, new)
    assert s.removed
    assert "%s =" not in computation.module.to_text()


def test_replace_leaves_control_edges_alone(computation: Computation) -> None:
    p, q, s, d, _ = computation.instructions
    computation.add_control_edge(q, s)
    assert not computation.replace(s, p)
    assert d.operands == (s, s)


def test_same_opcode_takes_over_the_name(computation: Computation) -> None:
    p, q, s, _, _ = computation.instructions
    new = computation.new("add", s.shape, [q, p], after=s)
    computation.replace(s, new)
    assert new.name == "s"
    assert "%d = f32[4]{0} multiply(%s, %s)" in computation.module.to_text()


def test_set_order(computation: Computation) -> None:
    p, q, s, d, r = computation.instructions
    computation.set_order([q, p, s, d, r])
    lines = computation.module.to_text().splitlines()
    assert lines[4].startswith("  %q")
    assert lines[5].startswith("  %p")
    with pytest.raises(ValueError, match="permutation"):
        computation.set_order([p, q, s, d, d])


def test_a_changed_result_changes_the_signature(computation: Computation) -> None:
    r = computation.root
    t = computation.new(
        "tuple", hlo_passes.tuple_shape([r.shape, r.shape]), [r, r], after=r
    )
    computation.set_root(t)
    text = computation.module.to_text()
    assert "%f (p: f32[4], q: f32[4]) -> (f32[4], f32[4]) {" in text
    assert "  %r = " in text
    assert "  ROOT %tuple = (f32[4]{0}, f32[4]{0}) tuple(%r, %r)" in text


def test_fresh_names(computation: Computation) -> None:
    module = computation.module
    assert module.fresh_name("s") == "s.1"
    assert module.fresh_name("s") == "s.2"
    assert module.fresh_name("s.2") == "s.3"
    assert module.fresh_name("unheard") == "unheard"


def test_attributes_are_written_in_print_order(computation: Computation) -> None:
    s = computation.instructions[2]
    s.set_attribute("frontend_attributes", '{a="b"}')
    assert s.name + " = f32[4]{0} add(%p, %q), frontend_attributes" in (
        computation.module.to_text()
    )
    s.set_attribute("frontend_attributes", None)
    assert computation.module.to_text() == TEXT


def test_header_attributes_are_written_in_print_order() -> None:
    text = "HloModule m, num_partitions=2\n\nENTRY %e {\n  ROOT %p = s32[] parameter(0)\n}\n"
    module = hlo_passes.parse(text)
    module.set_attribute("is_scheduled", "true")
    assert module.to_text() == text.replace("m, num", "m, is_scheduled=true, num")
    module.set_attribute("is_scheduled", None)
    assert module.to_text() == text


def test_many_insertions_are_linear() -> None:
    lines = [f"  %n{k} = f32[4]{{0}} negate(%p)" for k in range(20_000)]
    text = (
        "ENTRY %e {\n  %p = f32[4]{0} parameter(0)\n"
        + "\n".join(lines)
        + "\n  ROOT %r = f32[4]{0} negate(%n0)\n}\n"
    )
    computation = hlo_passes.parse(text).entry
    for k, instruction in enumerate(computation.instructions[1:-1]):
        computation.new("abs", instruction.shape, [instruction], after=instruction)
        if k:
            computation.replace_uses(instruction, computation.root)
    assert len(computation.instructions) == 40_002


def _wide(operands: int) -> Computation:
    """A tuple of many negates of one parameter."""
    names = [f"n{k}" for k in range(operands)]
    lines = [f"  %{name} = f32[4]{{0}} negate(%p)" for name in names]
    shapes = ", ".join(["f32[4]{0}"] * operands)
    read = ", ".join(f"%{name}" for name in names)
    body = "\n".join(lines)
    return hlo_passes.parse(
        f"ENTRY %e {{\n  %p = f32[4]{{0}} parameter(0)\n{body}\n"
        f"  ROOT %t = ({shapes}) tuple({read})\n}}\n"
    ).entry


@given(
    st.sampled_from((3, 100)),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.booleans())),
)
def test_operands_are_replaced_one_by_one(
    operands: int, replaced: list[tuple[int, int, bool]]
) -> None:
    computation = _wide(operands)
    values, wide = computation.instructions[1:-1], computation.root
    expected = list(wide.operands)
    for one, other, reads in replaced:
        old, new = values[one % operands], values[other % operands]
        computation.replace_operand(wide, old, new)
        expected = [new if operand is old else operand for operand in expected]
        for value in {old, new}:
            assert (wide in value.users) == (value in expected)
        if reads:
            assert wide.operands == tuple(expected)
    assert computation.root.operands == tuple(expected)
    assert type(wide) is type(values[0])


def test_replacing_one_operand_leaves_the_users_of_others() -> None:
    for count in (2, 100):
        computation = _wide(count)
        one, other, *_ = computation.instructions[1:]
        reader = computation.new("abs", other.shape, [other])
        computation.replace_operand(computation.root, one, computation.instructions[0])
        assert other.users == (computation.root, reader)


def test_rewired_instructions_print_and_are_removed() -> None:
    computation = _wide(40)
    p, one, *_ = computation.instructions
    computation.replace_uses(one, p)
    assert "tuple(%p, %n1, " in computation.module.to_text()
    computation.replace_uses(p, one)
    root = computation.root
    computation.set_root(one)
    assert computation.remove_with_dead_operands(root) == 40
    assert p.users == (one,)


def test_computations_stand_where_asked(computation: Computation) -> None:
    module = computation.module
    entry = module.entry
    for name, before in (("a", entry), ("b", entry), ("c", computation), ("d", None)):
        module.add_computation(Computation(name), before=before)
    first = module.computation("a")
    module.add_computation(Computation("before_a"), before=first)
    names = [each.name for each in module.computations]
    assert names == ["c", "f", "before_a", "a", "b", "e", "d"]
    module.add_computation(Computation("late"), before=first)
    assert first is not None
    module.remove_computation(first)
    assert [each.name for each in module.computations] == [
        *["c", "f", "before_a", "late"],
        *["b", "e", "d"],
    ]


def test_numbers_of_removed_computations_are_free_again() -> None:
    module = hlo_passes.parse(TEXT)
    for name in ("g", "g.1", "g.2", "g.3"):
        assert module.fresh_computation_name("g") == name
        module.add_computation(Computation(name))
    for name in ("g.3", "g.1"):
        gone = module.computation(name)
        assert gone is not None
        module.remove_computation(gone)
    assert module.fresh_computation_name("g") == "g.1"
    module.add_computation(Computation("g.1"))
    assert module.fresh_computation_name("g") == "g.3"


def test_an_operand_spelled_inside_of_its_reader_gets_a_line_when_others_read_it() -> (
    None
):
    module = hlo_passes.parse("""HloModule m

ENTRY %e {
  %s = f32[] sine(f32[] parameter(0))
  ROOT %c = f32[] cosine(%s)
}
""")
    entry = module.entry
    sine, cosine = entry.root.operands[0], entry.root
    negated = entry.new("negate", sine.shape, [sine.operands[0]], before=cosine)
    entry.set_operands(cosine, [negated])
    again = hlo_passes.parse(module.to_text())
    assert again.entry.root.operands[0].operands[0].opcode == "parameter"
    # So does one that an instruction comes to read.
    module = hlo_passes.parse("""HloModule m

ENTRY %e {
  %s = f32[] sine(f32[] parameter(0))
  %t = f32[] tan(f32[] parameter(1))
  ROOT %c = f32[] add(%s, %t)
}
""")
    sine, tan = module.entry.root.operands
    module.entry.replace_operand(tan, tan.operands[0], sine.operands[0])
    (parameter,) = hlo_passes.parse(module.to_text()).entry.root.operands[1].operands
    assert parameter.literal == "0"
