"""A loop for a TPU may carry the start of a transfer into its next iteration."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import runtime
from hlo_passes.scheduler.checker.schedule_checker import check_schedule
from hlo_passes.verify import findings

MARK = 'backend_config={"while_loop_async_pipelined_config":{"is_pipelined":true}}'
_STARTED = "((f32[4,8], s32[], s32[]), f32[1,8], s32[])"
LOOP = f"""HloModule m, is_scheduled=true

%cut (a: f32[4,8], i: s32[], j: s32[]) -> f32[1,8] {{
  %a = f32[4,8] parameter(0)
  %i = s32[] parameter(1)
  %j = s32[] parameter(2)
  ROOT %c = f32[1,8] dynamic-slice(%a, %i, %j), dynamic_slice_sizes={{1,8}}
}}

%cut.1 (a.1: f32[4,8], i.1: s32[], j.1: s32[]) -> f32[1,8] {{
  %a.1 = f32[4,8] parameter(0)
  %i.1 = s32[] parameter(1)
  %j.1 = s32[] parameter(2)
  ROOT %c.1 = f32[1,8] dynamic-slice(%a.1, %i.1, %j.1), dynamic_slice_sizes={{1,8}}
}}

%body (b: (s32[], {_STARTED}, f32[4,8])) -> (s32[], {_STARTED}, f32[4,8]) {{
  %b = (s32[], {_STARTED}, f32[4,8]) parameter(0)
  %n = s32[] get-tuple-element(%b), index=0
  %given = {_STARTED} get-tuple-element(%b), index=1
  %all = f32[4,8] get-tuple-element(%b), index=2
  %ended = f32[1,8] async-done(%given)
  %used = f32[1,8] negate(%ended)
  %one = s32[] constant(1)
  %next = s32[] add(%n, %one)
  %zero = s32[] constant(0)
  %begun = {_STARTED} async-start(%all, %next, %zero), calls=%cut
  ROOT %t = (s32[], {_STARTED}, f32[4,8]) tuple(%next, %begun, %all)
}}

%test (q: (s32[], {_STARTED}, f32[4,8])) -> pred[] {{
  %q = (s32[], {_STARTED}, f32[4,8]) parameter(0)
  ROOT %no = pred[] constant(false)
}}

ENTRY %main {{
  %p = f32[4,8] parameter(0)
  %none = s32[] constant(0)
  %first = {_STARTED} async-start(%p, %none, %none), calls=%cut.1
  %in = (s32[], {_STARTED}, f32[4,8]) tuple(%none, %first, %p)
  %w = (s32[], {_STARTED}, f32[4,8]) while(%in), condition=%test, body=%body, MARK
  %left = {_STARTED} get-tuple-element(%w), index=1
  ROOT %last = f32[1,8] async-done(%left)
}}
"""


def _codes(text: str) -> list[tuple[str, str]]:
    found = findings(hlo_passes.parse(text))
    return [(f.code, f.instruction) for f in found]


def test_a_loop_that_says_so_may_carry_a_start() -> None:
    assert _codes(LOOP.replace("MARK", MARK)) == []


@pytest.mark.parametrize("mark", ['backend_config={"a":1}', MARK.replace("true", "0")])
def test_no_other_loop_may(mark: str) -> None:
    codes = _codes(LOOP.replace("MARK", mark))
    assert sorted(codes) == [
        ("V501", "begun"),
        ("V501", "first"),
        ("V502", "ended"),
        ("V502", "last"),
        ("V503", "in"),
        ("V503", "t"),
    ]


def test_it_may_be_looked_into_on_the_way() -> None:
    looked = "  %early = f32[1,8] get-tuple-element(%begun), index=1\n  ROOT %t ="
    assert _codes(LOOP.replace("MARK", MARK).replace("  ROOT %t =", looked)) == []


def test_it_may_not_be_ended_and_carried_on() -> None:
    done = "  %twice = f32[1,8] async-done(%begun)\n  ROOT %t ="
    text = LOOP.replace("MARK", MARK).replace("  ROOT %t =", done)
    assert _codes(text) == [("V501", "begun"), ("V503", "t")]


def test_the_checker_and_run_know_it_too() -> None:
    module = hlo_passes.parse(LOOP.replace("MARK", MARK))
    assert not check_schedule(module)
    with pytest.raises(hlo_passes.HloError) as found:
        runtime.load(module)
    assert found.value.code == "S010"


def test_a_start_that_nobody_carries_needs_its_done() -> None:
    text = LOOP.replace("MARK", MARK).replace("(%next, %begun,", "(%next, %given,")
    assert _codes(text) == [("V501", "begun"), ("V501", "w")]


def _replaced(*pairs: tuple[str, str]) -> str:
    text = LOOP.replace("MARK", MARK)
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_what_is_ended_is_what_a_start_returns() -> None:
    wrong = _replaced(
        ("%ended = f32[1,8]", "%ended = f32[9,9]"),
        ("%used = f32[1,8]", "%used = f32[9,9]"),
    )
    assert _codes(wrong) == [("V505", "ended")]
    other = _replaced((" async-done(%given)", " async-done(%n)"))
    assert ("V502", "ended") in _codes(other)


def test_it_is_ended_once() -> None:
    twice = _replaced(("  %used =", "  %more = f32[1,8] async-done(%given)\n  %used ="))
    assert _codes(twice) == [("V501", "w")]
    element = f"  %again = {_STARTED} get-tuple-element(%b), index=1\n"
    other = element + "  %more = f32[1,8] async-done(%again)\n  %used ="
    assert _codes(_replaced(("  %used =", other))) == [("V501", "w")]


def test_it_is_not_ended_and_carried_on_in_the_body() -> None:
    begun = f"  %begun = {_STARTED} async-start(%all, %next, %zero), calls=%cut\n"
    kept = _replaced((begun, ""), ("(%next, %begun, %all)", "(%next, %given, %all)"))
    assert _codes(kept) == [("V501", "w")]


def test_it_may_be_updated_on_the_way() -> None:
    update = f"  %on = {_STARTED} async-update(%given)\n  %ended ="
    text = _replaced(("  %ended =", update), ("async-done(%given)", "async-done(%on)"))
    assert _codes(text) == []


def test_an_element_of_nothing_is_refused() -> None:
    text = _replaced(("get-tuple-element(%w), index=1", "get-tuple-element(), index=1"))
    assert ("V006", "left") in _codes(text)


def test_it_is_carried_once() -> None:
    carried = f"  %also = ({_STARTED}) tuple(%first)\n  %in ="
    twice = _replaced(("  %in =", carried))
    assert {code for code, _ in _codes(twice)} == {"V501", "V503"}


def test_nothing_carries_it_without_a_loop() -> None:
    left = _replaced(("while(%in), condition=%test, body=%body", "opt-barrier(%in)"))
    assert ("V501", "first") in _codes(left)
    assert ("V502", "last") in _codes(left)


def test_the_body_ends_what_it_is_given() -> None:
    kept = _replaced(("%used = f32[1,8] negate(%ended)", "%same = s32[] negate(%n)"),
                     ("  %ended = f32[1,8] async-done(%given)\n", ""))  # fmt: skip
    assert _codes(kept) == [("V501", "w")]
    unread = "  %given = " + _STARTED + " get-tuple-element(%b), index=1\n"
    gone = kept.replace(unread, "")
    assert gone != kept
    assert _codes(gone) == [("V501", "w")]


def test_the_caller_ends_the_last_one() -> None:
    left = _replaced(
        ("ROOT %last = f32[1,8] async-done(%left)", "ROOT %last = s32[] negate(%none)")
    )
    assert _codes(left) == [("V501", "w")]


def test_it_may_be_carried_on_as_it_is() -> None:
    kept = _replaced(("%used = f32[1,8] negate(%ended)", "%same = s32[] negate(%n)"),
                     ("  %ended = f32[1,8] async-done(%given)\n", ""),
                     (f"  %begun = {_STARTED} async-start(%all, %next, %zero), "
                      "calls=%cut\n", ""),
                     ("tuple(%next, %begun, %all)", "tuple(%next, %given, %all)"))  # fmt: skip
    assert _codes(kept) == []


def test_it_may_leave_with_the_whole_state() -> None:
    whole = f"ROOT %o = (s32[], {_STARTED}, f32[4,8]) opt-barrier(%w)"
    left = _replaced(
        ("ROOT %last = f32[1,8] async-done(%left)", whole),
        (f"  %left = {_STARTED} get-tuple-element(%w), index=1\n", ""),
    )
    assert _codes(left) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tuple(%none, %first, %p)", "tuple(%none, %other, %p)"),
        ("tuple(%next, %begun, %all)", "tuple(%next, %other, %all)"),
    ],
)
def test_what_is_ended_was_started(old: str, new: str) -> None:
    made = f'%other = {_STARTED} custom-call(), custom_call_target="f"\n  '
    line = "  %in =" if "%first" in old else "  ROOT %t ="
    text = _replaced((old, new), (line, f"  {made}{line.strip()}"))
    codes = _codes(text)
    assert ("V502", "w") in codes
    assert {code for code, _ in codes} == {"V501", "V502"}


def test_a_loop_that_no_longer_says_so_is_noticed() -> None:
    module = hlo_passes.parse(LOOP.replace("MARK", MARK))
    assert not findings(module)
    loop = next(i for i in module.entry.instructions if i.opcode == "while")
    loop.set_attribute("backend_config", '{"a":1}')
    again = [(f.code, f.instruction) for f in findings(module)]
    assert again == _codes(module.to_text())
    assert ("V502", "ended") in again
