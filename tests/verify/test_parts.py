"""Parts of rules that a whole module seldom reaches."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.in_place import in_place_pairs
from hlo_passes.verify import findings
from hlo_passes.verify.async_pairs import is_prefix
from hlo_passes.verify.finding import Report
from hlo_passes.verify.header import check_header
from hlo_passes.verify.literal_checks import check_constant


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [
        ("f32[8]", "f32[8]", True),
        ("f32[8]", "f32[9]", False),
        ("f32[8]", "(f32[8])", False),
        ("()", "f32[8]", True),
        ("(f32[8])", "f32[8]", False),
        ("(f32[8])", "(f32[8], f32[9])", True),
        ("(f32[9])", "(f32[8], f32[9])", False),
        ("(f32[8], f32[9])", "(f32[8])", False),
        ("(f32[8], ())", "(f32[8], (f32[9]))", True),
        ("(f32[8], (f32[8]))", "(f32[8], (f32[9]))", False),
    ],
)
def test_what_begins_like_another_shape(part: str, whole: str, expected: bool) -> None:
    one, other = hlo_passes.parse_shape(part), hlo_passes.parse_shape(whole)
    assert is_prefix(one, other) is expected


def test_a_module_without_an_entry_is_told() -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n"
    )
    report = Report()
    check_header(module, None, report)
    assert [f.code for f in report.findings(module)] == ["V009"]


def test_a_ragged_exchange_writes_into_its_second_operand() -> None:
    module = hlo_passes.parse(
        """HloModule m

ENTRY %main {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %o = s32[2] parameter(2)
  ROOT %r = f32[8] ragged-all-to-all(%p, %q, %o, %o, %o, %o), replica_groups={{0,1}}
}
"""
    )
    assert in_place_pairs(module.entry.root) == ((1, (), ()),)


@pytest.mark.parametrize(
    ("literal", "shape", "is_right"),
    [
        ("3", "s8[]", True),
        ("300", "s8[]", False),
        ("{1, 2}", "s8[2]", True),
        ("{1, 300}", "s8[2]", False),
        ("{1}", "s8[2]", False),
        ("{1, 2, 3}", "s8[2]", False),
        ("{}", "s8[0]", True),
        ("{ {3} }", "s8[1,1]", True),
        ("{ {300} }", "s8[1,1]", False),
        ("{ {3} }", "s8[2,1]", False),
        ("{ {3} }", "s8[1,2]", False),
        ("{ {1, 2}, {3, 4} }", "s8[2,2]", True),
        ("{ {1, 2}, {3, 400} }", "s8[2,2]", False),
        ("{ {1, 2} }", "s8[2,2]", False),
        ("60000", "f16[]", True),
        ("65504", "f16[]", True),
        ("70000", "f16[]", False),
        ("inf", "f16[]", True),
        ("true", "pred[]", True),
    ],
)
def test_which_literals_fit(literal: str, shape: str, is_right: bool) -> None:
    assert (check_constant(literal, hlo_passes.parse_shape(shape)) == ()) is is_right


def _codes(text: str) -> list[tuple[str, str]]:
    return [(f.code, f.instruction) for f in findings(hlo_passes.parse(text))]


_ENTRY = "ENTRY %e {\n  ROOT %p = f32[] parameter(0)\n}\n"


@pytest.mark.parametrize(
    ("attributes", "codes"),
    [
        ("replica_count=1", []),
        ("num_partitions=1", []),
        ("replica_count=2, num_partitions=4", []),
        ("replica_count=0", ["V106"]),
        ("num_partitions=0", ["V106"]),
        ("strange=1", ["V105"]),
        ("strange=1, replica_count=0", ["V105", "V106"]),
    ],
)
def test_what_a_header_may_say(attributes: str, codes: list[str]) -> None:
    found = _codes(f"HloModule m, {attributes}\n\n{_ENTRY}")
    assert sorted(code for code, _ in found) == codes


def test_a_count_that_is_wrong_is_all_that_is_said() -> None:
    """A sharding is not compared with it."""
    entry = _ENTRY.replace("(0)", "(0), sharding={maximal device=3}")
    found = _codes(f"HloModule m, num_partitions=0\n\n{entry}")
    assert [code for code, _ in found] == ["V106"]


@pytest.mark.parametrize(
    ("shape", "codes"),
    [("(f32[4], f32[8])", []), ("(f32[8], f32[8])", ["V402"]),
     ("(f32[4], f32[4])", ["V402"])],
)  # fmt: skip
def test_a_permute_in_place_starts_with_both_buffers(
    shape: str, codes: list[str]
) -> None:
    found = _codes(f"""HloModule m, num_partitions=2

ENTRY %e {{
  %p = f32[4] parameter(0)
  %o = f32[8] parameter(1)
  %z = s32[] constant(0)
  %at = (s32[]) tuple(%z)
  %s = {shape} collective-permute-start(%p, %o, %at, %at), channel_id=1,
    source_target_pairs={{{{0,1}}}}, slice_sizes={{{{4}}}}
  ROOT %d = f32[8] collective-permute-done(%s)
}}
""")
    assert [code for code, name in found if name == "s"] == codes


def test_the_shape_of_a_done_is_that_of_its_first_operand() -> None:
    """That it has another operand is all that is wrong."""
    found = _codes("""HloModule m, num_partitions=2

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %e {
  %p = f32[4] parameter(0)
  %q = f32[8] parameter(1)
  %s = f32[4] all-reduce-start(%p), channel_id=1, replica_groups={{0,1}},
    use_global_device_ids=true, to_apply=%add
  ROOT %d = f32[4] all-reduce-done(%s, %q)
}
""")
    assert found == [("V006", "d")]


def test_the_header_comes_first_and_then_the_text() -> None:
    body = "  %x = f32[] parameter(0)\n  ROOT %n = f32[] negate(%x)\n"
    found = _codes(
        "HloModule m, replica_count=0\n\n"
        f"%one {{\n{body.replace('(%x)', '(%x), strange=1')}}}\n\n%two {{\n{body.replace('f32', 's4')}}}\n\n"
        "ENTRY %e {\n  %p = f32[] parameter(0)\n"
        "  %f = f32[] fusion(%p), kind=kLoop, calls=%one\n"
        "  %g = f32[] fusion(%f), kind=kLoop, calls=%one\n"
        "  ROOT %r = f32[9] negate(%g)\n}\n"
    )
    assert found[0] == ("V106", "")
    assert [name for _, name in found[1:]] == ["n", "g", "r"]


@pytest.mark.parametrize("text", ["{[}", "{(}"])
def test_attributes_that_cannot_be_split(text: str) -> None:
    entry = _ENTRY.replace("(0)", f"(0), origin={text}")
    assert _codes(f"HloModule m\n\n{entry}") == [("V104", "p")]


@pytest.mark.parametrize(
    ("thread", "codes"), [("main", ["V605"]), ("host", []), ("parallel", [])]
)
def test_what_runs_beside_the_main_thread_may_be_several_operations(
    thread: str, codes: list[str]
) -> None:
    foot = "" if thread == "main" else f', execution_thread="{thread}"'
    found = _codes(
        "HloModule m\n\n%w {\n  %a = f32[8] parameter(0)\n"
        "  %n = f32[8] negate(%a)\n  ROOT %c = f32[8] cosine(%n)\n}" + foot + "\n\n"
        "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  %s = ((f32[8]), f32[8], u32[]) async-start(%p), "
        f'async_execution_thread="{thread}", calls=%w\n'
        "  ROOT %d = f32[8] async-done(%s)\n}\n"
    )
    assert [code for code, _ in found] == codes


def test_what_has_no_place_comes_first_in_the_order_in_which_it_was_told() -> None:
    module, other = (
        hlo_passes.parse(_ENTRY.replace("ROOT %p", "%q = f32[] constant(0)\n  ROOT %p"))
        for _ in range(2)
    )
    first, second = module.entry.instructions
    report = Report(module.entry)
    for where in (second, None, other.entry.root, first, None, second):
        report.add(where, "V007", f"{len(report.entries)}")
    assert [f.message for f in report.findings(module)] == list("124305")


def test_after_a_missing_callee_the_rest_is_checked() -> None:
    found = _codes(
        "HloModule m\n\nENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  %f = f32[8] fusion(%p), kind=kLoop, calls=%none\n"
        "  ROOT %r = f32[9] negate(%f)\n}\n"
    )
    assert [name for _, name in found] == ["f", "r"]


def test_every_parameter_without_its_number_is_told() -> None:
    found = _codes(
        "HloModule m\n\nENTRY %e {\n  %p = f32[8] parameter()\n"
        "  %q = f32[8] parameter(7)\n  %r = f32[8] parameter()\n"
        "  ROOT %s = f32[8] negate(%q)\n}\n"
    )
    assert [name for code, name in found if code == "V008"] == ["p", "q", "r"]


def test_a_call_that_only_fixes_an_order_is_no_second_end() -> None:
    target = 'custom_call_target="control_dep"'
    text = (
        "HloModule m, replica_count=2\n\n"
        "%add {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n"
        "  ROOT %c = f32[] add(%a, %b)\n}\n\n"
        "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
        "  %s = f32[8] all-reduce-start(%p), replica_groups={{0,1}}, to_apply=%add\n"
        f"  %n = () custom-call(%s), {target}\n"
        "  ROOT %d = f32[8] all-reduce-done(%s)\n}\n"
    )
    assert _codes(text) == []
    assert _codes(text.replace("control_dep", "another")) != []
    other = text.replace("() custom-call(%s)", "f32[8] copy(%s)")
    assert ("V501", "s") in _codes(other)


def test_a_start_is_no_further_operand_of_its_update() -> None:
    given = "((f32[8]), f32[8], u32[])"
    text = (
        "HloModule m\n\n"
        f"%w {{\n  %a = f32[8] parameter(0)\n  %b = {given} parameter(1)\n"
        "  ROOT %n = f32[8] negate(%a)\n}\n\n"
        "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
        f"  %s = {given} async-start(%p), calls=%w\n"
        f"  %u = ((f32[8], {given}), f32[8], u32[]) async-update(%s, %s)\n"
        "  ROOT %d = f32[8] async-done(%u)\n}\n"
    )
    assert _codes(text) == [("V503", "u")]


@pytest.mark.parametrize(
    ("place", "is_right"),
    [("nowhere", True), ("parameter", False), ("root", False), ("condition", False)],
)
def test_a_loop_has_one_sharding(place: str, is_right: bool) -> None:
    def mark(here: str) -> str:
        ids = "{1}" if here == place else "{0}"
        return f", sharding={{maximal device={ids[1:-1]}}}"

    found = _codes(
        "HloModule m, num_partitions=2\n\n"
        f"%body {{\n  %x = s32[] parameter(0){mark('parameter')}\n"
        f"  ROOT %n = s32[] negate(%x){mark('root')}\n}}\n\n"
        f"%cond {{\n  %y = s32[] parameter(0){mark('condition')}\n"
        "  ROOT %t = pred[] compare(%y, %y), direction=LT\n}\n\n"
        "ENTRY %e {\n  %p = s32[] parameter(0)\n"
        "  ROOT %w = s32[] while(%p), condition=%cond, body=%body"
        f"{mark('loop')}\n}}\n"
    )
    assert found == ([] if is_right else [("V802", "w")])


@pytest.mark.parametrize("differs", [None, 0, 1, 2])
def test_branches_have_one_sharding(differs: int | None) -> None:
    def branch(k: int) -> str:
        device = 1 if k == differs else 0
        return (
            f"%b{k} {{\n  %x = s32[] parameter(0), sharding={{replicated}}\n"
            f"  ROOT %n = s32[] negate(%x), sharding={{maximal device={device}}}\n}}\n\n"
        )

    found = _codes(
        "HloModule m, num_partitions=2\n\n"
        f"{branch(0)}{branch(1)}{branch(2)}"
        "ENTRY %e {\n  %p = s32[] parameter(0)\n"
        "  ROOT %w = s32[] conditional(%p, %p, %p, %p), "
        "branch_computations={%b0, %b1, %b2}\n}\n"
    )
    assert found == ([] if differs is None else [("V802", "w")])


def test_a_call_takes_a_buffer_only_on_a_stream() -> None:
    def with_mark(mark: str) -> str:
        return (
            "HloModule m\n\n"
            "%f {\n  %c = b(f32[8]) parameter(0)\n"
            '  ROOT %u = f32[8] custom-call(%c), custom_call_target="Unpin", '
            "output_to_operand_aliasing={{}: (0, {})}\n}\n\n"
            "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
            '  %b = b(f32[8]) custom-call(%p), custom_call_target="Pin", '
            "output_to_operand_aliasing={{}: (0, {})}\n"
            f"  ROOT %k = f32[8] call(%b), to_apply=%f{mark}\n}}\n"
        )

    mark = ', frontend_attributes={_xla_stream_annotation="1"}'
    assert ("V901", "k") in _codes(with_mark(""))
    assert ("V901", "k") not in _codes(with_mark(mark))


@pytest.mark.parametrize(
    ("wraps", "is_root", "codes"),
    [
        (False, True, ["V501", "V507"]),
        (True, False, ["V501", "V507"]),
        (True, True, []),
    ],
)
def test_only_the_root_of_what_a_start_calls_is_a_send_without_its_done(
    wraps: bool, is_root: bool, codes: list[str]
) -> None:
    marks = ("ROOT ", "") if is_root else ("", "ROOT ")
    body = (
        "  %a = f32[8] parameter(0)\n  %t = token[] after-all()\n"
        f"  {marks[0]}%s = (f32[8], u32[], token[]) send(%a, %t), channel_id=1\n"
        f"  {marks[1]}%n = f32[8] negate(%a)\n}}\n"
    )
    result = "(f32[8], u32[], token[])" if is_root else "f32[8]"
    text = f"HloModule m, num_partitions=2\n\nENTRY %e {{\n{body}"
    if wraps:
        text = (
            f"HloModule m, num_partitions=2\n\n%w {{\n{body}\n"
            "ENTRY %e {\n  %p = f32[8] parameter(0)\n"
            f"  %b = ((f32[8]), {result}, u32[]) async-start(%p), calls=%w\n"
            f"  ROOT %d = {result} async-done(%b)\n}}\n"
        )
    assert [code for code, name in _codes(text) if name == "s"] == codes
