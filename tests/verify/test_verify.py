"""`verify` and `findings`: order, rendering, unknown names, runs after a change."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import VerificationError
from hlo_passes.verify import findings, verify
from tests.modules import CORPUS, SHARED, module_files, read_text
from tests.verify.rule_cases import PROGRAM

TWO_FAULTS = """\
HloModule m

ENTRY %main {
  %p = f32[8] parameter(0)
  %big = f32[9] add(%p, %p)
  ROOT %r = f32[8] negate(%p), dimensions={0}, frobnicate=7
}
"""

#: Modules larger than this are left to the long run.
MAXIMUM_BYTES = 1_500_000


def codes(text: str) -> list[str]:
    return [f.code for f in findings(hlo_passes.parse(text))]


def test_rendering() -> None:
    module = hlo_passes.parse(TWO_FAULTS, filename="m.hlo")
    with pytest.raises(VerificationError) as caught:
        hlo_passes.verify(module)
    assert (
        str(caught.value)
        == """\
m.hlo:5:4: error[V402]: add makes f32[8], not f32[9]
  %big = f32[9] add(%p, %p)
   ^
m.hlo:6:9: error[V101]: XLA does not know an attribute dimensions of negate
  ROOT %r = f32[8] negate(%p), dimensions={0}, frobnicate=7
        ^
m.hlo:6:9: error[V101]: XLA does not know an attribute frobnicate of negate
  ROOT %r = f32[8] negate(%p), dimensions={0}, frobnicate=7
        ^"""
    )


def test_an_order_that_a_pass_made_is_checked() -> None:
    module = hlo_passes.parse("""HloModule m

ENTRY %main {
  %p = f32[8] parameter(0)
  %a = f32[8] negate(%p)
  %b = f32[8] cosine(%a)
  ROOT %c = f32[8] sine(%p), control-predecessors={%b}
}
""")
    p, a, b, c = module.entry.instructions
    assert not findings(module)
    module.entry.set_order([p, b, a, c])
    (found,) = findings(module)
    assert (found.code, found.message) == ("V005", "operand %a is not before %b")
    module.entry.set_order([p, a, c, b])
    assert [f.code for f in findings(module)] == ["V013"]


def test_an_operand_that_went_to_another_computation() -> None:
    module = hlo_passes.parse("""HloModule m

%other (q: f32[4]) -> f32[4] {
  %q = f32[4] parameter(0)
  ROOT %a = f32[4] negate(%q)
}

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  ROOT %b = f32[4] sine(%p)
}
""")
    (other,) = (c for c in module.computations if c is not module.entry)
    module.entry.set_operands(module.entry.root, (other.root,))
    (found,) = findings(module)
    assert (found.code, found.message) == (
        "V004",
        "operand %a of %b is in another computation",
    )


def test_error_pickles_with_its_findings() -> None:
    with pytest.raises(VerificationError) as caught:
        hlo_passes.verify(hlo_passes.parse(TWO_FAULTS))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert copy.findings == caught.value.findings


def test_unknown_names_may_be_let_through() -> None:
    text = (
        "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  ROOT %r = f32[8] frobnicate(%p), level=3\n}\n"
    )
    module = hlo_passes.parse(text)
    (finding,) = findings(module)
    assert (finding.code, finding.severity) == ("V201", "unknown")
    assert (finding.instruction, finding.computation) == ("r", "e")
    verify(module, allow_unknown=True)
    with pytest.raises(VerificationError):
        verify(module)


def test_findings_of_all_computations_in_text_order() -> None:
    text = PROGRAM.replace("multiply(%a, %spread)", "multiply(%a, %b)")
    text = text.replace("calls=%fused", "calls=%nobody")
    text = text.replace("%one = s32[] constant(1)", "%one = s32[] constant(1.5)")
    lines = [f.location.line for f in findings(hlo_passes.parse(text)) if f.location]
    assert len(lines) > 2
    assert lines == sorted(lines)


def test_what_an_operand_decides_is_said_as_it_is() -> None:
    text = """HloModule m

ENTRY %e {
  %p = f32[8] parameter(0)
  ROOT %b = f32[8,2] broadcast(%p)
}
"""
    told = [f.message for f in findings(hlo_passes.parse(text))]
    assert "broadcast needs dimensions= here" in told


def test_the_first_operand_is_named_first() -> None:
    text = """HloModule m

ENTRY %e {
  %p = f32[8] parameter(0)
  %q = f32[4] parameter(1)
  ROOT %r = (f32[8], f32[4]) all-to-all(%p, %q), replica_groups={{0,1}}
}
"""
    (found,) = findings(hlo_passes.parse(text))
    assert "operands of different shapes, f32[8]{0} and f32[4]{0}" in found.message


def test_an_arrow_in_a_comment_of_a_head_is_followed_by_no_shape() -> None:
    text = "ENTRY %e (p: f32[8]) -> f32[8] /* -> here */ {\n  ROOT %p = f32[8] parameter(0)\n}\n"
    assert codes(text) == []


# -- after a change -------------------------------------------------------------


def test_second_run_sees_a_change() -> None:
    module = hlo_passes.parse(PROGRAM)
    assert findings(module) == ()
    start = module.computation("body").find("moving")
    start.set_attribute("source_target_pairs", "{{0,1},{0,2}}")
    assert [f.code for f in findings(module)] == ["V400"]
    start.set_attribute("source_target_pairs", "{{0,1}}")
    assert findings(module) == ()


def test_second_run_sees_a_change_in_a_callee() -> None:
    module = hlo_passes.parse(PROGRAM)
    assert findings(module) == ()
    fused = module.computation("fused")
    fused.set_root(fused.find("a"))
    found = [(f.code, f.computation) for f in findings(module)]
    assert ("V606", "fused") in found  # %scaled and %spread are dead now


def test_second_run_sees_that_a_loops_body_returns_something_else() -> None:
    module = hlo_passes.parse(
        "HloModule m\n\n"
        "%turn {\n  %x = s32[] parameter(0)\n  %f = f32[] constant(1)\n"
        "  ROOT %n = s32[] negate(%x)\n}\n\n"
        "%cond {\n  %y = s32[] parameter(0)\n"
        "  ROOT %t = pred[] compare(%y, %y), direction=LT\n}\n\n"
        "ENTRY %e {\n  %p = s32[] parameter(0)\n"
        "  ROOT %w = s32[] while(%p), condition=%cond, body=%turn\n}\n"
    )
    assert findings(module) == ()
    body = module.computation("turn")
    body.set_root(body.find("f"))
    assert ("V400", "w") in [(f.code, f.instruction) for f in findings(module)]


def test_second_run_sees_a_change_of_the_header() -> None:
    module = hlo_passes.parse(PROGRAM)
    assert findings(module) == ()
    module.set_attribute("num_partitions", "8")
    assert {f.code for f in findings(module)} == {"V400"}


def test_second_run_sees_that_the_entry_no_longer_suits_the_header() -> None:
    module = hlo_passes.parse(
        "HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0}}\n\n"
        "ENTRY %e {\n  %p = f32[8] parameter(0)\n  %c = f32[] constant(1)\n"
        "  ROOT %r = f32[8] negate(%p)\n}\n"
    )
    assert findings(module) == ()
    module.entry.set_root(module.entry.find("c"))
    assert [f.code for f in findings(module)] == ["V701"]
    module.set_attribute("entry_computation_layout", "{(f32[8]{0})->f32[]}")
    assert findings(module) == ()


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("p", ["V001"]),
        ("f32", ["V002"]),
        ("a b", ["V002"]),
        ("__a", ["V003"]),
        ("__xla_a", []),
        ("a", []),
    ],
)
def test_names_that_a_pass_gave(name: str, codes: list[str]) -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  %q = f32[8] negate(%p)\n  ROOT %r = f32[8] negate(%q)\n}\n"
    )
    module.entry.find("q").name = name
    assert [f.code for f in findings(module)] == codes


def test_a_fault_of_the_header_is_in_its_first_line() -> None:
    text = "HloModule m, strange=1\n\nENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n"
    (found,) = findings(hlo_passes.parse(text, filename="m.hlo"))
    assert found.render().startswith("m.hlo:1:1: error[V105]")


def test_second_run_sees_that_a_computation_is_no_longer_wrapped() -> None:
    """Inside what an async-start calls, XLA looks at no form but the root's."""
    body = (
        "  %a = f32[8] parameter(0)\n"
        '  %u = f32[8] custom-call(%a), custom_call_target="Unpin"\n'
        '  ROOT %n = f32[8] negate(%u)\n}, execution_thread="host"\n\n'
    )
    module = hlo_passes.parse(
        f"HloModule m\n\n%one {{\n{body}%other {{\n{body}"
        "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  %s = ((f32[8]), f32[8], u32[]) async-start(%p), "
        'async_execution_thread="host", calls=%one\n'
        "  ROOT %d = f32[8] async-done(%s)\n}\n"
    )
    assert [(f.code, f.computation) for f in findings(module)] == [("V903", "other")]
    module.entry.find("s").set_attribute("calls", "%other")
    assert [(f.code, f.computation) for f in findings(module)] == [("V903", "one")]


def _another_right_order(computation: hlo_passes.Computation) -> list:
    """Operands first, else the last instruction first."""
    order: dict[hlo_passes.Instruction, None] = {}
    for last in reversed(computation.instructions):
        stack = [last]
        while stack:
            waiting = [o for o in stack[-1].operands if o not in order]
            if waiting:
                stack += waiting
            else:
                order[stack.pop()] = None
    return list(order)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_later_run_finds_what_a_first_run_finds(data: st.DataObject) -> None:
    """Whatever was remembered, the findings are those of the text read anew."""
    module = hlo_passes.parse(PROGRAM)
    findings(module)
    for _ in range(data.draw(st.integers(1, 3))):
        computation = data.draw(st.sampled_from(module.computations))
        instruction = data.draw(st.sampled_from(computation.instructions))
        action = data.draw(
            st.sampled_from(["attribute", "operand", "root", "header", "order"])
        )
        if action == "attribute" and instruction.attributes:
            name = data.draw(st.sampled_from(sorted(instruction.attributes)))
            text = data.draw(st.sampled_from([None, "{9}", "{{0,1},{1,0}}", "7"]))
            instruction.set_attribute(name, text)
        elif action == "operand" and instruction.operands:
            position = computation.instructions.index(instruction)
            other = data.draw(st.sampled_from(computation.instructions[:position]))
            computation.replace_operand(instruction, instruction.operands[0], other)
        elif action == "root":
            computation.set_root(instruction)
        elif action == "header":
            module.set_attribute("num_partitions", data.draw(st.sampled_from("48")))
        elif action == "order":
            computation.set_order(
                data.draw(st.permutations(computation.instructions))
                if data.draw(st.booleans())
                else _another_right_order(computation)
            )
        again = [(f.code, f.message, f.instruction) for f in findings(module)]
        try:
            anew = findings(hlo_passes.parse(module.to_text()))
        except hlo_passes.ParseError:
            continue
        assert again == [(f.code, f.message, f.instruction) for f in anew]


# -- real modules ---------------------------------------------------------------


@pytest.mark.parametrize(
    "file", module_files(CORPUS, SHARED / "corpus"), ids=lambda f: f.name
)
def test_real_modules_are_accepted(file) -> None:
    text = read_text(file)
    if len(text) > MAXIMUM_BYTES:
        pytest.skip("left to the long run")
    assert findings(hlo_passes.parse(text)) == ()


@pytest.mark.parametrize(
    ("attributes", "accepted"),
    [
        ("order=TOTAL", True),
        ("order=PARTIAL", True),
        ("type=TOTALORDER", True),
        ("order=X", False),
        ("order=TOTAL, type=TOTALORDER", False),
    ],
)
def test_the_order_of_a_comparison_in_both_spellings(attributes, accepted) -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %e {\n  %a = f32[] parameter(0)\n"
        f"  ROOT %c = pred[] compare(%a, %a), direction=LT, {attributes}\n}}\n"
    )
    if accepted:
        hlo_passes.verify(module)
        return
    with pytest.raises(hlo_passes.VerificationError):
        hlo_passes.verify(module)
