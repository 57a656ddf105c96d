"""The checker's replay and the scheduler's own tables find one peak, in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from hlo_passes import parse
from hlo_passes.scheduler.checker.memory import peak_memory
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from tests.modules import CORPUS
from tests.scheduler.checker.scheduled_modules import module_to_schedule, random_order
from tests.scheduler.conformance.recordings import find_recordings
from tests.scheduler.memory.programs import random_program


@given(draw=st.randoms(use_true_random=False))
def test_two_independent_replays_agree(draw: random.Random) -> None:
    module = module_to_schedule(draw, devices=4)
    bodies = {i.opcode: i for i in module.entry.instructions}
    computations = [module.entry]
    if "while" in bodies:
        computations += bodies["while"].called_computations
    for computation in computations:
        computation.set_order(random_order(draw, computation))
    note(module.to_text())
    assert peak_memory(module).size_bytes == ModuleMemory(module).module_peak_bytes


@given(draw=st.randoms(use_true_random=False))
def test_they_agree_on_loops_branches_and_calls(draw: random.Random) -> None:
    text = random_program(draw)
    note(text)
    module = parse(text)
    assert peak_memory(module).size_bytes == ModuleMemory(module).module_peak_bytes


@pytest.mark.parametrize(
    ("name", "size_bytes"), [("in_place", 40), ("in_conditional", 64)]
)
def test_handwritten_modules_as_xla_counts(name: str, size_bytes: int) -> None:
    """An in-place permute writes into operand 1; a result is made by one branch."""
    text = (CORPUS / "handwritten" / f"{name}.hlo").read_text()
    module = parse(text)
    assert peak_memory(module).size_bytes == size_bytes
    assert ModuleMemory(module).stored_peak_bytes(module.entry) == size_bytes


_PERMUTED = """
%permuted (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  ROOT %r = f32[8] collective-permute(%a), source_target_pairs={{0,1}}
}
"""
#: What a body is given dies at its last reader, and is there for callees until then:
#: 24 for the start's tables, 32 each for what comes and what goes.
_LOOP = (
    _PERMUTED
    + """
%body (s: (f32[8])) -> (f32[8]) {
  %s = (f32[8]) parameter(0)
  %e = f32[8] get-tuple-element(%s), index=0
  %begin = ((f32[8]), f32[8]) async-start(%e), calls=%permuted
  %end = f32[8] async-done(%begin)
  %c = f32[8] copy(%end)
  ROOT %t = (f32[8]) tuple(%c)
}
%cond (u: (f32[8])) -> pred[] {
  %u = (f32[8]) parameter(0)
  ROOT %more = pred[] constant(true)
}
ENTRY %main (p: f32[8]) -> (f32[8]) {
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  %i = (f32[8]) tuple(%n)
  ROOT %w = (f32[8]) while(%i), condition=%cond, body=%body
}
"""
)
#: The argument is one buffer on both levels: 32, and 288 where the slice is made.
_NESTED = """
%inner (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %wide = f32[64] concatenate(%a, %a, %a, %a, %a, %a, %a, %a), dimensions={0}
  %narrow = f32[8] slice(%wide), slice={[0:8]}
  ROOT %r = f32[8] add(%narrow, %a)
}
%outer (b: f32[8]) -> f32[8] {
  %b = f32[8] parameter(0)
  %c = f32[8] call(%b), to_apply=%inner
  ROOT %d = f32[8] add(%b, %c)
}
ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  %o = f32[8] call(%n), to_apply=%outer
  ROOT %r.1 = f32[8] negate(%o)
}
"""
#: A wrapped all-reduce writes where it reads: 32 once, 24 for tables.
_IN_PLACE = (
    _PERMUTED
    + """
ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  %begin = ((f32[8]), f32[8]) async-start(%n), calls=%permuted,
    output_to_operand_aliasing={{1}: (0, {})}
  ROOT %end = f32[8] async-done(%begin)
}
"""
)
#: What is called here adds, it is not what is wrapped: 32 and 16 for arrays, 24 for
#: tables, and the 8 that an addition reads.
_SUGAR = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
ENTRY %main (p: f32[8]) -> f32[4] {
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  %begin = ((f32[8]), f32[4]) reduce-scatter-start(%n), replica_groups={{0,1}},
    dimensions={0}, to_apply=%add
  ROOT %end = f32[4] reduce-scatter-done(%begin)
}
"""
#: The wrapped root's table is not yet made where the start's own is there already:
#: 40 for the start's tables, 64 for the results, 256 inside.
_TABLES = """
%pair (a: f32[8]) -> (f32[8], f32[8]) {
  %a = f32[8] parameter(0)
  %wide = f32[64] concatenate(%a, %a, %a, %a, %a, %a, %a, %a), dimensions={0}
  %one = f32[8] slice(%wide), slice={[0:8]}
  %two = f32[8] slice(%wide), slice={[8:16]}
  ROOT %both = (f32[8], f32[8]) tuple(%one, %two)
}
ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %begin = ((f32[8]), (f32[8], f32[8])) async-start(%p), calls=%pair
  %end = (f32[8], f32[8]) async-done(%begin)
  ROOT %first = f32[8] get-tuple-element(%end), index=0
}
"""
#: Each step has 24 bytes of pointers: those of two steps are side by side.
_STEPS = (
    _PERMUTED
    + """
ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  %begin = ((f32[8]), f32[8]) async-start(%n), calls=%permuted
  %step = ((f32[8]), f32[8]) async-update(%begin)
  ROOT %end = f32[8] async-done(%step)
}
"""
)
#: The second operand comes late (jax 0.12): arrays 3 x 32, tables 24 and 32.
_LATE = """
%sum (a: f32[8], b: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  ROOT %s = f32[8] add(%a, %b)
}

ENTRY %main (p: f32[8], q: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %q = f32[8] parameter(1)
  %x = f32[8] negate(%p)
  %begin = ((f32[8]), f32[8]) async-start(%x), calls=%sum
  %y = f32[8] negate(%q)
  %step = ((f32[8], f32[8]), f32[8]) async-update(%begin, %y), calls=%sum
  ROOT %end = f32[8] async-done(%step), calls=%sum
}
"""
#: What host code makes lies in the host's memory.
_HOST = """
%work (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %m = f32[8] sine(%a)
  ROOT %g = f32[8] cosine(%m)
}, execution_thread="host"

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  %begin = ((f32[8]), f32[8]) async-start(%p), async_execution_thread="host",
    calls=%work
  ROOT %end = f32[8] async-done(%begin)
}
"""


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        pytest.param(_LOOP, 88, id="loop"),
        pytest.param(_NESTED, 320, id="nested"),
        pytest.param(_IN_PLACE, 56, id="in place"),
        pytest.param(_SUGAR, 80, id="sugar"),
        pytest.param(_TABLES, 360, id="tables"),
        pytest.param(_STEPS, 112, id="steps"),
        pytest.param(_LATE, 152, id="late"),
        pytest.param(_HOST, 56, id="host"),
    ],
)
def test_asynchronous_work_as_xla_counts(text: str, size_bytes: int) -> None:
    module = parse(f"HloModule m, is_scheduled=true\n{text}")
    assert peak_memory(module).size_bytes == size_bytes
    assert ModuleMemory(module).stored_peak_bytes(module.entry) == size_bytes


def test_recorded_schedules_as_xla_counts() -> None:
    recordings = list(find_recordings(CORPUS / "golden"))
    assert recordings
    for recording in recordings:
        for text in (recording.before, recording.after):
            module = parse(text)
            expected = ModuleMemory(module).stored_peak_bytes(module.entry)
            assert peak_memory(module).size_bytes == expected, recording.name


def test_donated_parameter_is_there_before_its_line() -> None:
    """XLA counts what it meets before the parameter."""
    module = parse(
        """HloModule m, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }

ENTRY %main {
  %p = f32[8] parameter(0)
  %n = f32[8] negate(%p)
  %q = f32[8] parameter(1)
  ROOT %t = (f32[8]) tuple(%n)
}
"""
    )
    assert peak_memory(module).size_bytes == 0
    assert ModuleMemory(module).stored_peak_bytes(module.entry) == 32


_FUNCTION = """
%f (a: f32[8]) -> f32[8] {
  %a = f32[8] parameter(0)
  %m = f32[8] sine(%a)
  ROOT %r = f32[8] cosine(%m)
}
"""


@pytest.mark.parametrize(("second", "size_bytes"), [("f", 96), ("g", 64)])
def test_function_of_several_callers_has_memory_of_its_own(
    second: str, size_bytes: int
) -> None:
    """At least what a copy of the function for each call would need."""
    module = parse(
        "HloModule m, is_scheduled=true\n"
        + _FUNCTION
        + _FUNCTION.replace("%f", "%g")
        + f"""
ENTRY %main {{
  %p = f32[8] parameter(0)
  %x = f32[8] negate(%p)
  %y = f32[8] call(%x), to_apply=%f
  %z = f32[8] call(%y), to_apply=%{second}
  ROOT %w = f32[8] negate(%z)
}}
"""
    )
    assert peak_memory(module).size_bytes == size_bytes


def test_a_result_that_nobody_takes_is_in_use_where_it_is_read() -> None:
    """The second branch makes it again: there it counts inside the call that reads it."""
    module = parse("""HloModule m, is_scheduled=true

%made (x: f32[1024]) -> f32[1024] {
  %x = f32[1024] parameter(0)
  ROOT %r = f32[1024] negate(%x)
}

%read (y: f32[1024]) -> f32[1024] {
  %y = f32[1024] parameter(0)
  %m = f32[1024] cosine(%y)
  %k = f32[2048] concatenate(%m, %m), dimensions={0}
  %l = f32[2048] negate(%k)
  ROOT %same = f32[1024] bitcast(%m)
}

%first (a: f32[1024]) -> f32[1024] {
  %a = f32[1024] parameter(0)
  ROOT %c = f32[1024] call(%a), to_apply=%made
}

%second (b: f32[1024]) -> f32[1024] {
  %b = f32[1024] parameter(0)
  ROOT %d = f32[1024] call(%b), to_apply=%read
}

ENTRY %main {
  %p = f32[1024] parameter(0)
  %w = pred[] parameter(1)
  %n = f32[1024] negate(%p)
  %unused = f32[1024] conditional(%w, %n, %n), true_computation=%first, false_computation=%second
  ROOT %e = f32[1024] exponential(%n)
}
""")
    assert peak_memory(module).size_bytes == 16384
    assert ModuleMemory(module).module_peak_bytes == 16384


@pytest.mark.parametrize(("size", "expected"), [("8", 32), ("<=8", 36)])
def test_a_dynamic_dimension_has_its_size_beside_the_elements(
    size: str, expected: int
) -> None:
    """XLA keeps four bytes for each dimension of an array that has a dynamic one."""
    module = parse(f"""HloModule m, is_scheduled=true

ENTRY %main {{
  %p = f32[{size}] parameter(0)
  %n = f32[{size}] negate(%p)
  ROOT %r = f32[{size}] cosine(%n)
}}
""")
    assert peak_memory(module).size_bytes == expected
    assert ModuleMemory(module).module_peak_bytes == expected
