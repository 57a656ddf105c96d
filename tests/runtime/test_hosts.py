"""The marker: a test's body on several emulated hosts. Some five seconds."""

from __future__ import annotations

import numpy as np
import pytest

from hlo_passes import runtime
from hlo_passes.text.reader import parse

RING = """HloModule ring, num_partitions=8

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (a: f32[4]) -> (f32[4], f32[4]) {
  %a = f32[4]{0} parameter(0)
  %p = f32[4]{0} collective-permute(%a), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}
  %r = f32[4]{0} all-reduce(%a), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%add
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%p, %r)
}
"""


@pytest.mark.hosts(2, devices_per_host=4)
def test_two_hosts_of_four():
    import jax

    assert jax.process_count() == 2
    assert jax.local_device_count() == 4
    executable = runtime.load(parse(RING))
    rows = list(executable.local_rows)
    assert len(rows) == 4
    assert rows == sorted(rows)
    inputs = np.arange(32, dtype=np.float32).reshape(8, 4)
    moved, total = executable(inputs)
    np.testing.assert_array_equal(moved[rows], np.roll(inputs, 1, axis=0)[rows])
    np.testing.assert_array_equal(total[rows], np.tile(inputs.sum(0), (4, 1)))
