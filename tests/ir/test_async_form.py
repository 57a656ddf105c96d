"""Halves of asynchronous operations: one answer for every spelling."""

import pytest

import hlo_passes
from hlo_passes.ir.async_form import (
    done_of,
    half,
    is_collective,
    is_generic,
    is_pair,
    is_transfer,
    start_of,
    work_of,
    wrapped_computation,
    wrapped_instruction,
)
from hlo_passes.ir.instruction import Instruction

MODULE = """\
HloModule halves, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %ab = f32[] add(f32[] %a, f32[] %b)
}

%wrapped (w: f32[8]) -> f32[4] {
  %w = f32[8]{0} parameter(0)
  ROOT %scattered = f32[4]{0} reduce-scatter(f32[8]{0} %w), replica_groups={{0,1}}, dimensions={0}, to_apply=%sum
}

%body (t: (f32[4], (f32[4], u32[], token[]))) -> (f32[4], (f32[4], u32[], token[])) {
  %t = (f32[4]{0}, (f32[4]{0}, u32[], token[])) parameter(0)
  %kept = f32[4]{0} get-tuple-element(%t), index=0
  %carried = (f32[4]{0}, u32[], token[]) get-tuple-element(%t), index=1
  %send-done = token[] send-done(%carried), channel_id=1
  %send = (f32[4]{0}, u32[], token[]) send(%kept, %send-done), channel_id=1
  ROOT %next = (f32[4]{0}, (f32[4]{0}, u32[], token[])) tuple(%kept, %send)
}

ENTRY %main (p: f32[8]) -> f32[16] {
  %p = f32[8]{0} parameter(0)
  %native = (f32[8]{0}, f32[16]{0}) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}
  %native-done = f32[16]{0} all-gather-done(%native)
  %generic = ((f32[8]{0}), f32[4]{0}, u32[]) async-start(%p), calls=%wrapped
  %generic-update = ((f32[8]{0}), f32[4]{0}, u32[]) async-update(%generic)
  %generic-done = f32[4]{0} async-done(%generic-update)
  %sugar = ((f32[8]{0}), f32[4]{0}, u32[]) reduce-scatter-start(%p), replica_groups={{0,1}}, dimensions={0}, to_apply=%sum
  %sugar-done = f32[4]{0} reduce-scatter-done(%sugar)
  %copied = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%p)
  %copied-done = f32[8]{0} copy-done(%copied)
  %ready = token[] after-all()
  %recv = (f32[4]{0}, u32[], token[]) recv(%ready), channel_id=2
  %recv-done = (f32[4]{0}, token[]) recv-done(%recv), channel_id=2
  ROOT %sync = f32[16]{0} all-gather(%p), replica_groups={{0,1}}, dimensions={0}
}
"""


@pytest.fixture(scope="module")
def named() -> dict[str, Instruction]:
    module = hlo_passes.parse(MODULE)
    return {i.name: i for c in module.computations for i in c.instructions}


@pytest.mark.parametrize(
    ("name", "role", "work", "collective"),
    [
        ("native", "start", "all-gather", True),
        ("native-done", "done", "all-gather", True),
        ("generic", "start", "reduce-scatter", True),
        ("generic-update", "update", "reduce-scatter", True),
        ("generic-done", "done", "reduce-scatter", True),
        ("sugar", "start", "reduce-scatter", True),
        ("sugar-done", "done", "reduce-scatter", True),
        ("copied", "start", "copy", False),
        ("copied-done", "done", "copy", False),
        ("recv", "start", "recv", False),
        ("recv-done", "done", "recv", False),
        ("send", "start", "send", False),
        ("send-done", "done", "send", False),
        ("sync", "", "all-gather", True),
        ("p", "", "parameter", False),
    ],
)
def test_what_a_half_is(
    named: dict[str, Instruction], name: str, role: str, work: str, collective: bool
) -> None:
    instruction = named[name]
    assert half(instruction) == role
    assert work_of(instruction) == work
    assert is_collective(instruction) == collective
    assert is_transfer(instruction) == (work in ("send", "recv"))


@pytest.mark.parametrize("name", ["native", "generic", "sugar", "copied", "recv"])
def test_starts_and_dones_find_each_other(
    named: dict[str, Instruction], name: str
) -> None:
    start, done = named[name], named[f"{name}-done"]
    assert done_of(start) is done
    assert start_of(done) is start
    assert start_of(start) is start
    assert is_pair(start, done)
    assert not is_pair(done, start)


def test_only_halves_of_the_same_work_are_a_pair(named: dict[str, Instruction]) -> None:
    assert is_pair(named["generic"], named["sugar-done"])
    assert not is_pair(named["native"], named["sugar-done"])
    assert not is_pair(named["sync"], named["native-done"])


def test_a_transfer_through_a_loop_has_no_partner_in_sight(
    named: dict[str, Instruction],
) -> None:
    assert done_of(named["send"]) is None
    assert start_of(named["send-done"]) is named["send-done"]


def test_what_a_generic_half_wraps(named: dict[str, Instruction]) -> None:
    for name in ("generic", "generic-update", "generic-done"):
        computation = wrapped_computation(named[name])
        assert computation is not None
        assert computation.name == "wrapped"
        assert wrapped_instruction(named[name]) is named["scattered"]
    for name in ("sugar", "sugar-done"):  # what it names is an adder
        assert wrapped_computation(named[name]) is None
        assert wrapped_instruction(named[name]) is named["sugar"]
    generic = {name for name, instruction in named.items() if is_generic(instruction)}
    assert generic == {"generic", "generic-done", "sugar", "sugar-done"}
