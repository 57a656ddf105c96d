"""Extents of shards, and the rows that somebody reads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hlo_passes
from hlo_passes.analysis.shard_extents import rows_read, shard_extent, shard_rows


@given(st.integers(0, 200), st.integers(1, 40))
def test_parts_are_those_of_the_padded_array(rows: int, devices: int) -> None:
    each = shard_rows(rows, devices)
    padded = np.concatenate([np.ones(rows), np.zeros(each * devices - rows)])
    parts = padded.reshape(devices, each)
    extents = [shard_extent(rows, devices, k) for k in range(devices)]
    assert extents == parts.sum(axis=1).tolist()
    # What a device has lies before its padding.
    assert all(part[:n].all() for part, n in zip(parts, extents, strict=True))
    assert each * devices - rows < devices * min(each, 1) or not rows


@pytest.mark.parametrize(
    ("readers", "rows"),
    [
        ("ROOT %r = f32[3] slice(%p), slice={[0:3]}", 3),
        ("ROOT %r = f32[3] slice(%p), slice={[2:5]}", 5),
        ("ROOT %r = f32[2] slice(%p), slice={[0:4:2]}", 4),
        (
            "%a = f32[3] slice(%p), slice={[0:3]}\n"
            "  %b = f32[1] slice(%p), slice={[4:5]}\n"
            "  ROOT %r = (f32[3], f32[1]) tuple(%a, %b)",
            5,
        ),
        (
            "%a = f32[3] slice(%p), slice={[0:3]}\n"
            "  ROOT %r = (f32[3], f32[8]) tuple(%a, %p)",
            8,
        ),
        ("ROOT %r = f32[8] negate(%p)", 8),
        ("ROOT %r = f32[] constant(1)", 8),
        ("ROOT %p.1 = f32[8] copy(%p)", 8),
    ],
)
def test_rows_read(readers: str, rows: int) -> None:
    result = readers.rpartition("= ")[2].partition(" ")[0]
    if "tuple" in readers:
        result = readers[readers.index("= (") + 2 : readers.rindex(" tuple")]
    module = hlo_passes.parse(f"""HloModule m
ENTRY %main (p: f32[8]) -> {result} {{
  %p = f32[8] parameter(0)
  {readers}
}}
""")
    (parameter,) = module.entry.parameters
    assert rows_read(parameter, 0) == rows


def test_a_result_is_read_whole() -> None:
    module = hlo_passes.parse("""HloModule m
ENTRY %main (p: f32[8]) -> f32[8] {
  ROOT %p = f32[8] parameter(0)
}
""")
    assert rows_read(module.entry.root, 0) == 8
