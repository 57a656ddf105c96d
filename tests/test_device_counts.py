"""How many replicas and partitions a module is for, and who asks."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.analysis.devices import device_counts
from hlo_passes.runtime.devices import topology_of
from hlo_passes.scheduler.checker.schedule_checker import check_schedule, machine_of
from hlo_passes.scheduler.hardware.topology import device_count_of

_GROUPS = "replica_groups={{0,1},{2,3}}, to_apply=%add"
_PAIRS = "source_target_pairs={{0,1},{1,2}}"
_REPLICAS = f"all-reduce(%p), {_GROUPS}"
_REPLICAS_TOO = f"all-reduce(%p), channel_id=1, {_GROUPS}"
_DEVICES = f"all-reduce(%p), channel_id=1, {_GROUPS}, use_global_device_ids=true"
_PARTITIONS = f"collective-permute(%p), channel_id=2, {_PAIRS}"
_PERMUTED_REPLICAS = f"collective-permute(%p), {_PAIRS}"
_SENT = (
    "send(%p, %t), channel_id=3, frontend_attributes="
    '{_xla_send_recv_source_target_pairs="{{0,1},{1,4}}"}'
)


def _module(*collectives: str, header: str = "") -> hlo_passes.Module:
    lines = "".join(
        f"  %c{k} = {'(f32[8], u32[], token[])' if 'send' in c else 'f32[8]'} {c}\n"
        for k, c in enumerate(collectives)
    )
    return hlo_passes.parse(
        f"HloModule m, is_scheduled=true{header}\n\n"
        "%add (x: f32[], y: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n"
        "  %y = f32[] parameter(1)\n  ROOT %s = f32[] add(%x, %y)\n}\n\n"
        "ENTRY %main {\n  %p = f32[8] parameter(0)\n  %t = token[] after-all()\n"
        f"{lines}  ROOT %r = f32[8] negate(%p)\n}}\n"
    )


@pytest.mark.parametrize(
    ("collectives", "header", "expected"),
    [
        ([_REPLICAS], "", (4, 1)),
        # A channel alone does not make partitions of replicas.
        ([_REPLICAS_TOO], "", (4, 1)),
        ([_DEVICES], "", (1, 4)),
        ([_PARTITIONS], "", (1, 3)),
        ([_PERMUTED_REPLICAS], "", (3, 1)),
        ([_REPLICAS, _PARTITIONS], "", (4, 3)),
        ([_PERMUTED_REPLICAS, _DEVICES], "", (3, 2)),
        ([_SENT], "", (1, 5)),
        ([], "", (1, 1)),
        ([_REPLICAS_TOO], ", num_partitions=8", (1, 8)),
        ([_DEVICES], ", replica_count=2, num_partitions=2", (2, 2)),
    ],
)
def test_counts_are_what_the_ids_mean(
    collectives: list[str], header: str, expected: tuple[int, int]
) -> None:
    module = _module(*collectives, header=header)
    assert device_counts(module) == expected
    machine = machine_of(module)
    assert (machine.replicas, machine.partitions) == expected
    assert topology_of(module) == expected
    assert device_count_of(module) == machine.devices


@pytest.mark.parametrize(
    "collective", [_REPLICAS, _REPLICAS_TOO, _DEVICES, _PARTITIONS, _PERMUTED_REPLICAS]
)
def test_all_devices_of_a_module_without_counts_meet(collective: str) -> None:
    assert check_schedule(_module(collective)) == []


@pytest.mark.parametrize(
    "collective", [_REPLICAS, _REPLICAS_TOO, _DEVICES, _PARTITIONS]
)
def test_a_pass_changes_no_counts(collective: str) -> None:
    module = _module(collective)
    before = device_counts(module)
    report = hlo_passes.Pipeline.parse("async-collective-creator").run(module)
    assert report.changed
    assert device_counts(module) == before


def test_ids_of_an_iota_are_counted_without_listing_them() -> None:
    groups = f"replica_groups=[1,{2**20}]<=[{2**20}]"
    text = _DEVICES.replace("replica_groups={{0,1},{2,3}}", groups)
    assert device_counts(_module(text)) == (1, 2**20)
