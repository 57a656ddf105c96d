"""`runtime.load` against the evaluator: every bit, with and without a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlo_passes import runtime
from hlo_passes.errors import UnsupportedHloError, UsageError
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.devices import DeviceCountError, topology_of
from hlo_passes.runtime.gpu_aot import emulated_devices
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.text.reader import parse
from tests.runtime.evaluator import DTYPES, Evaluator
from tests.runtime.random_modules import random_module


def check(text: str) -> None:
    module = parse(text)
    executable = runtime.load(module)
    replicas, partitions = topology_of(module)
    inputs = seeded_inputs(
        plain_module(module), module, device_count=replicas * partitions, seed=1
    )
    ours = executable(*inputs)
    theirs = Evaluator(module, replicas, partitions).run(inputs)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(
            one.astype(np.complex128) if one.dtype.kind == "c" else one.astype(float),
            other.astype(np.complex128)
            if one.dtype.kind == "c"
            else other.astype(float),
        )


ADD = """
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}
"""

COUNTING = """
%below (s: (s32[], f32[4], f32[4])) -> pred[] {
  %s = (s32[], f32[4], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %limit = s32[] constant(3)
  ROOT %more = pred[] compare(%n, %limit), direction=LT
}
"""

CASES = {
    "update, old value read later": """
ENTRY %e (a: f32[8], u: f32[2]) -> (f32[8], f32[8], f32[8]) {
  %a = f32[8] parameter(0)
  %u = f32[2] parameter(1)
  %at = s32[] constant(3)
  %n = f32[8] negate(%a)
  %d = f32[8] dynamic-update-slice(%n, %u, %at)
  %s = f32[8] add(%n, %d)
  ROOT %t = (f32[8], f32[8], f32[8]) tuple(%n, %d, %s)
}""",
    "update of a parameter, parameter as result": """
ENTRY %e (a: f32[8], u: f32[2]) -> (f32[8], f32[8]) {
  %a = f32[8] parameter(0)
  %u = f32[2] parameter(1)
  %at = s32[] constant(0)
  %d = f32[8] dynamic-update-slice(%a, %u, %at)
  ROOT %t = (f32[8], f32[8]) tuple(%a, %d)
}""",
    "update of a constant twice": """
ENTRY %e (u: f32[2]) -> (f32[4], f32[4], f32[4]) {
  %u = f32[2] parameter(0)
  %c = f32[4] constant({1, 2, 3, 4})
  %zero = s32[] constant(0)
  %two = s32[] constant(2)
  %d = f32[4] dynamic-update-slice(%c, %u, %zero)
  %f = f32[4] dynamic-update-slice(%c, %u, %two)
  ROOT %t = (f32[4], f32[4], f32[4]) tuple(%d, %f, %c)
}""",
    "repeated and constant results": """
ENTRY %e (a: f32[3]) -> (f32[3], f32[3], f32[3], f32[3], (f32[3], s32[])) {
  %a = f32[3] parameter(0)
  %c = f32[3] constant({1, 2, 3})
  %k = s32[] constant(7)
  %n = f32[3] negate(%a)
  %p = (f32[3], s32[]) tuple(%n, %k)
  ROOT %t = (f32[3], f32[3], f32[3], f32[3], (f32[3], s32[])) tuple(%c, %n, %c, %a, %p)
}""",
    "swap in a loop": COUNTING
    + """
%swap (s: (s32[], f32[4], f32[4])) -> (s32[], f32[4], f32[4]) {
  %s = (s32[], f32[4], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %a = f32[4] get-tuple-element(%s), index=1
  %b = f32[4] get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %m = s32[] add(%n, %one)
  ROOT %t = (s32[], f32[4], f32[4]) tuple(%m, %b, %a)
}

ENTRY %e (a: f32[4], b: f32[4]) -> (s32[], f32[4], f32[4]) {
  %a = f32[4] parameter(0)
  %b = f32[4] parameter(1)
  %zero = s32[] constant(0)
  %s = (s32[], f32[4], f32[4]) tuple(%zero, %a, %b)
  ROOT %w = (s32[], f32[4], f32[4]) while(%s), condition=%below, body=%swap
}""",
    "update in a loop, start value read later": COUNTING
    + """
%step (s: (s32[], f32[4], f32[4])) -> (s32[], f32[4], f32[4]) {
  %s = (s32[], f32[4], f32[4]) parameter(0)
  %n = s32[] get-tuple-element(%s), index=0
  %a = f32[4] get-tuple-element(%s), index=1
  %b = f32[4] get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %m = s32[] add(%n, %one)
  %part = f32[1] dynamic-slice(%b, %n), dynamic_slice_sizes={1}
  %d = f32[4] dynamic-update-slice(%a, %part, %m)
  %r = f32[4] add(%a, %d)
  ROOT %t = (s32[], f32[4], f32[4]) tuple(%m, %d, %r)
}

ENTRY %e (a: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %a = f32[4] parameter(0)
  %zero = s32[] constant(0)
  %s = (s32[], f32[4], f32[4]) tuple(%zero, %a, %a)
  %w = (s32[], f32[4], f32[4]) while(%s), condition=%below, body=%step
  %x = f32[4] get-tuple-element(%w), index=1
  %y = f32[4] get-tuple-element(%w), index=2
  ROOT %t = (f32[4], f32[4], f32[4]) tuple(%x, %y, %a)
}""",
    "branches of a conditional share and update": """
%left (s: (f32[4], f32[4])) -> (f32[4], f32[4]) {
  %s = (f32[4], f32[4]) parameter(0)
  %a = f32[4] get-tuple-element(%s), index=0
  ROOT %t = (f32[4], f32[4]) tuple(%a, %a)
}

%right (s: (f32[4], f32[4])) -> (f32[4], f32[4]) {
  %s = (f32[4], f32[4]) parameter(0)
  %a = f32[4] get-tuple-element(%s), index=0
  %b = f32[4] get-tuple-element(%s), index=1
  %part = f32[2] constant({5, 6})
  %at = s32[] constant(1)
  %d = f32[4] dynamic-update-slice(%b, %part, %at)
  ROOT %t = (f32[4], f32[4]) tuple(%d, %b)
}

ENTRY %e (a: f32[4], b: f32[4]) -> ((f32[4], f32[4]), f32[4], f32[4]) {
  %a = f32[4] parameter(0)
  %b = f32[4] parameter(1)
  %id = u32[] replica-id()
  %zero = u32[] constant(0)
  %is_first = pred[] compare(%id, %zero), direction=EQ
  %s = (f32[4], f32[4]) tuple(%a, %b)
  %c = (f32[4], f32[4]) conditional(%is_first, %s, %s), true_computation=%left, false_computation=%right
  ROOT %t = ((f32[4], f32[4]), f32[4], f32[4]) tuple(%c, %a, %b)
}""",
    "nested tuples in and out": """
ENTRY %e (p: ((f32[2], s32[]), (f32[3]))) -> ((f32[3], (s32[])), f32[2]) {
  %p = ((f32[2], s32[]), (f32[3])) parameter(0)
  %l = (f32[2], s32[]) get-tuple-element(%p), index=0
  %r = (f32[3]) get-tuple-element(%p), index=1
  %a = f32[2] get-tuple-element(%l), index=0
  %k = s32[] get-tuple-element(%l), index=1
  %b = f32[3] get-tuple-element(%r), index=0
  %in = (s32[]) tuple(%k)
  %o = (f32[3], (s32[])) tuple(%b, %in)
  ROOT %t = ((f32[3], (s32[])), f32[2]) tuple(%o, %a)
}""",
    "a call made twice": """
%twice (x: f32[4]) -> (f32[4], f32[4]) {
  %x = f32[4] parameter(0)
  %s = f32[4] add(%x, %x)
  ROOT %t = (f32[4], f32[4]) tuple(%s, %x)
}

ENTRY %e (a: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %a = f32[4] parameter(0)
  %c = (f32[4], f32[4]) call(%a), to_apply=%twice
  %x = f32[4] get-tuple-element(%c), index=0
  %d = (f32[4], f32[4]) call(%x), to_apply=%twice
  %y = f32[4] get-tuple-element(%d), index=0
  %z = f32[4] get-tuple-element(%d), index=1
  ROOT %t = (f32[4], f32[4], f32[4]) tuple(%y, %z, %a)
}""",
    "an operand updated between start and done": ADD
    + """
ENTRY %e (a: f32[4]) -> (f32[4], f32[4]) {
  %a = f32[4] parameter(0)
  %n = f32[4] negate(%a)
  %s = f32[4] all-reduce-start(%n), replica_groups={{0,1}}, to_apply=%add
  %part = f32[2] constant({5, 6})
  %at = s32[] constant(1)
  %d = f32[4] dynamic-update-slice(%n, %part, %at)
  %r = f32[4] all-reduce-done(%s)
  ROOT %t = (f32[4], f32[4]) tuple(%r, %d)
}""",
    "a permute into a loop that turns its array": """
%body (p: (s32[], s32[2,3], s32[2,3])) -> (s32[], s32[2,3], s32[2,3]) {
  %p = (s32[], s32[2,3], s32[2,3]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = s32[2,3] get-tuple-element(%p), index=2
  %across = s32[3,2] transpose(%x), dimensions={1,0}
  %sent = s32[3,2] collective-permute(%across), source_target_pairs={{0,1},{1,0}}
  %back = s32[2,3] transpose(%sent), dimensions={1,0}
  %one = s32[] constant(1)
  %n = s32[] add(%i, %one)
  ROOT %r = (s32[], s32[2,3], s32[2,3]) tuple(%n, %x, %back)
}

%less (q: (s32[], s32[2,3], s32[2,3])) -> pred[] {
  %q = (s32[], s32[2,3], s32[2,3]) parameter(0)
  %c = s32[] get-tuple-element(%q), index=0
  %two = s32[] constant(2)
  ROOT %l = pred[] compare(%c, %two), direction=LT
}

ENTRY %e (a: s32[2,3]) -> s32[2,3] {
  %a = s32[2,3] parameter(0)
  %came = s32[2,3] collective-permute(%a), source_target_pairs={{0,1},{1,0}}
  %zero = s32[] constant(0)
  %t = (s32[], s32[2,3], s32[2,3]) tuple(%zero, %came, %came)
  %w = (s32[], s32[2,3], s32[2,3]) while(%t), condition=%less, body=%body
  ROOT %z = s32[2,3] get-tuple-element(%w), index=2
}""",
    "an input fusion": ADD
    + """
%fused (x: f32[2,4]) -> f32[2] {
  %x = f32[2,4] parameter(0)
  %n = f32[2,4] negate(%x)
  %zero = f32[] constant(0)
  ROOT %r = f32[2] reduce(%n, %zero), dimensions={1}, to_apply=%add
}

ENTRY %e (a: f32[2,4]) -> f32[2] {
  %a = f32[2,4] parameter(0)
  ROOT %f = f32[2] fusion(%a), kind=kInput, calls=%fused
}""",
}


@pytest.mark.parametrize("scheduled", [False, True], ids=["unscheduled", "scheduled"])
@pytest.mark.parametrize("name", CASES)
def test_values_survive(name, scheduled, host_devices):
    host_devices(2)
    flag = ", is_scheduled=true" if scheduled else ""
    check(f"HloModule m{flag}, replica_count=2\n{CASES[name]}\n")


def _collectives(kind: str) -> str:
    """Everything that moves, on 2 replicas x 2 partitions, for one type."""
    return f"""HloModule m, replica_count=2, num_partitions=2

ENTRY %e (a: {kind}[4,6]) -> ({kind}[4,6], {kind}[4,12], {kind}[4,6], {kind}[4,6]) {{
  %a = {kind}[4,6] parameter(0)
  %p = {kind}[4,6] collective-permute(%a), source_target_pairs={{{{0,1}},{{1,0}}}}
  %g = {kind}[4,12] all-gather(%p), channel_id=1, replica_groups={{{{0,3}},{{1,2}}}}, dimensions={{1}}, use_global_device_ids=true
  %x = {kind}[4,6] all-to-all(%p), channel_id=2, replica_groups={{{{0,1}}}}, dimensions={{1}}
  ROOT %t = ({kind}[4,6], {kind}[4,12], {kind}[4,6], {kind}[4,6]) tuple(%p, %g, %x, %a)
}}
"""


@pytest.mark.parametrize("kind", DTYPES)
def test_every_type_moves(kind, host_devices):
    host_devices(4)
    check(_collectives(kind))


@pytest.mark.parametrize("reduction", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("kind", ["s8", "u16", "s32", "u64", "f32", "bf16", "f64"])
def test_reductions(kind, reduction, host_devices):
    host_devices(4)
    check(f"""HloModule m, num_partitions=4

%f (x: {kind}[], y: {kind}[]) -> {kind}[] {{
  %x = {kind}[] parameter(0)
  %y = {kind}[] parameter(1)
  ROOT %r = {kind}[] {reduction}(%x, %y)
}}

ENTRY %e (a: {kind}[4,8]) -> ({kind}[4,8], {kind}[4,4]) {{
  %a = {kind}[4,8] parameter(0)
  %r = {kind}[4,8] all-reduce(%a), channel_id=1, replica_groups={{{{0,2}},{{1,3}}}}, use_global_device_ids=true, to_apply=%f
  %s = {kind}[4,4] reduce-scatter(%a), channel_id=2, replica_groups={{{{0,1}},{{3,2}}}}, use_global_device_ids=true, dimensions={{1}}, to_apply=%f
  ROOT %t = ({kind}[4,8], {kind}[4,4]) tuple(%r, %s)
}}
""")


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_random_modules(seed):
    runtime.emulate(8)
    check(random_module(seed))


def test_more_devices_than_a_host_starts_are_refused():
    with pytest.raises(DeviceCountError, match=r"R002(.|\n)*at most 4096"):
        runtime.emulate(4097)
    with pytest.raises(UsageError, match="U026"):
        emulated_devices(Pricing(topology="999999x9999x9999"))


def test_schedule_is_kept(host_devices):
    host_devices(2)
    text = """HloModule m, is_scheduled=true, replica_count=2

ENTRY %e (a: f32[4]) -> (f32[4], f32[4], f32[4]) {
  %a = f32[4] parameter(0)
  %late = f32[4] negate(%a)
  %two = f32[4] collective-permute(%a), source_target_pairs={{0,1}}
  %early = f32[4] add(%a, %a)
  %one = f32[4] collective-permute(%a), source_target_pairs={{1,0}}
  ROOT %t = (f32[4], f32[4], f32[4]) tuple(%one, %two, %late)
}
"""
    module = parse(text)
    ran = parse(runtime.load(module).scheduled_text).entry
    positions = [
        i.opcode if "collective" in i.opcode else i.metadata.op_name
        for i in ran.instructions
        if i.opcode in ("fusion", "collective-permute", "negate")
    ]
    names = [i.name for i in ran.instructions if i.opcode == "collective-permute"]
    assert positions[0] == "hlo_passes#1"
    assert names == ["collective-permute_two", "collective-permute_one"]


REFUSED = {
    "collective-broadcast": "f32[4] collective-broadcast(%a), replica_groups={{0,1}}",
    "custom-call": 'f32[4] custom-call(%a), custom_call_target="who_knows"',
    "constant": "f32[40] constant({...})",
    "rng-get-and-update-state": "u64[1] rng-get-and-update-state(), delta=1",
}


@pytest.mark.parametrize("opcode", REFUSED)
def test_refused_by_name(opcode):
    module = parse(
        "HloModule m, replica_count=2\n\nENTRY %e (a: f32[4]) -> f32[4] {\n"
        f"  %a = f32[4] parameter(0)\n  ROOT %guilty = {REFUSED[opcode]}\n}}\n"
    )
    with pytest.raises(UnsupportedHloError) as caught:
        plain_module(module)
    assert f"%guilty ({opcode}) cannot run here" in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.line == 5


def test_four_operands_of_which_two_are_one_value(
    host_devices: Callable[[int], object],
) -> None:
    host_devices(2)
    pairs = "channel_id=1, source_target_pairs={{0,1},{1,0}}"
    text = f"""HloModule four, num_partitions=2

ENTRY %e (a: f32[4], b: f32[4]) -> (f32[4], f32[4], f32[4], f32[4]) {{
  %a = f32[4]{{0}} parameter(0)
  %b = f32[4]{{0}} parameter(1)
  %v = f32[4]{{0}} negate(%a)
  %x = f32[4]{{0}} negate(%b)
  ROOT %p = (f32[4]{{0}}, f32[4]{{0}}, f32[4]{{0}}, f32[4]{{0}}) \
collective-permute(%v, %x, %v, %x), {pairs}
}}
"""
    outputs = runtime.load(parse(text))(
        np.arange(8, dtype=np.float32).reshape(2, 4),
        np.arange(8, 16, dtype=np.float32).reshape(2, 4),
    )
    np.testing.assert_array_equal(outputs[0], [[-4, -5, -6, -7], [0, -1, -2, -3]])
    np.testing.assert_array_equal(outputs[2], outputs[0])
    np.testing.assert_array_equal(outputs[3], outputs[1])


def test_what_is_no_module_is_refused():
    text: Any = "HloModule m"
    with pytest.raises(TypeError, match="expected a module, not str"):
        runtime.load(text)
    with pytest.raises(TypeError, match="expected a module, not str"):
        runtime.compare(text, text)


SMALL_LOOP = """HloModule small

%body {
  %p = (s32[], f32[8,8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8,8] get-tuple-element(%p), index=1
  %square = f32[8,8] multiply(%x, %x)
  %y = f32[8,8] tanh(%square)
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  ROOT %r = (s32[], f32[8,8]) tuple(%next, %y)
}

%condition {
  %q = (s32[], f32[8,8]) parameter(0)
  %k = s32[] get-tuple-element(%q), index=0
  %limit = s32[] constant(1)
  ROOT %less = pred[] compare(%k, %limit), direction=LT
}

ENTRY %main {
  %v = f32[8,8] parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,8]) tuple(%zero, %v)
  %loop = (s32[], f32[8,8]) while(%start), condition=%condition, body=%body
  ROOT %result = f32[8,8] get-tuple-element(%loop), index=1
}
"""


@pytest.mark.parametrize("seed", range(8))
def test_a_small_loop_rounds_as_its_body_does(seed: int) -> None:
    # XLA makes one function of a small loop, in which a multiply-add rounds once.
    module = parse(SMALL_LOOP)
    unrolled = module.clone()
    assert Pipeline.parse("while-loop-unroller").run(unrolled).changed
    assert "while(" not in unrolled.to_text()
    assert runtime.compare(module, unrolled, seed=seed).bitwise_equal


@pytest.mark.parametrize(
    ("first", "bound", "step"), [(-5, 0, 2), (-3, -2, 2), (-7, 1, 3)]
)
def test_a_loop_from_below_zero_makes_all_its_iterations(
    first: int, bound: int, step: int
) -> None:
    text = SMALL_LOOP.replace("ROOT %result = f32[8,8]", "%array = f32[8,8]")
    text = text.replace("%one = s32[] constant(1)", f"%one = s32[] constant({step})")
    text = text.replace("%zero = s32[] constant(0)", f"%zero = s32[] constant({first})")
    text = text.replace(
        "%limit = s32[] constant(1)", f"%limit = s32[] constant({bound})"
    )
    text = text.replace(
        "%array = f32[8,8] get-tuple-element(%loop), index=1",
        "ROOT %count = s32[] get-tuple-element(%loop), index=0",
    )
    (count,) = runtime.load(parse(text))(np.ones((1, 8, 8), np.float32))
    assert count.tolist() == [list(range(first, bound, step))[-1] + step]
