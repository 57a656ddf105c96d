"""Tables and peaks against the plain reference, on random programs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from tests.scheduler.memory.programs import random_program
from tests.scheduler.memory.reference import Reference, classes, paths
from tests.spmd_modules import spmd_module


def _check(module: Module) -> None:
    reference = Reference(module)
    memory = ModuleMemory(module)
    _check_buffers(reference, memory)
    expected = reference.replay()
    _check_lists(reference, memory)
    _check_top_down(reference, module)
    for computation in memory.computations:
        c = memory.of(computation)
        initial, peak = expected[computation]
        assert c.initial_bytes == initial, computation.name
        assert memory.stored_peak_bytes(computation) == peak, computation.name
        # What a function needed at its last replay is stored; a caller that was
        # replayed before saw what it needed then.
        if all(len(reference.callers.get(b, ())) <= 1 for b in reference.bodies):
            assert c.peak_delta_bytes() == peak, computation.name
    assert set(memory.computations) == set(expected)
    assert memory.module_peak_bytes == max(p for _, p in expected.values())


def _check_buffers(reference: Reference, memory: ModuleMemory) -> None:
    """The same positions share memory."""
    flow = memory.buffers.flow
    ours = {(i, p): memory.buffers.at(flow.position(i, p)) for i, p in reference.values}
    assert classes(reference.at).keys() != {}
    by_reference = {frozenset(c) for c in classes(reference.at).values()}
    assert {frozenset(c) for c in classes(ours).values()} == by_reference


def _check_lists(reference: Reference, memory: ModuleMemory) -> None:
    """The same sizes become live and end, instruction by instruction."""
    for computation in memory.computations:
        c = memory.of(computation)
        for k, i in enumerate(c.order):
            assert [c.sizes_bytes[b] for b in c.allocs[k]] == [
                reference.size(b) for b in reference.allocs(i)
            ], i
            assert [c.sizes_bytes[b] for b in c.frees[k]] == [
                reference.size(b) for b in reference.frees(i)
            ], i


def _check_top_down(reference: Reference, module: Module) -> None:
    """The same from above: results become live, last uses end."""
    memory = ModuleMemory(module, top_down=True)
    last = reference.last_uses()
    for computation in memory.computations:
        c = memory.of(computation)
        for k, i in enumerate(c.order):
            made, ended = reference.top_down(i, last)
            assert [c.sizes_bytes[b] for b in c.allocs[k]] == [
                reference.size(b) for b in made
            ], i
            assert [c.sizes_bytes[b] for b in c.frees[k]] == [
                reference.size(b) for b in ended
            ], i


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30))
def test_flattened_programs(seed: int) -> None:
    _check(hlo_passes.parse(random_program(random.Random(seed))))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1 << 30))
def test_functions_with_several_callers(seed: int) -> None:
    text = random_program(random.Random(seed), calls_repeat=True)
    _check(hlo_passes.parse(text))


@pytest.mark.parametrize("seed", range(15))
def test_spmd_modules(seed: int) -> None:
    _check(hlo_passes.parse(spmd_module(random.Random(seed), devices=8)))


def test_random_programs_are_legal() -> None:
    for seed in range(10):
        module = hlo_passes.parse(random_program(random.Random(seed)))
        hlo_passes.verify(module)
        assert all(paths(i) for i in module.entry.instructions)
