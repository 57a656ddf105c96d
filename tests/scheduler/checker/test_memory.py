"""The checker's replay and the scheduler's own tables find one peak, in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from hlo_passes import parse
from scheduler.checker.memory import peak_memory
from scheduler.memory.pressure import ModuleMemory
from tests.modules import CORPUS
from tests.scheduler.checker.scheduled_modules import module_to_schedule, random_order


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


@pytest.mark.parametrize(
    ("name", "size_bytes"), [("in_place", 40), ("in_conditional", 64)]
)
def test_handwritten_modules_as_xla_counts(name: str, size_bytes: int) -> None:
    """An in-place permute writes into operand 1; a result is made by one branch."""
    text = (CORPUS / "handwritten" / f"{name}.hlo").read_text()
    module = parse(text)
    assert peak_memory(module).size_bytes == size_bytes
    assert ModuleMemory(module).stored_peak_bytes(module.entry) == size_bytes
