"""Dots that a ring cuts, on emulated devices and on two hosts of four."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_passes
from hlo_passes import Pipeline, runtime
from tests.modules import REPOSITORY
from tests.runtime.test_compile_command import needs_0_12, tool
from tests.scheduler.passes.matmul_programs import Matmul

#: Terms of a sum are at most 12: as many products of inputs of at most 1.
_DEPTH = 12


def pair(one: Matmul, options: str) -> tuple[hlo_passes.Module, hlo_passes.Module]:
    before, after = (hlo_passes.parse(one.text()) for _ in range(2))
    spec = f"collective-matmul{{always=true,{options}}}"
    assert Pipeline.parse(spec).run(after).changed
    return before, after


def agree(one: Matmul, options: str) -> None:
    if one.kind == "all-gather" and not one.sums:
        # Each element is the same sum. XLA's CPU compiler may add it up in another
        # order in a product of fewer rows, which whole numbers do not show.
        whole = replace(one, type="s32")
        assert runtime.compare(*pair(whole, options)).bitwise_equal
    terms = one.size
    rounding = (terms - 1 + _DEPTH) * 2.0**-24
    bound = 2 * rounding / (1 - rounding) * terms * _DEPTH
    if one.sums:
        # The whole sum has all products in one dot, rounded in any order, too.
        bound *= one.rows + 1
    within = runtime.Tolerance(absolute=bound)
    assert runtime.compare(*pair(one, options), tolerance=within).matches


@pytest.fixture
def eight(host_devices) -> None:
    host_devices(8)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
@pytest.mark.parametrize("form", ["ring", "bidirectional"])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_devices_agree(kind: str, form: str, devices: int) -> None:
    one = Matmul(kind, (tuple(range(devices)),), depth=_DEPTH, shared=True)
    agree(one, f"form={form},unroll=none")


@pytest.mark.usefixtures("eight")
@settings(max_examples=4, deadline=None)
@given(
    kind=st.sampled_from(["all-gather", "reduce-scatter"]),
    order=st.permutations(range(8)),
    side=st.integers(0, 1),
    sums=st.booleans(),
    options=st.tuples(
        st.sampled_from(["ring", "bidirectional"]), st.sampled_from(["all", "none"])
    ),
)
def test_random_groups_agree(
    kind: str, order: list[int], side: int, sums: bool, options: tuple[str, str]
) -> None:
    groups = tuple(order[:4]), tuple(order[4:])
    one = Matmul(kind, groups, side, sums and kind == "all-gather", depth=_DEPTH)
    form, unroll = options
    agree(one, f"form={form},unroll={unroll}")


@pytest.mark.hosts(2, devices_per_host=4)
def test_two_hosts_of_four_agree() -> None:
    for kind in ("all-gather", "reduce-scatter"):
        one = Matmul(kind, (tuple(range(8)),), depth=_DEPTH)
        agree(one, "form=ring,domain=4")
        agree(one, "form=bidirectional,domain=4")


@needs_0_12
@pytest.mark.parametrize("unroll", ["all", "none"])
def test_xla_takes_the_parts_and_its_step_is_shorter(unroll: str) -> None:
    """XLA fuses, assigns layouts and schedules after the pass."""
    program = REPOSITORY / "docs" / "collective_matmul" / "large.py"
    run = tool(
        "compile",
        f"{program}:step",
        "--target=h100_sxm",
        "--stage=pre-scheduler",
        f"--passes=collective-matmul{{unroll={unroll}}}",
        "--json",
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert told["accepted"] is True
    before, after = told["xla"], told["with_passes"]
    assert after["step_time_us"] < 0.8 * before["step_time_us"]
    assert after["exposed_us"] < 0.01 * before["exposed_us"]
