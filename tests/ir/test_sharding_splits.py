"""Shardings dimension by dimension: texts read and written back, tiles, refinement."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_passes.ir.device_tiles import Iota
from hlo_passes.ir.sharding import MeshSharding, TileSharding, parse_sharding
from hlo_passes.ir.sharding_splits import Split, Splits, iota_of, splits_of


def splits(text: str, rank: int, devices: int) -> Splits | None:
    sharding = parse_sharding(text)
    assert isinstance(sharding, TileSharding | MeshSharding)
    return splits_of(sharding, rank, devices)


@pytest.mark.parametrize(
    ("text", "rank", "devices"),
    [
        ("{replicated}", 3, 8),
        ("{devices=[8]<=[8]}", 1, 8),
        ("{devices=[2,4]<=[8]}", 2, 8),
        ("{devices=[4,2]<=[2,4]T(1,0)}", 2, 8),
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", 2, 8),
        ("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", 2, 8),
        ("{devices=[2,2,2]<=[2,2,2]T(2,1,0)}", 3, 8),
        ("{devices=[2,2]3,0,1,2}", 2, 4),
        ("{devices=[2,1,2]0,3,1,2 last_tile_dim_replicate}", 2, 4),
    ],
)
def test_texts_come_back(text: str, rank: int, devices: int) -> None:
    found = splits(text, rank, devices)
    assert found is not None
    assert found.to_sharding().to_text() == text


@pytest.mark.parametrize(
    ("mesh", "tile"),
    [
        ("{mesh['x'=2,'y'=4], [{'x'}, {}]}", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        ("{mesh['x'=2,'y'=4], [{'y'}, {'x'}]}", "{devices=[4,2]<=[2,4]T(1,0)}"),
        ("{mesh['x'=2,'y'=4], [{'y','x'}, {}]}", "{devices=[8,1]<=[2,4]T(1,0)}"),
        ("{mesh['x'=2,'y'=4], [{}, {}]}", "{replicated}"),
        ("{mesh['x'=2,'y'=4], replicated}", "{replicated}"),
        (
            "{mesh['x'=8], [{'x':(2)2}, {'x':(1)2}]}",
            "{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}",
        ),
    ],
)  # fmt: skip
def test_meshes_become_tiles(mesh: str, tile: str) -> None:
    found = splits(mesh, 2, 8)
    assert found is not None
    assert found.to_sharding().to_text() == tile


@pytest.mark.parametrize(
    "text",
    [
        "{maximal device=1}",
        "{manual}",
        "{unreduced}",
        "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
        "{devices=[2,2]<=[4]}",
        "{devices=[8]<=[8]}",
        "{mesh['x'=8], [{}, {}], manual={'x'}}",
    ],
)
def test_no_view_of_what_says_more_or_does_not_fit(text: str) -> None:
    assert splits(text, 2, 8) is None


def test_each_device_has_its_block() -> None:
    found = splits("{devices=[4,2]<=[2,4]T(1,0)}", 2, 8)
    assert found is not None
    array = np.arange(10 * 6).reshape(10, 6)
    # Ten rows in four parts: 3, 3, 3 and 1. Device 7 is (x=1, y=3).
    assert found.block_of(7, (10, 6)) == (slice(9, 10), slice(3, 6))
    parts = [array[found.block_of(k, (10, 6))] for k in range(8)]
    assert sum(part.size for part in parts) == array.size
    assert np.array_equal(parts[5], array[3:6, 3:6])


def test_refinement() -> None:
    two, four = Split(2, (0, 0, 1, 1)), Split(4, (0, 1, 2, 3))
    across = Split(2, (0, 1, 0, 1))
    assert four.refines(two, 8)
    assert not two.refines(four, 8)
    assert not four.refines(across, 8)
    assert not four.refines(two, 10)  # parts of 3 lie across parts of 5
    start = Splits.replicated(2, 4)
    halves = start.refined(0, two, 8)
    assert halves is not None
    assert halves.refined(1, two, 8) is None  # the same devices divide dimension 0
    both = halves.refined(1, across, 8)
    assert both is not None
    assert both.tiles == 4
    assert both.refined(0, four, 8) is None
    assert start.refined(0, four, 2) is None


@st.composite
def grids(draw: st.DrawFn) -> Splits:
    """Divisions of an array by the axes of a shuffled mesh."""
    sizes = draw(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3))
    owner = [draw(st.integers(-1, 2)) for _ in sizes]
    devices = list(range(prod(sizes)))
    if draw(st.booleans()):
        random.Random(draw(st.integers(0, 99))).shuffle(devices)
    grid = np.array(devices).reshape(sizes)
    dims: list[Split | None] = []
    for dim in range(3):
        parts, part_of = 1, np.zeros(grid.size, int)
        for axis, size in enumerate(sizes):
            if owner[axis] == dim:
                places = np.indices(grid.shape)[axis]
                here = np.zeros(grid.size, int)
                here[grid.ravel()] = places.ravel()
                part_of, parts = part_of * size + here, parts * size
        dims.append(Split(parts, tuple(map(int, part_of))) if parts > 1 else None)
    return Splits(grid.size, tuple(dims))


@given(grids())
def test_the_view_of_the_text_is_the_view(found: Splits) -> None:
    assert found.is_even
    text = found.to_sharding().to_text()
    assert splits(text, 3, found.devices) == found
    assert parse_sharding(text).to_text() == text


@given(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4), st.randoms())
def test_every_permuted_iota_is_recognized(
    sizes: list[int], draw: random.Random
) -> None:
    order = list(range(len(sizes)))
    draw.shuffle(order)
    iota = Iota.of(sizes, order)
    assert iota_of(iota.ids()) == iota
    ids = iota.ids()
    draw.shuffle(ids)
    found = iota_of(ids)
    assert found is None or found.ids() == ids
