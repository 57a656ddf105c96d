"""Replica groups and pairs: every form, its expansion, and what XLA prints."""

from __future__ import annotations

import pickle
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_passes.errors import ParseError
from hlo_passes.ir.replica_groups import (
    ReplicaGroups,
    SourceTargetPairs,
    parse_replica_groups,
    parse_source_target_pairs,
)
from tests.ir.xla_text import xla_attribute


def printed_by_xla(text: str) -> str | None:
    return xla_attribute(
        f"f32[4,4] all-reduce(a), to_apply=add, replica_groups={text}",
        "replica_groups",
    )


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("{{0},{1,2}}", ((0,), (1, 2))),
        ("{}", ()),
        ("{{}}", ((),)),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[2,4]<=[4,2]T(1,0)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("[2,4]<=[2,2,2]T(2,0,1)", ((0, 2, 4, 6), (1, 3, 5, 7))),
        ("mesh['x'=2,'y'=4] {'x'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['x'=2,'y'=2] {'y','x'}", ((0, 2, 1, 3),)),
        ("mesh['x'=2,'y'=2] {'1'}", ((0, 1), (2, 3))),
        ("mesh['x'=8] {'x':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
        ("mesh['x'=8] {'x':(1)2,'x':(4)2}", ((0, 1, 4, 5), (2, 3, 6, 7))),
        ("mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)) {'x'}", ((0, 1), (2, 3))),
        ("mesh['x'=2,'y'=2], device_ids=(3,2,1,0) {'y'}", ((3, 2), (1, 0))),
    ],
)
def test_groups_and_xla_agree(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    read = parse_replica_groups(text)
    assert read.groups == groups
    assert read == ReplicaGroups.of(groups)
    assert hash(read) == hash(ReplicaGroups.of(groups))
    assert parse_replica_groups(read.to_explicit_text()) == read
    assert read.to_text() == printed_by_xla(text)


@given(st.data())
def test_iota_agrees_with_numpy_and_xla(data: st.DataObject) -> None:
    dims = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4))
    order = data.draw(st.permutations(range(len(dims))))
    total = prod(dims)
    count = data.draw(
        st.sampled_from([n for n in range(1, total + 1) if not total % n])
    )
    suffix = f"T({','.join(map(str, order))})" if len(dims) > 1 else ""
    text = f"[{count},{total // count}]<=[{','.join(map(str, dims))}]{suffix}"
    read = parse_replica_groups(text)
    ids = np.arange(total).reshape(dims).transpose(order).reshape(count, -1)
    assert read.groups == tuple(tuple(row) for row in ids.tolist())
    assert (read.count, read.size, read.device_count) == (*ids.shape, total)
    assert read.to_text() == printed_by_xla(text)


@given(st.lists(st.lists(st.integers(0, 20), max_size=4), max_size=4))
def test_explicit_agrees_with_xla(groups: list[list[int]]) -> None:
    made = ReplicaGroups.of(groups)
    assert parse_replica_groups(made.to_text()) == made
    assert made.to_text() == printed_by_xla(made.to_text())


def test_sizes() -> None:
    assert parse_replica_groups("{{0},{1,2}}").size is None
    assert parse_replica_groups("{}").size is None
    assert parse_replica_groups("{}").is_empty
    assert ReplicaGroups.of_iota(2, 4, (4, 2), (1, 0)).to_text() == "[2,4]<=[4,2]T(1,0)"
    with pytest.raises(ValueError, match="are not"):
        ReplicaGroups.of_iota(2, 4, (9,))


def test_pickles() -> None:
    read = parse_replica_groups("mesh['x'=2,'y'=4] {'x'}")
    assert pickle.loads(pickle.dumps(read)) == read


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("{0,1}", 2),
        ("{{0,1}", 7),
        ("{{0,1},}", 8),
        ("{{0 1}}", 5),
        ("{{1.5}}", 4),
        ("{{18446744073709551616}}", 3),
        ("{{0}} x", 7),
        ("[2,4]<=[9]", 8),
        ("[8]<=[8]", 1),
        ("[2,4]", 6),
        ("[2,4]<=[4,2]", 13),
        ("[2,4]<=[4,2]T(1,1)", 13),
        ("[0,4]<=[0]", 1),
        ("[1024,1024]<=[1024,1024]T(1,0)0", 31),
        ("[16777216,2]<=[33554432]", 1),
        ("mesh['x'=2,'x'=4] {'x'}", 5),
        ("mesh['x'=2] {'y'}", 14),
        ("mesh['x'=2] {'x','x'}", 13),
        ("mesh['x'=8] {'x':(3)2}", 14),
        ("mesh['x'=8] {'x':(1)2,'x':(2)2}", 13),
        ("mesh['x'=4], device_ids=(0,1,2,2) {'x'}", 25),
        ("mesh['x'=2] 'x'", 13),
    ],
)
def test_error_place(text: str, column: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_replica_groups(text)
    assert caught.value.code == "P210"
    assert caught.value.location is not None
    assert caught.value.location.column == column


def test_pairs() -> None:
    pairs = parse_source_target_pairs("{{0,1}, {1,0}}")
    assert pairs == SourceTargetPairs.of([(0, 1), (1, 0)])
    assert list(pairs) == [(0, 1), (1, 0)]
    assert pairs.to_text() == "{{0,1},{1,0}}"
    assert len(parse_source_target_pairs("{}")) == 0
    with pytest.raises(ParseError, match="two ids"):
        parse_source_target_pairs("{{0,1,2}}")
