"""Figures of a device, of a padded array, and of what may lie in one place."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.memory.dataflow import build_dataflow
from hlo_passes.scheduler.memory.footprint import Footprint, available_bytes
from hlo_passes.scheduler.memory.reached import reach
from hlo_passes.scheduler.memory.sharing import may_share
from hlo_passes.scheduler.memory.tpu_sizes import padded_bytes
from hlo_passes.scheduler.memory.value_sizes import ValueSizes


@pytest.mark.parametrize(
    ("peak", "packed", "fits", "fits_device", "fraction"),
    [
        (90, None, True, True, 0.9),
        (91, None, False, True, 0.91),
        (80, 90, True, True, 0.9),
        (80, 91, False, True, 0.91),
        (100, None, False, True, 1.0),
        (101, None, False, False, 1.01),
    ],
)
def test_what_fits(
    peak: int, packed: int | None, fits: bool, fits_device: bool, fraction: float
) -> None:
    found = Footprint(peak, 0, "", (), 100, 90, packed)
    assert found.needed_bytes == (peak if packed is None else packed)
    assert (found.fits, found.fits_device) == (fits, fits_device)
    assert found.needed_fraction == fraction


def test_of_an_unknown_device_nobody_knows() -> None:
    found = Footprint(1, 0, "", ())
    assert found.fits is None
    assert found.fits_device is None
    told = found.to_json()
    assert told["device_bytes"] is None
    assert told["available_bytes"] is None


def test_the_allocator_takes_a_share_in_whole_pieces() -> None:
    # 75 percent, up to a whole number of 2 MiB, never more than there is.
    assert available_bytes(0) == 0
    assert available_bytes(1) <= 1
    whole = available_bytes(80 * 2**30)
    assert 0 < whole < 80 * 2**30
    assert available_bytes(80 * 2**30 + 1) >= whole


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ("f32[]", 4),
        ("f32[3]{0}", 12),
        ("f32[0,5]{1,0}", 0),
        ("f32[8,128]{1,0:T(8,128)}", 4096),
        ("f32[9,129]{1,0:T(8,128)}", 16384),
        ("f32[129,9]{0,1:T(8,128)}", 16384),
        ("f32[5]{0:T(8,128)}", 4096),
        ("f32[2,3,5]{2,1,0:T(8,128)}", 8192),
        ("pred[8]{0}", 8),
        ("s4[8]{0}", 8),
        ("s4[9]{0:E(4)}", 5),
        ("bf16[7]{0:T(1024)}", 2048),
        ("f32[3,5]{1,0:T(*,128)}", 1536),
    ],
)
def test_a_tile_is_filled(shape: str, size: int) -> None:
    assert padded_bytes(hlo_passes.parse_shape(shape)) == size


def test_a_loop_and_a_conditional_lie_where_their_operands_are() -> None:
    module = hlo_passes.parse(
        """HloModule m

%one {
  ROOT %a = f32[8] parameter(0)
}

%condition {
  %c = f32[8] parameter(0)
  ROOT %f = pred[] constant(false)
}

ENTRY %main {
  %b = pred[] parameter(0)
  %p = f32[8] parameter(1)
  %q = f32[9] parameter(2)
  %w = f32[8] while(%p), condition=%condition, body=%one
  ROOT %r = f32[8] conditional(%b, %p, %p), true_computation=%one, false_computation=%one
}
"""
    )
    by_name = {i.name: i for i in module.entry.instructions}
    for user in ("w", "r"):
        assert may_share(by_name["p"], by_name[user], ())
        assert not may_share(by_name["q"], by_name[user], ())


def test_a_part_without_a_value_is_not_held() -> None:
    """XLA gives the table of several operands of a permute no value."""
    module = hlo_passes.parse(
        """HloModule m, replica_count=2

ENTRY %main {
  %p = f32[8] parameter(0)
  %q = f32[9] parameter(1)
  %s = ((f32[8], f32[9]), (f32[8], f32[9])) collective-permute-start(%p, %q), source_target_pairs={{0,1},{1,0}}
  ROOT %d = (f32[8], f32[9]) collective-permute-done(%s)
}
"""
    )
    sizes = ValueSizes(build_dataflow(reach(module)))
    by_name = {i.name: i for i in module.entry.instructions}
    held = sizes.held(by_name["s"])
    assert min(held) >= 0
    assert len(held) == len({*held}) == 6
    assert {*sizes.held(by_name["p"]), *sizes.held(by_name["q"])} <= {*held}
    assert [sizes.bytes_of(v) for v in sizes.held(by_name["q"])] == [36]
    assert [sizes.is_given(v) for v in sizes.held(by_name["q"])] == [True]
    assert sizes.defined(by_name["p"]) == sizes.held(by_name["p"])
