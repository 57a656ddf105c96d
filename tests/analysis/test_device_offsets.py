"""Offsets of slices by device: what is understood, and how much of it is worked out."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.analysis.device_offsets import (
    Cut,
    Offsets,
    id_reader,
    own_part,
)
from hlo_passes.analysis.reshapes import common_factors, unmodified_dimensions
from hlo_passes.ir.module import Module

_GROUPS = ((0, 1, 2, 3),)


def _module(lines: str, counts: str = "num_partitions=4") -> Module:
    """An all-reduce `%sum` of 32 elements, and lines after it; the last is the root."""
    return hlo_passes.parse(f"""HloModule m, {counts}

%add (a: f32[], b: f32[]) -> f32[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] add(%a, %b)
}}

ENTRY %main {{
  %x = f32[32] parameter(0)
  %sum = f32[32] all-reduce(%x), channel_id=1, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true, to_apply=%add
  %k = u32[] partition-id()
  %i = s32[] convert(%k)
{lines}
}}
""")


def _values(lines: str) -> list[int | None]:
    """The value of the root on partitions 0 to 3."""
    module = _module(lines)
    collective = module.entry.find("sum")
    assert collective is not None
    offsets = Offsets(id_reader(collective, module, _GROUPS))
    return [offsets.of(module.entry.root, device) for device in range(4)]


@pytest.mark.parametrize(
    ("lines", "values"),
    [
        ("  ROOT %v = s32[] copy(%i)", [0, 1, 2, 3]),
        ("  %n = s32[] constant(3)\n  ROOT %v = s32[] multiply(%n, %i)", [0, 3, 6, 9]),
        ("  %n = s32[] constant(0)\n  ROOT %v = s32[] multiply(%n, %i)", [None] * 4),
        ("  %n = s32[] constant(3)\n  ROOT %v = s32[] add(%n, %i)", [None] * 4),
        (
            "  %l = s32[] constant(1)\n  %h = s32[] constant(2)\n"
            "  ROOT %v = s32[] clamp(%l, %i, %h)",
            [1, 1, 2, 2],
        ),
        (
            "  %t = s32[4] constant({7,5,0,1})\n"
            "  ROOT %v = s32[1] dynamic-slice(%t, %k), dynamic_slice_sizes={1}",
            [7, 5, 0, 1],
        ),
        (
            "  %t = s32[3] constant({7,5,0})\n"
            "  ROOT %v = s32[1] dynamic-slice(%t, %k), dynamic_slice_sizes={1}",
            [7, 5, 0, None],
        ),
        (
            "  %t = s32[4] constant({3,2,1,0})\n  %u = s32[4] constant({10,11,12,13})\n"
            "  %e = s32[1] dynamic-slice(%t, %k), dynamic_slice_sizes={1}\n"
            "  %f = s32[] reshape(%e)\n"
            "  ROOT %v = s32[1] dynamic-slice(%u, %f), dynamic_slice_sizes={1}",
            [13, 12, 11, 10],
        ),
        (
            "  %t = s32[4] constant({0,1,4,9})\n  %n = s32[] constant(5)\n"
            "  %e = s32[1] dynamic-slice(%t, %k), dynamic_slice_sizes={1}\n"
            "  %f = s32[] reshape(%e)\n  %p = s32[] multiply(%n, %i)\n"
            "  ROOT %v = s32[] subtract(%p, %f)",
            [0, 4, 6, 6],
        ),
        ("  %t = s32[4] constant({...})\n"
         "  ROOT %v = s32[1] dynamic-slice(%t, %k), dynamic_slice_sizes={1}",
         [None] * 4),
    ],
)  # fmt: skip
def test_values_by_device(lines: str, values: list[int | None]) -> None:
    assert _values(lines) == values


def test_deep_and_shared_expressions_end() -> None:
    """Neither deep recursion nor a power of two of steps."""
    deep = ["  %m0 = s32[] multiply(%i, %n)"]
    deep += [f"  %m{k} = s32[] multiply(%m{k - 1}, %n)" for k in range(1, 3000)]
    assert (
        _values(
            "  %n = s32[] constant(1)\n"
            + "\n".join(deep)
            + "\n  ROOT %v = s32[] copy(%m2999)"
        )
        == [None] * 4
    )
    shared = ["  %d0 = s32[] subtract(%i, %z)"]
    shared += [f"  %d{k} = s32[] subtract(%d{k - 1}, %d{k - 1})" for k in range(1, 90)]
    lines = "  %z = s32[] multiply(%i, %n)\n" + "\n".join(shared)
    found = _values(f"  %n = s32[] constant(2)\n{lines}\n  ROOT %v = s32[] copy(%d89)")
    assert found == [0] * 4


@given(st.permutations(range(4)))
def test_only_the_own_part_is_a_cut(order: list[int]) -> None:
    listed = ",".join(str(8 * k) for k in order)
    module = _module(
        f"  %t = s32[4] constant({{{listed}}})\n"
        "  %e = s32[1] dynamic-slice(%t, %k), dynamic_slice_sizes={1}\n"
        "  %o = s32[] reshape(%e)\n"
        "  ROOT %d = f32[8] dynamic-slice(%sum, %o), dynamic_slice_sizes={8}"
    )
    collective = module.entry.find("sum")
    assert collective is not None
    cut = own_part(collective, module)
    assert isinstance(cut, Cut) == (list(order) == [0, 1, 2, 3])
    # In groups of another order the same table is right.
    assert isinstance(own_part(collective, module, (tuple(_inverse(order)),)), Cut)


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(4), key=lambda device: order[device])


@given(st.lists(st.integers(1, 4), max_size=5), st.data())
def test_dimensions_that_a_reshape_leaves_alone(
    before: list[int], data: st.DataObject
) -> None:
    """Equal prefixes and suffixes of both shapes hold the same number of elements."""
    # Multiply neighbors, or split some into two factors.
    after: list[int] = []
    for size in before:
        choice = data.draw(st.sampled_from(["keep", "join", "split"]))
        if choice == "join" and after:
            after[-1] *= size
        elif choice == "split" and size % 2 == 0:
            after += [2, size // 2]
        else:
            after.append(size)
    kept = unmodified_dimensions(tuple(before), tuple(after))
    for new, old in kept.items():
        assert after[new] == before[old]
        assert prod(after[:new]) == prod(before[:old])
        assert prod(after[new + 1 :]) == prod(before[old + 1 :])


def test_sizes_of_one_are_pieces_of_their_own() -> None:
    """XLA cuts them off, wherever they are; what is beside them stays the same."""
    assert common_factors((1, 8), (8,)) == [(0, 0), (1, 0), (2, 1)]
    assert common_factors((8, 1), (8,)) == [(0, 0), (1, 1), (2, 1)]
    assert unmodified_dimensions((1, 8), (8,)) == {0: 1}
    assert unmodified_dimensions((4, 6, 5), (4, 2, 3, 5)) == {0: 0, 3: 2}
