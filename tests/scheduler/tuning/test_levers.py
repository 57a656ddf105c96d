"""The table of levers, against jaxlib and against itself."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest

from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.passes.framework.sequence import all_options
from hlo_passes.scheduler.tuning.combination import (
    Combination,
    compiler_options,
    flags_of,
    setting_text,
    variables,
    xla_flags,
)
from hlo_passes.scheduler.tuning.lever import OPTIMIZATION_LEVEL
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.xla_release import RELEASES, xla_release

INSTALLED = xla_release(importlib.metadata.version("jaxlib"))


def test_xla_knows_every_flag_and_value() -> None:
    """XLA ends a process whose XLA_FLAGS it does not know, and names them."""
    settings = [
        flag.setting
        for lever in LEVERS.values()
        for candidate in lever.candidates(INSTALLED)
        for flag in candidate.flags_in(INSTALLED)
        if flag.name != OPTIMIZATION_LEVEL
    ]
    done = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": " ".join(settings), "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_a_setting_is_made_in_one_way(release) -> None:
    """No two flags of a candidate in one release are the same flag."""
    for lever in LEVERS.values():
        for candidate in lever.candidates(release):
            names = [flag.name for flag in candidate.flags_in(release)]
            assert len(names) == len(set(names))


def test_levers_name_levers() -> None:
    for lever in LEVERS.values():
        assert set(lever.interacts) | set(lever.only_with) <= set(LEVERS), lever.name
        settings = [candidate.setting for candidate in lever.settings]
        assert len(settings) == len(set(settings)), lever.name
        assert lever.name not in lever.interacts


def test_options_are_those_of_our_passes() -> None:
    known = set(all_options(find_pass("xla-gpu")))  # type: ignore[arg-type]
    scheduler = {
        f.replace("_", "-")
        for f in find_pass("latency-hiding-scheduler").__dataclass_fields__
    }
    for lever in LEVERS.values():
        for candidate in lever.settings:
            options = {option for option, _ in candidate.options}
            assert options <= known, lever.name
            if lever.scope == "schedule":
                assert options, lever.name
                assert options <= scheduler, lever.name


def test_a_combination_is_a_value() -> None:
    one = Combination.of({"overlap limit": "2", "pipelined all-gather": "on"})
    other = Combination.of({"pipelined all-gather": "on"}).with_("overlap limit", "2")
    assert one == other
    assert one.to_text() == "pipelined all-gather, overlap limit 2"
    assert one.part("schedule") == Combination.of({"overlap limit": "2"})
    assert one.without("overlap limit").without("pipelined all-gather") == Combination()
    assert setting_text("combined all-gather", "off") == "combined all-gather off"
    with pytest.raises(KeyError):
        Combination.of({"overlap limit": "3"})


def test_the_same_setting_in_two_releases() -> None:
    chosen = Combination.of({"pipelined all-gather": "on", "optimization level": "O1"})
    assert (
        xla_flags(chosen, xla_release("0.10.2"))
        == "--xla_gpu_enable_pipelined_all_gather=true"
    )
    assert xla_flags(chosen, xla_release("0.12")) == "--xla_gpu_pipeline_all_gather=on"
    assert variables(chosen, xla_release("0.12")) == {"JAX_OPTIMIZATION_LEVEL": "O1"}
    assert compiler_options(chosen, xla_release("0.12")) == {
        "xla_gpu_pipeline_all_gather": "COLLECTIVE_PIPELINING_MODE_ON",
        "optimization_level": "O1",
    }
    assert compiler_options(chosen, xla_release("0.10.2"))["optimization_level"] == 19


def test_what_means_nothing_beside_a_setting_is_taken_back() -> None:
    """Without XLA's scheduler nothing tells it how, nor keeps streams apart."""
    orders = Combination.of(
        {"overlap limit": "2", "several streams": "on", "combined all-gather": "off"}
    )
    off = Combination.of({"combined all-gather": "off", "scheduler": "off"})
    assert orders.with_("scheduler", "off") == off
    assert off.with_("overlap limit", "4") == Combination.of(
        {"overlap limit": "4", "combined all-gather": "off"}
    )
    assert orders.without("overlap limit") == Combination.of(
        {"combined all-gather": "off"}
    )
    both = Combination.of({**dict(orders.settings), "scheduler": "off"})
    assert not both.is_sound("several streams")
    assert both.sound() == off
    beside = {pair for lever in LEVERS.values() for pair in lever.not_with}
    assert all(LEVERS[name].candidate(setting) for name, setting in beside)


def test_the_later_lever_wins() -> None:
    chosen = Combination.of({"scheduler": "off", "coarse costs": "on"})
    values = {flag.name: flag.text for flag in flags_of(chosen, INSTALLED)}
    assert values["xla_gpu_enable_latency_hiding_scheduler"] == "true"
