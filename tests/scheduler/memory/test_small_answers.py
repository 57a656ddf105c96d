"""Parts of the memory figures with answers that were worked out by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.scheduler import ModuleMemory
from hlo_passes.scheduler.memory.call_values import _bound_operands
from hlo_passes.scheduler.memory.filled_bytes import _Bytes
from hlo_passes.scheduler.memory.in_place import _trace
from hlo_passes.scheduler.memory.pressure import PressureState
from hlo_passes.scheduler.memory.tpu_sizes import padded_bytes

_INTERVALS = st.tuples(st.integers(0, 30), st.integers(1, 8))


@given(_INTERVALS, st.lists(_INTERVALS, max_size=20))
def test_taken_bytes_are_a_set(
    first: tuple[int, int], others: list[tuple[int, int]]
) -> None:
    taken = _Bytes(first[0], first[0] + first[1])
    expected = set(range(taken.lows[0], taken.highs[0]))
    for low, size in sorted(others, key=lambda each: each[1]):
        # As in a heap, nothing begins in a hole that it does not end in or pass.
        taken.take(low, low + size)
        expected |= set(range(low, low + size))
        pairs = [*zip(taken.lows, taken.highs, strict=True)]
        assert {b for low_, high in pairs for b in range(low_, high)} >= expected
        assert pairs == sorted(pairs)
        assert all(a[1] < b[0] for a, b in itertools.pairwise(pairs))


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[8]{0:T(128)}", 512),
        ("f32[128]{0:T(128)}", 512),
        ("f32[129]{0:T(128)}", 1024),
        ("f32[1]{0:T(8,128)}", 8 * 128 * 4),
        ("f32[]{:T(8,128)}", 8 * 128 * 4),
        ("f32[3,5]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[9,129]{1,0:T(8,128)}", 16 * 256 * 4),
        ("f32[9,129]{0,1:T(8,128)}", 136 * 128 * 4),
        ("bf16[2,9,129]{2,1,0:T(8,128)}", 2 * 16 * 256 * 2),
        ("s8[3]{0}", 3),
        ("s4[3]{0}", 3),
        ("s4[3]{0:E(4)}", 2),
        ("f32[?,5]{1,0}", 5 * 4),
        ("f32[0,5]{1,0}", 0),
    ],
)
def test_dimensions_fill_their_tile(shape: str, size: int) -> None:
    assert padded_bytes(hlo_passes.parse_shape(shape)) == size


_LATE = """HloModule m

%inside (p: f32[4], q: f32[4], r: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %q = f32[4]{0} parameter(1)
  %r = f32[4]{0} parameter(2)
  %d = f32[4]{0} subtract(%p, %q)
  ROOT %e = f32[4]{0} subtract(%d, %r)
}

ENTRY %e {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  %c = f32[4]{0} parameter(2)
  %s = ((f32[4]{0}), f32[4]{0}) async-start(%a), calls=%inside
  %u = ((f32[4]{0}, f32[4]{0}), f32[4]{0}) async-update(%s, %b)
  %v = ((f32[4]{0}, f32[4]{0}, f32[4]{0}), f32[4]{0}) async-update(%u, %c)
  ROOT %z = f32[4]{0} async-done(%v)
}
"""


@pytest.mark.parametrize(
    ("step", "bound"), [("s", "a"), ("u", "ab"), ("v", "abc"), ("z", "abc")]
)
def test_updates_bind_more_operands(step: str, bound: str) -> None:
    found = hlo_passes.parse(_LATE).entry.find(step)
    assert found is not None
    assert [o.name for o in _bound_operands(found)] == [*bound]


def test_a_part_is_traced_through_nested_tuples() -> None:
    entry = hlo_passes.parse(
        """HloModule m

ENTRY %e {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} parameter(1)
  %c = f32[4]{0} parameter(2)
  %in = (f32[4]{0}, f32[4]{0}) tuple(%a, %b)
  %mid = (f32[4]{0}, (f32[4]{0}, f32[4]{0})) tuple(%c, %in)
  ROOT %out = ((f32[4]{0}, (f32[4]{0}, f32[4]{0})), f32[4]{0}) tuple(%mid, %c)
}
"""
    ).entry
    for path, name in {(0, 0): "c", (0, 1, 0): "a", (0, 1, 1): "b", (1,): "c"}.items():
        found, rest = _trace(entry.root, path)
        assert (found.name, rest) == (name, ())


def test_the_first_instruction_counts_in_the_own_order() -> None:
    """An iota at the very front lives next to the product of it."""
    module = hlo_passes.parse(
        """HloModule m, is_scheduled=true

ENTRY %e {
  %i = f32[100]{0} iota(), iota_dimension=0
  %j = f32[50]{0} slice(%i), slice={[0:50]}
  ROOT %r = f32[] custom-call(%j), custom_call_target="f"
}
"""
    )
    of = ModuleMemory(module).of(module.entry)
    order = module.entry.instructions
    assert of.peak_delta_bytes() == of.peak_delta_bytes(order)
    assert of.peak_bytes() == 400 + 200
    state = PressureState(of)
    for k in reversed(range(len(order))):
        state.place(k)
    assert (state.live, state.delta_bytes) == (set(), 0)
