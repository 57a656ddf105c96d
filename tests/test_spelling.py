"""A sample of the law that a module's spelling makes no difference.

`python -m tests.spelling` holds it for all modules.
"""

from __future__ import annotations

import random

import pytest

import hlo_passes
from tests.modules import CORPUS
from tests.spelling import SPELLINGS, Count, differences, respell
from tests.spmd_modules import spmd_module

SAMPLE = (
    "backend_configs",
    "scheduled_async_pairs",
    "scheduled_control_edges",
    "collective_group_key",
)
#: Hints, groups, stream annotations and marks that once were seen by one reader alone.
MARKED = """HloModule m, is_scheduled=true, num_partitions=16

%double (d: f32[8]) -> f32[8] {
  %d = f32[8]{0} parameter(0)
  ROOT %t = f32[8]{0} add(%d, %d)
}

ENTRY %main (a: f32[1024], b: f32[8]) -> (f32[2048], f32[16384], f32[8], f32[8]) {
  %a = f32[1024]{0} parameter(0)
  %b = f32[8]{0} parameter(1)
  %g = (f32[1024]{0}, f32[2048]{0}) all-gather-start(%a), channel_id=1, replica_groups=[8,2]<=[16], dimensions={0}, use_global_device_ids=true, frontend_attributes={_scheduling_group_id="3"}
  %h = (f32[1024]{0}, f32[16384]{0}) all-gather-start(%a), channel_id=2, replica_groups=[1,16]<=[16], dimensions={0}, use_global_device_ids=true, backend_config={"collective_backend_config":{"is_sync":true}}
  %s = f32[8]{0} custom-call(%b), custom_call_target="x", frontend_attributes={scheduler_hint="force_delay"}
  %f = f32[8]{0} fusion(%b), kind=kLoop, calls=%double, frontend_attributes={_scheduling_group_id="3"}, backend_config={"force_earliest_schedule":true}
  %gd = f32[2048]{0} all-gather-done(%g)
  %hd = f32[16384]{0} all-gather-done(%h)
  ROOT %r = (f32[2048]{0}, f32[16384]{0}, f32[8]{0}, f32[8]{0}) tuple(%gd, %hd, %s, %f)
}
"""


#: Lists that are empty, of everything that takes one, and single numbers.
LISTS = """HloModule m, is_scheduled=true, num_partitions=2

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

%dots (x: f32[4], y: f32[4]) -> f32[4,4] {
  %x = f32[4]{0} parameter(0)
  %y = f32[4]{0} parameter(1)
  ROOT %outer = f32[4,4]{1,0} dot(%x, %y), lhs_contracting_dims={}, rhs_contracting_dims={}
}

ENTRY %main (a: f32[4], b: f32[4,4], k: f32[]) -> (f32[4,4], f32[4,4], f32[8,4], f32[4,4], f32[], f32[4,4]) {
  %a = f32[4]{0} parameter(0), parameter_replication={true}
  %b = f32[4,4]{1,0} parameter(1)
  %k = f32[] parameter(2)
  %dot = f32[4,4]{1,0} dot(%a, %a), lhs_contracting_dims={}, rhs_contracting_dims={}
  %fusion = f32[4,4]{1,0} fusion(%a, %a), kind=kLoop, calls=%dots
  %gather = f32[8,4]{1,0} all-gather(%dot), channel_id=1, replica_groups={}, dimensions={0}
  %wide = f32[4,4]{1,0} broadcast(%k), dimensions={}
  %same = f32[] reduce(%k, %k), dimensions={}, to_apply=%add
  %turned = f32[4,4]{0,1} transpose(%b), dimensions={1,0}
  ROOT %r = (f32[4,4]{1,0}, f32[4,4]{1,0}, f32[8,4]{1,0}, f32[4,4]{1,0}, f32[], f32[4,4]{0,1}) tuple(%dot, %fusion, %gather, %wide, %same, %turned)
}
"""


@pytest.mark.parametrize("name", SAMPLE)
def test_corpus_modules(name: str) -> None:
    text = (CORPUS / "handwritten" / f"{name}.hlo").read_text()
    assert not list(differences(text, Count()))


@pytest.mark.parametrize("seed", range(2))
def test_random_modules(seed: int) -> None:
    text = spmd_module(random.Random(seed), devices=4)
    assert not list(differences(text, Count()))


def test_marks_of_every_kind() -> None:
    count = Count()
    assert not list(differences(MARKED, count))
    assert count.spellings == len(SPELLINGS) + 2


def test_lists_of_every_kind() -> None:
    assert not list(differences(LISTS, Count()))


def test_the_spellings_are_many() -> None:
    module = hlo_passes.parse(MARKED)
    assert len({respell(module, how) for how in SPELLINGS.values()}) == len(SPELLINGS)
