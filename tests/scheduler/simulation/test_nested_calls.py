"""Computations that call one another twice a level are simulated once a level."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.errors import UnsupportedHloError
from hlo_passes.scheduler.simulation.simulate import simulate

_LEVELS = 50


def _nest(innermost: str, around: tuple[str, str]) -> str:
    """2 ** 50 runs of one instruction, with others before and after all of them."""
    levels = [
        f"%c{k} (p: f32[8]) -> f32[8] {{\n  %p{k} = f32[8] parameter(0)\n"
        f"  %q{k} = f32[8] call(%p{k}), to_apply=%c{k - 1}\n"
        f"  ROOT %r{k} = f32[8] call(%q{k}), to_apply=%c{k - 1}\n}}\n"
        for k in range(1, _LEVELS + 1)
    ]
    before, after = around
    return "\n".join(
        (
            "HloModule m, is_scheduled=true, num_partitions=2\n",
            f"%c0 (p: f32[8]) -> f32[8] {{\n  %p0 = f32[8] parameter(0)\n{innermost}}}\n",
            *levels,
            "ENTRY %main {\n  %p = f32[8] parameter(0)\n"
            f"  %x = f32[500000000] parameter(1)\n{before}"
            f"  %w = f32[8] call(%p), to_apply=%c{_LEVELS}\n{after}"
            "  ROOT %t = (f32[8], f32[500000000]) tuple(%w, %d)\n}\n",
        )
    )


_SHAPES = "(f32[500000000], f32[500000000])"
_PAIRS = "source_target_pairs={{0,1},{1,0}}"
_IN_FLIGHT = (
    f"  %s = {_SHAPES} collective-permute-start(%x), channel_id=2, {_PAIRS}\n",
    "  %d = f32[500000000] collective-permute-done(%s)\n",
)
_NOTHING = ("", "  %d = f32[500000000] negate(%x)\n")
_NEGATE = "  ROOT %n = f32[8] negate(%p0)\n"
_PERMUTE = f"  ROOT %n = f32[8] collective-permute(%p0), channel_id=1, {_PAIRS}\n"


@pytest.mark.parametrize(
    ("innermost", "around"),
    [(_NEGATE, _NOTHING), (_PERMUTE, _NOTHING), (_NEGATE, _IN_FLIGHT)],
    ids=["computes", "communicates", "in-flight"],
)
def test_the_step_is_that_of_all_runs(innermost: str, around: tuple[str, str]) -> None:
    report = simulate(hlo_passes.parse(_nest(innermost, around)))
    one = simulate(
        hlo_passes.parse(
            "HloModule m, is_scheduled=true, num_partitions=2\n\nENTRY %main {\n"
            f"  %p0 = f32[8] parameter(0)\n{innermost}}}\n"
        )
    )
    # What is around them is nothing next to 2 ** 50 runs.
    assert report.step_time_us == pytest.approx(
        2.0**_LEVELS * one.step_time_us, rel=1e-6
    )


def test_a_step_beyond_all_numbers_is_refused() -> None:
    """Loops in one another, of two billion trips each."""
    config = '{"known_trip_count":{"n":"2000000000"}}'
    levels = [
        f"%c{k} (p: f32[8]) -> f32[8] {{\n  %p{k} = f32[8] parameter(0)\n"
        f"  ROOT %w{k} = f32[8] while(%p{k}), condition=%goes_on, body=%c{k - 1}, "
        f"backend_config={config}\n}}\n"
        for k in range(1, _LEVELS + 1)
    ]
    text = "\n".join(
        (
            "HloModule m, is_scheduled=true\n",
            "%goes_on (x: f32[8]) -> pred[] {\n  %x = f32[8] parameter(0)\n"
            "  ROOT %yes = pred[] constant(true)\n}\n",
            f"%c0 (p: f32[8]) -> f32[8] {{\n  %p0 = f32[8] parameter(0)\n{_NEGATE}}}\n",
            *levels,
            "ENTRY %main {\n  %p = f32[8] parameter(0)\n"
            f"  ROOT %w = f32[8] call(%p), to_apply=%c{_LEVELS}\n}}\n",
        )
    )
    with pytest.raises(UnsupportedHloError, match="its loops run too often") as caught:
        hlo_passes.scheduler.simulate(hlo_passes.parse(text))
    assert caught.value.code == "S023"
