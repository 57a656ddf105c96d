"""XLA's partitioner on modules as they are, and as sharding-propagator annotates them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest

import hlo_passes
from hlo_passes import runtime
from hlo_passes.analysis.sent_bytes import sent_bytes
from hlo_passes.errors import UnsupportedHloError
from tests.runtime import sharded_programs

LOOKUP = """\
HloModule lookup, num_partitions=8

ENTRY %main (table: s32[16,32], where: s32[64,1]) -> s32[64,32] {
  %table = s32[16,32] parameter(0), sharding={devices=[8,1]<=[8]}
  %where = s32[64,1] parameter(1)
  ROOT %rows = s32[64,32] gather(%table, %where), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,32}
}
"""

#: Two elements of the state change places; each enters the loop divided its own way.
SWAP = """\
HloModule swap, num_partitions=8

%body (p: (s32[], s32[16,24], s32[16,24])) -> (s32[], s32[16,24], s32[16,24]) {
  %p = (s32[], s32[16,24], s32[16,24]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = s32[16,24] get-tuple-element(%p), index=1
  %y = s32[16,24] get-tuple-element(%p), index=2
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %more = s32[16,24] add(%x, %x)
  ROOT %t = (s32[], s32[16,24], s32[16,24]) tuple(%next, %y, %more)
}

%condition (p: (s32[], s32[16,24], s32[16,24])) -> pred[] {
  %p = (s32[], s32[16,24], s32[16,24]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (a: s32[16,24], b: s32[16,24]) -> (s32[16,24], s32[16,24]) {
  %a = s32[16,24] parameter(0), sharding={devices=[8,1]<=[8]}
  %b = s32[16,24] parameter(1), sharding={devices=[1,8]<=[8]}
  %zero = s32[] constant(0)
  %init = (s32[], s32[16,24], s32[16,24]) tuple(%zero, %a, %b)
  %loop = (s32[], s32[16,24], s32[16,24]) while(%init), condition=%condition, body=%body
  %one = s32[16,24] get-tuple-element(%loop), index=1
  %other = s32[16,24] get-tuple-element(%loop), index=2
  ROOT %t = (s32[16,24], s32[16,24]) tuple(%one, %other)
}
"""

#: Nine rows in four parts: three, three, three and none.
UNEVEN = """\
HloModule uneven, num_partitions=4

ENTRY %main (x: s32[9,2]) -> s32[2,9] {
  %x = s32[9,2] parameter(0), sharding={devices=[4,1]<=[4]}
  %n = s32[9,2] negate(%x)
  ROOT %t = s32[2,9] transpose(%n), dimensions={1,0}
}
"""


def both(text: str) -> tuple[Any, Any]:
    """XLA's program of a module as it is, and of what the pass makes of it."""
    module = hlo_passes.parse(text)
    after = module.clone()
    assert hlo_passes.Pipeline.parse("sharding-propagator").run(after).changed
    return runtime.partition(module), runtime.partition(after)


def test_a_small_table_is_gathered_before_the_lookup(
    host_devices: Callable[[int], Any],
) -> None:
    host_devices(8)
    alone, annotated = both(LOOKUP)
    table = np.arange(16 * 32, dtype=np.int32).reshape(16, 32)
    where = (np.arange(64, dtype=np.int32) * 5 % 16).reshape(64, 1)
    for program in (alone, annotated):
        (rows,) = program(table, where)
        assert np.array_equal(rows, table[where[:, 0]])
    # An all-reduce of 64 rows, 2 * 7 / 8 of 8192 bytes; an all-gather of 16 rows.
    assert (sent_bytes(alone.module), sent_bytes(annotated.module)) == (14336, 1792)


def test_a_state_that_changes_places_moves_before_the_loop(
    host_devices: Callable[[int], Any],
) -> None:
    host_devices(8)
    alone, annotated = both(SWAP)
    a = np.arange(16 * 24, dtype=np.int32).reshape(16, 24)
    b = a[::-1] - 7
    for program in (alone, annotated):
        one, other = program(a, b)
        assert np.array_equal(one, 2 * b)
        assert np.array_equal(other, 4 * a)
    # One all-to-all, of 7 / 8 of the 192 bytes that a device has.
    assert sent_bytes(annotated.module) == 168
    assert sent_bytes(alone.module) >= 168


def test_uneven_parts(host_devices: Callable[[int], Any]) -> None:
    host_devices(4)
    x = np.arange(18, dtype=np.int32).reshape(9, 2)
    module = hlo_passes.parse(UNEVEN)
    annotated = module.clone()
    assert hlo_passes.Pipeline.parse("sharding-propagator").run(annotated).changed
    assert "sharding" not in annotated.entry.root.attributes
    for program in map(runtime.partition, (module, annotated)):
        (turned,) = program(x)
        assert np.array_equal(turned, -x.T)
        # XLA gathers the result, which nobody divides in equal parts.
        assert sent_bytes(program.module) == 72
        with pytest.raises(ValueError, match="expected int32"):
            program(x[:8])
        with pytest.raises(ValueError, match="takes 1 arrays, not 2"):
            program(x, x)


def test_what_cannot_be_converted_is_named(host_devices: Callable[[int], Any]) -> None:
    host_devices(4)
    text = UNEVEN.replace("s32[9,2] negate(%x)", "s32[9,2] copy(%x)").replace(
        "(x: s32[9,2])", "(x: (s32[9,2]))"
    )
    text = text.replace(
        "  %x = s32[9,2] parameter(0), sharding={devices=[4,1]<=[4]}",
        "  %p = (s32[9,2]) parameter(0)\n"
        "  %x = s32[9,2] get-tuple-element(%p), index=0",
    )
    with pytest.raises(UnsupportedHloError, match="a parameter that is no array"):
        runtime.partition(hlo_passes.parse(text))


@pytest.fixture
def _in_words_of_gspmd() -> Iterator[None]:
    before = jax.config.values["jax_use_shardy_partitioner"]
    jax.config.update("jax_use_shardy_partitioner", False)
    yield
    jax.config.update("jax_use_shardy_partitioner", before)


@pytest.mark.usefixtures("_in_words_of_gspmd")
@pytest.mark.parametrize("number", [9, 35])
def test_a_program_of_the_campaign(
    host_devices: Callable[[int], Any], number: int
) -> None:
    host_devices(8)
    module, inputs, is_exact, _ = sharded_programs.lowered(number, seed=1)
    verdict = sharded_programs.judged(
        module, inputs, is_exact=is_exact, passes=sharded_programs.PASSES
    )
    assert verdict.changed
    assert not verdict.is_wrong
    assert not verdict.is_worse
