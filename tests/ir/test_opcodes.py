"""The rows of opcodes: laws that hold for every one, and the forms that are derived."""

import pytest

from hlo_passes.ir.attribute_tables import opcode_attributes
from hlo_passes.ir.opcodes import (
    CALLEE_ATTRIBUTES,
    ROWS,
    SYNC_COLLECTIVES,
    VARIADIC,
    Opcode,
    facts,
)


@pytest.mark.parametrize("opcode", ROWS)
def test_a_half_has_a_spelling_and_work(opcode: str) -> None:
    row = facts(opcode)
    assert row is ROWS[opcode]
    assert row.is_known
    assert not row.is_sugar
    assert bool(row.half) == bool(row.spelling)
    assert bool(row.work) == (row.spelling != "generic")
    if row.work:
        assert row.work in ROWS
        assert ROWS[row.work].is_collective == row.is_collective


@pytest.mark.parametrize("opcode", [o for o, r in ROWS.items() if r.half == "start"])
def test_every_start_has_a_done_that_is_spelled_alike(opcode: str) -> None:
    row = ROWS[opcode]
    dones = [
        other
        for other in ROWS.values()
        if (other.half, other.spelling, other.work) == ("done", row.spelling, row.work)
    ]
    assert len(dones) == 1


@pytest.mark.parametrize("opcode", ROWS)
def test_an_opcode_calls_what_its_attributes_name(opcode: str) -> None:
    names = set(opcode_attributes(opcode)).intersection(CALLEE_ATTRIBUTES)
    is_later_half = ROWS[opcode].half in ("update", "done")
    assert bool(ROWS[opcode].calls) == bool(names and not is_later_half)


@pytest.mark.parametrize("opcode", [o for o, r in ROWS.items() if r.is_commutative])
def test_what_is_commutative_takes_two_operands(opcode: str) -> None:
    assert ROWS[opcode].arity == 2
    assert ROWS[opcode].is_elementwise


def test_sugar_is_derived_from_what_it_wraps() -> None:
    assert facts("reduce-scatter-start") == Opcode(
        arity=VARIADIC,
        half="start",
        spelling="generic",
        work="reduce-scatter",
        calls="embedded",
        is_collective=True,
        is_sugar=True,
    )
    assert facts("fusion-update").half == "update"
    assert facts("fusion-done").work == "fusion"
    assert facts("fusion-done").calls == ""


@pytest.mark.parametrize(
    "word", ["", "-start", "frobnicate", "frobnicate-start", "add-"]
)
def test_an_unknown_word_has_no_facts(word: str) -> None:
    assert facts(word) == Opcode(work=word, is_known=False)


def test_the_collectives() -> None:
    assert {
        "all-gather", "all-reduce", "all-to-all", "collective-broadcast",
        "collective-permute", "ragged-all-to-all", "reduce-scatter",
    } == SYNC_COLLECTIVES  # fmt: skip
    assert facts("all-gather-done").is_collective
    assert not facts("send").is_collective
