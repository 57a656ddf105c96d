"""How often loops run: the forms that programs have, and what running them says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import hlo_passes
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module


def loops_of(module: Module) -> dict[str, Instruction]:
    return {
        i.name: i
        for c in module.computations
        for i in c.instructions
        if i.opcode == "while"
    }


def counts_of(text: str) -> dict[str, int | None]:
    module = hlo_passes.parse(text)
    counts = TripCounts(module)
    return {name: counts.of(one) for name, one in loops_of(module).items()}


def text_of(
    *,
    kind: str = "s32",
    start: str = "0",
    update: str = "%next = s32[] add(%i, %step)",
    step: str = "1",
    condition: str = "ROOT %less = pred[] compare(%j, %bound), direction=LT",
    bound: str = "126",
    head: str = "",
) -> str:
    """A loop over (variable, data); `%i` is the variable, `%j` it in the condition."""
    state = f"({kind}[], f32[4])"
    return f"""HloModule m

{head}%body (s: {state}) -> {state} {{
  %s = {state} parameter(0)
  %i = {kind}[] get-tuple-element(%s), index=0
  %x = f32[4] get-tuple-element(%s), index=1
  %step = {kind}[] constant({step})
  {update.replace("s32", kind)}
  ROOT %after = {state} tuple(%next, %x)
}}

%condition (t: {state}) -> pred[] {{
  %t = {state} parameter(0)
  %j = {kind}[] get-tuple-element(%t), index=0
  %bound = {kind}[] constant({bound})
  {condition.replace("s32", kind)}
}}

ENTRY %main (data: f32[4]) -> {state} {{
  %data = f32[4] parameter(0)
  %first = {kind}[] constant({start})
  %begin = {state} tuple(%first, %data)
  ROOT %loop = {state} while(%begin), condition=%condition, body=%body
}}
"""


def count(**parts: str) -> int | None:
    return counts_of(text_of(**parts))["loop"]


def test_the_loop_over_layers_of_a_model() -> None:
    assert count() == 126


COMPARED = "ROOT %goes_on = pred[] compare(%j, %bound), direction="


@pytest.mark.parametrize(
    ("start", "step", "direction", "bound", "expected"),
    [
        ("10", "2", "LT", "1000000", 499995),
        ("10", "1", "LE", "1000000", 999991),
        ("0", "3", "LT", "10", 4),
        ("100", "-1", "GT", "0", 100),
        ("100", "-7", "GE", "0", 15),
        ("0", "5", "NE", "1000000000", 200000000),
        ("0", "1", "EQ", "0", 1),
        ("-5", "4", "LT", "1", 2),
        ("7", "2", "LT", "6", 0),
        ("0", "1", "GT", "10", 0),
    ],
)
def test_all_comparisons_up_and_down(
    start: str, step: str, direction: str, bound: str, expected: int
) -> None:
    found = count(start=start, step=step, bound=bound, condition=COMPARED + direction)
    assert found == expected


@pytest.mark.parametrize(
    ("kind", "start", "bound", "direction", "expected"),
    [
        ("s8", "-128", "127", "LT", 255),
        ("u8", "0", "255", "LT", 255),
        ("s64", "-9223372036854775808", "9223372036854775807", "LT", 2**64 - 1),
        ("u64", "0", "18446744073709551615", "NE", 2**64 - 1),
        ("s32", "0", "2147483647", "LT", 2**31 - 1),
    ],
)
def test_counts_up_to_the_end_of_a_type(
    kind: str, start: str, bound: str, direction: str, expected: int
) -> None:
    found = count(kind=kind, start=start, bound=bound, condition=COMPARED + direction)
    assert found == expected


def test_what_wraps_around_is_run_or_not_known() -> None:
    # 250, 251, ..., 255, 0: six iterations.
    assert count(kind="u8", start="250", bound="0", condition=COMPARED + "NE") == 6
    # Every u8 is at most 255, and no s32 that is counted down stays above 5.
    assert count(kind="u8", bound="255", condition=COMPARED + "LE") is None
    assert count(start="5", step="-1", bound="5", condition=COMPARED + "LE") is None


def test_constants_inside_and_around_a_fused_condition() -> None:
    head = """%wrapped_compare (p: s32[], q: s32[]) -> pred[] {
  %p = s32[] parameter(0)
  %q = s32[] parameter(1)
  ROOT %c = pred[] compare(%p, %q), direction=LT
}

%fused_add (p.1: s32[]) -> (s32[], s32[]) {
  %p.1 = s32[] parameter(0)
  %two = s32[] constant(2)
  %sum = s32[] add(%p.1, %two)
  ROOT %both = (s32[], s32[]) tuple(%p.1, %sum)
}

"""
    update = """%pair = (s32[], s32[]) fusion(%i), kind=kLoop, calls=%fused_add
  %fresh = s32[] get-tuple-element(%pair), index=1
  %next = s32[] copy(%fresh)"""
    condition = (
        "ROOT %less = pred[] fusion(%j, %bound), kind=kLoop, calls=%wrapped_compare"
    )
    assert count(head=head, update=update, condition=condition) == 63


def test_two_conditions_of_which_the_first_fails() -> None:
    condition = """%c5 = s32[] constant(40)
  %one = pred[] compare(%j, %bound), direction=LT
  %two = pred[] compare(%j, %c5), direction=NE
  ROOT %both = pred[] and(%one, %two)"""
    assert count(condition=condition) == 40
    either = condition.replace("ROOT %both = pred[] and", "ROOT %both = pred[] or")
    # At 126 the variable is not 40, and it never is again.
    assert count(condition=either) is None
    assert count(condition=either.replace("direction=NE", "direction=LE")) == 126
    not_two = condition.replace(
        "  ROOT %both = pred[] and(%one, %two)",
        "  %not_two = pred[] not(%two)\n  ROOT %both = pred[] and(%one, %not_two)",
    )
    assert count(condition=not_two) == 0


FOLLOWING = """HloModule m

%body (s: (s32[], s32[], s32[], s32[])) -> (s32[], s32[], s32[], s32[]) {
  %s = (s32[], s32[], s32[], s32[]) parameter(0)
  %a = s32[] get-tuple-element(%s), index=0
  %b = s32[] get-tuple-element(%s), index=1
  %most = s32[] get-tuple-element(%s), index=3
  %one = s32[] constant(1)
  %next = s32[] add(%a, %one)
  ROOT %after = (s32[], s32[], s32[], s32[]) tuple(%next, %a, %b, %most)
}

%condition (t: (s32[], s32[], s32[], s32[])) -> pred[] {
  %t = (s32[], s32[], s32[], s32[]) parameter(0)
  %c = s32[] get-tuple-element(%t), index=2
  %most.1 = s32[] get-tuple-element(%t), index=3
  ROOT %less = pred[] compare(%c, %most.1), direction=LT
}

ENTRY %main () -> (s32[], s32[], s32[], s32[]) {
  %zero = s32[] constant(0)
  %start = s32[] constant(START)
  %most.2 = s32[] constant(1000000)
  %begin = (s32[], s32[], s32[], s32[]) tuple(%zero, %zero, %start, %most.2)
  ROOT %loop = (s32[], s32[], s32[], s32[]) while(%begin), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(("start", "expected"), [("0", 1000002), ("2000000", 0)])
def test_a_variable_that_follows_others(start: str, expected: int) -> None:
    """The variable is two iterations late, and its bound is in the state."""
    assert counts_of(FOLLOWING.replace("START", start)) == {"loop": expected}


NESTED = """HloModule m

%inner_body (s: (s32[], s32[], s32[])) -> (s32[], s32[], s32[]) {
  %s = (s32[], s32[], s32[]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %step = s32[] get-tuple-element(%s), index=2
  %next = s32[] add(%i, %step)
  ROOT %after = (s32[], s32[], s32[]) tuple(%next, %n, %step)
}

%inner_condition (t: (s32[], s32[], s32[])) -> pred[] {
  %t = (s32[], s32[], s32[]) parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %m = s32[] get-tuple-element(%t), index=1
  ROOT %less = pred[] compare(%j, %m), direction=LT
}

%outer_body (o: (s32[], s32[])) -> (s32[], s32[]) {
  %o = (s32[], s32[]) parameter(0)
  %k = s32[] get-tuple-element(%o), index=0
  %bound = s32[] get-tuple-element(%o), index=1
  %one = s32[] constant(1)
  %zero = s32[] constant(0)
  %begin = (s32[], s32[], s32[]) tuple(FIRST, %bound, %one)
  %inner = (s32[], s32[], s32[]) while(%begin), condition=%inner_condition, body=%inner_body
  %more = s32[] add(%k, %one)
  ROOT %handed_on = (s32[], s32[]) tuple(%more, %bound)
}

%outer_condition (u: (s32[], s32[])) -> pred[] {
  %u = (s32[], s32[]) parameter(0)
  %l = s32[] get-tuple-element(%u), index=0
  %eight = s32[] constant(8)
  ROOT %goes_on = pred[] compare(%l, %eight), direction=LT
}

%called (v: s32[]) -> (s32[], s32[]) {
  %v = s32[] parameter(0)
  %none = s32[] constant(0)
  %start = (s32[], s32[]) tuple(%none, %v)
  ROOT %outer = (s32[], s32[]) while(%start), condition=%outer_condition, body=%outer_body
}

ENTRY %main () -> (s32[], s32[]) {
  %c32 = s32[] constant(32)
  ROOT %r = (s32[], s32[]) call(%c32), to_apply=%called
}
"""


def test_a_bound_that_comes_through_a_loop_and_a_call() -> None:
    assert counts_of(NESTED.replace("FIRST", "%zero")) == {"inner": 32, "outer": 8}


def test_a_start_that_changes_with_the_loop_around_is_not_known() -> None:
    module = hlo_passes.parse(NESTED.replace("FIRST", "%k"))
    counts = TripCounts(module)
    loops = loops_of(module)
    assert counts.of(loops["outer"]) == 8
    assert counts.of(loops["inner"]) is None
    assert counts.why_unknown(loops["inner"]) == "element 0 of %outer"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"kind": "f32", "step": "1", "start": "0", "bound": "9"}, "state, f32[]"),
        ({"update": '%next = s32[] custom-call(%i), custom_call_target="f"'}, "%next"),
        ({"update": "%next = s32[] copy(%i)"}, "changes nothing"),
        ({"bound": "0", "condition": COMPARED + "GE"}, "no end within"),
    ],
)
def test_what_is_not_known_and_why(parts: Mapping[str, str], why: str) -> None:
    module = hlo_passes.parse(text_of(**parts))
    counts, one = TripCounts(module), loops_of(module)["loop"]
    assert counts.of(one) is None
    assert why in counts.why_unknown(one)


def test_a_noted_count_comes_before_the_program_and_a_given_one_before_both() -> None:
    noted = 'body=%body, backend_config={"known_trip_count":{"n":"7"}}'
    module = hlo_passes.parse(text_of().replace("body=%body", noted))
    one = loops_of(module)["loop"]
    assert TripCounts(module).of(one) == 7
    assert TripCounts(module).found(one) == 126
    assert TripCounts(module, {"loop": 3}).of(one) == 3


def test_an_expression_that_is_too_large_is_not_followed() -> None:
    lines = "\n".join(
        f"  %a{k} = s32[] add(%{'i' if k == 0 else f'a{k - 1}'}, %step)"
        for k in range(5000)
    )
    update = f"%zero = s32[] constant(0)\n{lines}\n  %next = s32[] add(%a4999, %step)"
    assert count(update=update) is None
