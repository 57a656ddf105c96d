"""Assertions for tests: what they accept, and what a failed one says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlo_passes import UsageError, parse, runtime
from tests.modules import REPOSITORY

FILE = REPOSITORY / "docs" / "simulator.hlo"
COSTS = str(REPOSITORY / "docs" / "simulator_costs.json")


def test_a_file_or_a_module_with_a_schedule_is_taken_as_it_is() -> None:
    for program in (FILE, str(FILE), parse(FILE.read_text())):
        timeline = runtime.assert_exposed_below(program, "44.8%", costs=COSTS)
        assert timeline.exposed_us == 730.0
        runtime.assert_exposed_below(program, 730.0, costs=COSTS)
        runtime.assert_step_within(program, "1.63ms", costs=COSTS)
        runtime.assert_step_within(program, 1630, costs=COSTS)


def test_a_failed_assertion_names_the_collectives_and_why() -> None:
    with pytest.raises(AssertionError) as caught:
        runtime.assert_exposed_below(FILE, "10%", costs=COSTS)
    told = str(caught.value)
    assert told.startswith("exposed>10%: fails: 730.0 us is more than 163.0 us; 44.8%")
    assert "queued 70.0 us behind %statistics on communication 0" in told


def test_options_of_the_simulation_are_handed_on() -> None:
    with pytest.raises(AssertionError, match=r"1\.63 ms is more than 1\.41 ms"):
        runtime.assert_step_within(FILE, 1410, costs=COSTS)
    runtime.assert_step_within(FILE, 1410, costs=COSTS, streams=2)


def test_a_base_is_another_program() -> None:
    deeper = parse(FILE.read_text().replace('"n":"4"', '"n":"5"'))
    runtime.assert_step_within(deeper, "+24%", base=FILE, costs=COSTS)
    with pytest.raises(AssertionError, match=r"the base has 1\.63 ms \(\+23\.9%\)"):
        runtime.assert_step_within(deeper, "+2%", base=FILE, costs=COSTS)


def test_a_function_is_scheduled_before_it_is_judged() -> None:
    mesh = Mesh(jax.devices()[:8], ("data",))
    rows = NamedSharding(mesh, PartitionSpec("data"))
    step = jax.jit(lambda x, w: x @ w, in_shardings=rows, out_shardings=rows)
    args = (
        jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16),
        jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16),
    )
    timeline = runtime.assert_step_within(step, "2ms", args=args, target="b200")
    assert timeline.target == "b200"
    assert not timeline.state.cure
    # A module that is not scheduled gets the same, and stays as it is.
    module = runtime.lower(step, *args)
    text = module.to_text()
    again = runtime.assert_step_within(module, "2ms", target="b200")
    assert again.step_time_us == timeline.step_time_us
    assert module.to_text() == text


@pytest.mark.parametrize(
    "limit", ["10", "-5us", "+2%", "", "nan us", float("nan"), -1.0]
)
def test_a_limit_that_says_nothing_is_refused(limit) -> None:
    with pytest.raises(UsageError) as caught:
        runtime.assert_step_within(FILE, limit, costs=COSTS)
    assert caught.value.code == "U227"


def test_anything_else_is_no_program() -> None:
    with pytest.raises(UsageError) as caught:
        runtime.assert_step_within(3, "5ms")
    assert caught.value.code == "U021"
