"""The replay of computations with several callers: as call by call, but once each."""

from __future__ import annotations

import random

import hlo_passes
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.pressure import ModuleMemory


def _random_module(draw: random.Random) -> Module:
    """Computations that call earlier ones: in loops, branches and calls."""
    parts = [
        "%go (q: f32[8]) -> pred[] {\n  %q = f32[8] parameter(0)\n"
        "  ROOT %b = pred[] constant(true)\n}\n"
    ]
    names: list[str] = []
    for c in range(draw.randint(2, 6)):
        lines = [f"%p{c} = f32[8] parameter(0)"]
        values = [f"%p{c}"]
        for k in range(draw.randint(1, 7)):
            name, (one, other) = f"%v{c}.{k}", draw.choices(values, k=2)
            kind = draw.choice(("add", "call", "call", "while", "conditional"))
            callee, callee2 = draw.choices(names or [""], k=2)
            if kind == "add" or not names:
                right = f"add({one}, {other})"
            elif kind == "call":
                right = f"call({one}), to_apply={callee}"
            elif kind == "while":
                right = f"while({one}), condition=%go, body={callee}"
            else:
                lines.append(f"{name}.b = pred[] constant(true)")
                right = (
                    f"conditional({name}.b, {one}, {other}), "
                    f"true_computation={callee}, false_computation={callee2}"
                )
            lines.append(f"{name} = f32[8] {right}")
            values.append(name)
        lines[-1] = f"ROOT {lines[-1]}"
        body = "\n".join(f"  {line}" for line in lines)
        parts.append(f"%c{c} (p: f32[8]) -> f32[8] {{\n{body}\n}}\n")
        names.append(f"%c{c}")
    parts[-1] = f"ENTRY {parts[-1]}"
    return hlo_passes.parse("HloModule m, is_scheduled=true\n\n" + "\n".join(parts))


def _call_by_call(memory: ModuleMemory) -> dict[str, tuple[int, int, frozenset[int]]]:
    """(peak, bytes below, buffers below) of each computation, from its last replay.

    Of the buffers, those that the computation or a callee begins or ends.
    """
    found: dict[str, tuple[int, int, frozenset[int]]] = {}
    table, sizes = memory.table, memory.sizes_bytes
    callees = memory.buffers.flow.reached.callees

    def replay(computation: Computation, below: frozenset[int]) -> tuple[int, set[int]]:
        live, using, peak = set(below), 0, 0
        touched: set[int] = set()
        for n in reversed(memory.blocks[computation]):
            touched.update(table.allocs[n], table.frees[n])
            for callee in callees.get(n, ()):
                inner, its = replay(callee, frozenset(live))
                peak = max(peak, using + inner)
                touched |= its
            for b in table.allocs[n]:
                using += 0 if b in live else sizes[b]
                live.add(b)
            peak = max(peak, using)
            for b in table.frees[n]:
                using -= sizes[b] if b in live else 0
                live.discard(b)
        found[computation.name] = (peak, sum(sizes[b] for b in below), below & touched)
        return peak, touched

    replay(memory.module.entry, frozenset())
    return found


def test_it_keeps_what_the_last_call_of_each_path_gives() -> None:
    for seed in range(150):
        memory = ModuleMemory(_random_module(random.Random(seed)))
        expected = _call_by_call(memory)
        for computation in memory.computations:
            own = memory.of(computation)
            peak = memory.stored_peak_bytes(computation)
            assert (peak, own.initial_bytes, own.initial_live) == expected[
                computation.name
            ], seed


def test_nested_calls_are_replayed_once_for_each_level() -> None:
    # Call by call, these are 2**200 replays.
    levels = [
        f"%c{k} (p: f32[8]) -> f32[8] {{\n  %p{k} = f32[8] parameter(0)\n"
        f"  %q{k} = f32[8] call(%p{k}), to_apply=%c{k - 1}\n"
        f"  ROOT %r{k} = f32[8] call(%q{k}), to_apply=%c{k - 1}\n}}\n"
        for k in range(1, 201)
    ]
    first = (
        "%c0 (p: f32[8]) -> f32[8] {\n  %p0 = f32[8] parameter(0)\n"
        "  ROOT %r0 = f32[8] negate(%p0)\n}\n"
    )
    levels[-1] = f"ENTRY {levels[-1]}"
    text = "\n".join(("HloModule m, is_scheduled=true\n", first, *levels))
    assert len(ModuleMemory(hlo_passes.parse(text)).computations) == 201
