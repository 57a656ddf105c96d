"""Tables, placing, querying and hazards on small modules; laws on random orders."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.scheduler.memory.pressure import (
    ComputationMemory,
    ModuleMemory,
    PressureState,
)
from tests.scheduler.memory.programs import random_program

DOUBLE = """HloModule m, is_scheduled=true

ENTRY %e (p: f32[256], q: f32[256]) -> (f32[256]) {
  %p = f32[256]{0} parameter(0)
  %q = f32[256]{0} parameter(1)
  %x = f32[256]{0} add(%p, %q)
  %xx = f32[256]{0} add(%x, %x)
  ROOT %r = (f32[256]{0}) tuple(%xx)
}
"""
KIB = 1024


def _entry(text: str) -> ComputationMemory:
    module = hlo_passes.parse(text)
    return ModuleMemory(module).of(module.entry)


def _named(computation: Computation, name: str) -> Instruction:
    found = computation.find(name)
    assert found is not None
    return found


def test_a_query_sums_repeated_operands_and_placing_does_not() -> None:
    memory = _entry(DOUBLE)
    state = PressureState(memory)
    for name in ("r", "xx"):
        k = memory.index[_named(memory.computation, name)]
        if name == "xx":
            assert state.query(k) == (2 * KIB - KIB, 2 * KIB)
        state.place(k)
    assert state.usage_bytes == KIB  # xx ended, x once


def test_entry_parameters_and_the_result_table() -> None:
    memory = _entry(DOUBLE)
    x, r = (memory.index[_named(memory.computation, n)] for n in ("x", "r"))
    assert memory.allocs[x] == ()
    assert [memory.sizes_bytes[b] for b in memory.frees[r]] == [8]
    assert memory.peak_bytes() == 2 * KIB


def test_peak_of_another_order() -> None:
    text = """HloModule m, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %e (p: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %a = f32[256]{0} broadcast(%p), dimensions={}
  %b = f32[256]{0} broadcast(%p), dimensions={}
  %zero = f32[] constant(0)
  %x = f32[] reduce(%a, %zero), dimensions={0}, to_apply=%add
  %y = f32[] reduce(%b, %zero), dimensions={0}, to_apply=%add
  ROOT %r = f32[] add(%x, %y)
}
"""
    memory = _entry(text)
    assert memory.peak_bytes() == 2 * KIB + 8  # a, b, the zero and x
    apart = [_named(memory.computation, n) for n in "p zero a x b y r".split()]
    assert memory.peak_bytes(apart) == KIB + 12  # b, the zero, x and y


def test_callees_peak_counts_while_the_call_runs() -> None:
    text = """HloModule m, is_scheduled=true

%work (a: f32[256]) -> f32[] {
  %a = f32[256]{0} parameter(0)
  %big = f32[1024]{0} custom-call(%a), custom_call_target="f"
  ROOT %s = f32[] custom-call(%big), custom_call_target="g"
}

ENTRY %e (p: f32[256]) -> f32[] {
  %p = f32[256]{0} parameter(0)
  %x = f32[256]{0} negate(%p)
  %c = f32[] call(%x), to_apply=%work
  ROOT %r = f32[] negate(%c)
}
"""
    module = hlo_passes.parse(text)
    memory = ModuleMemory(module)
    work = module.computation("work")
    assert work is not None
    # Below the call its result lives; that ends inside, where big and a come to life.
    assert memory.of(work).initial_bytes == 4
    assert memory.stored_peak_bytes(work) == 5 * KIB - 4
    entry = memory.of(module.entry)
    call = entry.index[_named(module.entry, "c")]
    assert entry.inner_peak_bytes[call] == 5 * KIB - 4
    # The call ends what its callee makes.
    assert [entry.sizes_bytes[b] for b in entry.frees[call]] == [4]
    assert entry.peak_bytes() == 5 * KIB
    memory.rescheduled(work, 9 * KIB)
    assert memory.of(module.entry).peak_bytes() == 4 + 9 * KIB
    assert memory.module_peak_bytes == 9 * KIB


def test_each_instruction_is_placed_once_for_the_peak() -> None:
    """The root needs `y`, when `a` is not yet live; both are never live at once."""
    module = hlo_passes.parse("""HloModule m, is_scheduled=true

%work (a: f32[1024]) -> f32[] {
  %a = f32[1024]{0} parameter(0)
  %x = f32[256]{0} custom-call(%a), custom_call_target="f"
  %y = f32[1024]{0} custom-call(%x), custom_call_target="g"
  ROOT %s = f32[] custom-call(%y), custom_call_target="h"
}

ENTRY %e (p: f32[1024]) -> f32[] {
  %p = f32[1024]{0} parameter(0)
  %n = f32[1024]{0} negate(%p)
  %c = f32[] call(%n), to_apply=%work
  ROOT %r = f32[] negate(%c)
}
""")
    work = module.computation("work")
    assert work is not None
    memory = ModuleMemory(module)
    tables = memory.of(work)
    peak = tables.peak_delta_bytes()
    assert peak == tables.peak_delta_bytes(work.instructions) == 5 * KIB - 4
    assert peak == memory.stored_peak_bytes(work)


def test_what_the_entry_never_reaches_is_untracked() -> None:
    text = DOUBLE.replace(
        "ENTRY",
        "%dead (a: f32[4]) -> f32[4] {\n"
        "  %a = f32[4]{0} parameter(0)\n"
        "  ROOT %n = f32[4]{0} negate(%a)\n}\n\nENTRY",
    )
    module = hlo_passes.parse(text)
    dead = module.computation("dead")
    assert dead is not None
    memory = ModuleMemory(module)
    tables = memory.of(dead)
    assert not tables.is_tracked
    assert (tables.peak_bytes(), tables.allocs) == (0, [(), ()])
    assert dead not in memory.computations


def test_host_memory_never_counts() -> None:
    text = DOUBLE.replace("%x = f32[256]{0}", "%x = f32[256]{0:S(5)}")
    assert _entry(text).peak_bytes() == KIB


HAZARD = """HloModule m, is_scheduled=true

%body (s: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %s = (f32[8]{0}, f32[8]{0}) parameter(0)
  %g0 = f32[8]{0} get-tuple-element(%s), index=0
  %bc = f32[8]{0} bitcast(%g0)
  %c1 = (f32[8]{0}, f32[8]{0}) collective-permute-start(%g0), source_target_pairs={{0,1}}
  %d1 = f32[8]{0} collective-permute-done(%c1)
  %a = f32[8]{0} add(%d1, %bc)
  %n = f32[8]{0} negate(%a)
  %c2 = (f32[8]{0}, f32[8]{0}) collective-permute-start(%d1), source_target_pairs={{0,1}}
  %d2 = f32[8]{0} collective-permute-done(%c2)
  ROOT %root = (f32[8]{0}, f32[8]{0}) tuple(%d2, %n)
}

%cond (t: (f32[8], f32[8])) -> pred[] {
  %t = (f32[8]{0}, f32[8]{0}) parameter(0)
  ROOT %no = pred[] constant(false)
}

ENTRY %e (p: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %p = (f32[8]{0}, f32[8]{0}) parameter(0)
  ROOT %w = (f32[8]{0}, f32[8]{0}) while(%p), condition=%cond, body=%body
}
"""


def test_alias_hazards_of_a_loop() -> None:
    module = hlo_passes.parse(HAZARD)
    memory = ModuleMemory(module)
    body = module.computation("body")
    assert body is not None

    def uses(name: str) -> list[tuple[str, int]]:
        found = memory.alias_hazards().uses(_named(body, name))
        return [(user.name, operand) for user, operand in found]

    # d2 is what the loop carries on: it lies where g0 lies. What the body makes comes
    # before what it is given. Taking g0 out of the state reads nothing of it; a root
    # uses all that it holds.
    made = [("d2", 0), ("root", 0)]
    given = [("bc", 0), ("c1", 0), ("a", 1), ("d1", 0)]
    assert uses("d2") == made + given
    # Nothing but the pair's own result lies where d1 lies.
    assert uses("d1") == [("d1", 0), ("a", 0), ("c2", 0), ("d2", 0)]


def test_replayed_orders_and_top_down() -> None:
    module = hlo_passes.parse(DOUBLE)
    memory = ModuleMemory(module)
    entry = module.entry
    order = [_named(entry, n) for n in "q p x xx r".split()]
    again = memory.replayed({entry: order})
    assert again.buffers is memory.buffers
    assert again.of(entry).order == tuple(order)
    assert again.of(entry).peak_bytes() == 2 * KIB
    down = ModuleMemory(module, top_down=True).of(entry)
    x, xx = (down.index[_named(entry, n)] for n in ("x", "xx"))
    assert [down.sizes_bytes[b] for b in down.allocs[x]] == [KIB]
    # Both operands of xx are x's last use.
    assert [down.sizes_bytes[b] for b in down.frees[xx]] == [KIB, KIB]


# -- laws --------------------------------------------------------------------


def _random_order(memory: ComputationMemory, draw: random.Random) -> list[Instruction]:
    """Some legal order."""
    waiting = {
        i: len(set(i.operands)) + len(i.control_predecessors) for i in memory.order
    }
    ready = [i for i, count in waiting.items() if not count]
    order = []
    while ready:
        i = ready.pop(draw.randrange(len(ready)))
        order.append(i)
        for user in (*i.users, *i.control_successors):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return order


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30))
def test_laws_of_any_legal_order(seed: int) -> None:
    draw = random.Random(seed)
    memory = ModuleMemory(hlo_passes.parse(random_program(draw)))
    for computation in memory.computations:
        c = memory.of(computation)
        ends = []
        for _ in range(3):
            state = PressureState(c)
            for i in reversed(_random_order(c, draw)):
                k = c.index[i]
                increase, peak = state.query(k)
                before = state.usage_bytes
                state.place(k)
                assert state.usage_bytes >= 0
                assert state.peak_delta_bytes >= state.delta_bytes
                if len({*c.allocs[k]}) == len(c.allocs[k]) and not (
                    {*c.allocs[k]} & {*c.frees[k]}
                    or len({*c.frees[k]}) < len(c.frees[k])
                ):
                    assert state.usage_bytes - before == increase
                    assert peak >= c.inner_peak_bytes[k]
            # What lives above a computation does not depend on its order.
            ends.append((state.live, state.delta_bytes))
        assert ends[0] == ends[1] == ends[2]
        if computation.is_entry:
            assert ends[0] == (set(), 0)
