"""Which devices meet in a collective, by the ways in which XLA numbers them."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.checker.participants import (
    Machine,
    participants_of,
    transfer_pairs,
)

#: Two replicas of three partitions: devices 0 1 2 and 3 4 5.
MACHINE = Machine(2, 3)
GLOBAL = ", channel_id=1, use_global_device_ids=true"


@pytest.mark.parametrize(
    ("opcode", "groups", "more", "expected"),
    [
        # Without a channel, replicas: one group for each partition.
        ("all-gather", "{{0,1}}", "", [(0, 3), (1, 4), (2, 5)]),
        ("all-gather", "{{0},{1}}", "", [(n,) for n in (0, 3, 1, 4, 2, 5)]),
        ("all-gather", "{}", "", [(0, 3), (1, 4), (2, 5)]),
        # With one, replicas over all partitions.
        ("all-gather", "{{0,1}}", ", channel_id=1", [(0, 1, 2, 3, 4, 5)]),
        ("all-gather", "{{0},{1}}", ", channel_id=1", [(0, 1, 2), (3, 4, 5)]),
        ("all-gather", "{}", ", channel_id=1", [(0, 1, 2, 3, 4, 5)]),
        # Devices by their own numbers.
        ("all-gather", "{{0,5},{1,4},{2,3}}", GLOBAL, [(0, 5), (1, 4), (2, 3)]),
        # An exchange with a channel is between partitions of a replica.
        ("all-to-all", "{{0,2,1}}", ", channel_id=1", [(0, 2, 1), (3, 5, 4)]),
        ("all-to-all", "{}", ", channel_id=1", [(0, 1, 2), (3, 4, 5)]),
        ("all-to-all", "{{1,0}}", "", [(3, 0), (4, 1), (5, 2)]),
    ],
)
def test_groups(
    opcode: str, groups: str, more: str, expected: list[tuple[int, ...]]
) -> None:
    module = hlo_passes.parse(
        "HloModule m, replica_count=2, num_partitions=3\n\nENTRY %main {\n"
        "  %p = f32[6] parameter(0)\n"
        f"  ROOT %r = f32[6] {opcode}(%p), dimensions={{0}}, replica_groups={groups}"
        f"{more}\n}}\n"
    )
    found = participants_of(module.entry.root, MACHINE)
    assert sorted(found.groups) == sorted(expected)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", [(0, 3), (1, 4), (2, 5), (3, 0), (4, 1), (5, 2)]),
        (", channel_id=1", [(0, 1), (1, 0), (3, 4), (4, 3)]),
    ],
)
def test_pairs(more: str, expected: list[tuple[int, int]]) -> None:
    module = hlo_passes.parse(
        "HloModule m, replica_count=2, num_partitions=3\n\nENTRY %main {\n"
        "  %p = f32[6] parameter(0)\n"
        "  ROOT %r = f32[6] collective-permute(%p), "
        f"source_target_pairs={{{{0,1}},{{1,0}}}}{more}\n}}\n"
    )
    assert sorted(participants_of(module.entry.root, MACHINE).pairs) == expected


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(2, 1), [(0, 1)]),  # replicas
        (Machine(1, 3), [(0, 1)]),  # partitions
        (Machine(2, 3), [(0, 1), (3, 4)]),  # those of each replica
    ],
)
def test_the_pairs_of_a_transfer(
    machine: Machine, expected: list[tuple[int, int]]
) -> None:
    module = hlo_passes.parse(
        "HloModule m\n\nENTRY %main {\n"
        "  %k = token[] after-all()\n"
        "  ROOT %r = (f32[6], u32[], token[]) recv(%k), channel_id=1, "
        'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}\n}\n'
    )
    assert sorted(transfer_pairs(module.entry.root, machine).pairs) == expected
