"""Passes in jobs of several processes (gloo). Some forty seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from hlo_passes import Module, Pass, PassContext, Pipeline, Report, runtime
from hlo_passes.runtime import many_hosts

COMBINER = "collective-permute-combiner,gpu-all-reduce-combiner"
NAME = "jit_step"


def step_and_input() -> tuple[Any, Any]:
    """A jitted function over all eight devices of the job, and its input."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    from tests.runtime.programs import two_permutes

    mesh = Mesh(np.array(jax.devices()), ("d",))

    def step(x: Any) -> Any:
        return two_permutes(x)

    mapped = jax.shard_map(step, mesh=mesh, in_specs=P("d"), out_specs=(P("d"), P()))
    mapped.__name__ = "step"
    sharding = NamedSharding(mesh, P("d"))
    values = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    array = jax.make_array_from_callback((8, 8), sharding, lambda at: values[at])
    return jax.jit(mapped), array


def bits(results: Sequence[Any]) -> list[bytes]:
    return [
        np.asarray(shard.data).tobytes()
        for result in results
        for shard in result.addressable_shards
    ]


@dataclass(frozen=True, slots=True)
class ByProcess(Pass):
    """Does in one process what it does not do in another."""

    name: ClassVar[str] = "by-process"
    fails: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        import jax

        if jax.process_index() == 0:
            return False
        if self.fails:
            raise ZeroDivisionError("planted")
        for computation in module.computations:
            for instruction in computation.instructions:
                if instruction.opcode == "collective-permute":
                    instruction.channel_id = 77
                    return True
        return False


@dataclass(frozen=True, slots=True)
class Parted(Pass):
    """Has an option without a complete text."""

    name: ClassVar[str] = "parted"
    numbers: Any = None

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        return False


@pytest.mark.hosts(2, devices_per_host=4)
def test_two_processes_agree_and_compute_the_same_bits() -> None:
    import jax

    jitted, array = step_and_input()
    before = bits(jitted(array))
    for stage in ("pre-scheduler", "post-scheduler"):
        for mode in ("check", "rank0", "off"):
            with runtime.install(
                COMBINER, stage=stage, multiprocess=mode, modules=NAME
            ) as installed:
                assert bits(jitted(array)) == before
                text = jitted.lower(array).compile().as_text()
            assert (installed.fired, installed.changed) == (1, 1)
            assert text.count(" collective-permute(") == 1
    # The same passes once more, for the same module: a new meeting.
    with runtime.install(COMBINER, modules=NAME) as installed:
        assert bits(jitted(array)) == before
    assert installed.changed == 1
    # A pass with a value of its own in each process finds the others all the same.
    with runtime.install(Pipeline((Parted(np.arange(3)),)), modules=NAME) as installed:
        assert bits(jitted(array)) == before
    assert installed.fired == 1
    # What one process compiles for itself needs nobody else.
    if jax.process_index() == 0:
        with runtime.install("hlo-dce") as installed:
            jax.jit(lambda x: x + 1)(np.float32(1))
        assert installed.fired >= 1


@pytest.mark.hosts(4, devices_per_host=2)
def test_four_processes_share_what_the_first_made() -> None:
    jitted, array = step_and_input()
    before = bits(jitted(array))
    with runtime.install(COMBINER, multiprocess="rank0", modules=NAME) as installed:
        assert bits(jitted(array)) == before
    assert installed.changed == 1


@pytest.mark.hosts(2, devices_per_host=4)
def test_a_pass_that_is_not_deterministic_is_caught_by_name() -> None:
    import jax

    jitted, array = step_and_input()
    before = bits(jitted(array))
    with (
        runtime.install(Pipeline((ByProcess(),)), modules=NAME),
        pytest.raises(jax.errors.JaxRuntimeError) as caught,
    ):
        jitted(array)
    said = str(caught.value)
    assert "error[R030]: the passes made different programs from jit_step" in said
    assert "processes 0 and 1 differ, first at %" in said
    assert "channel_id=77" in said
    assert "%ppermute" in said.partition("first at ")[2].partition(" in ")[0]
    # The process is as usable as before.
    assert bits(jitted(array)) == before
    with runtime.install(
        Pipeline((ByProcess(),)), modules=NAME, multiprocess="rank0"
    ) as installed:
        assert bits(jitted(array)) == before
    assert installed.changed == 0


@pytest.mark.hosts(2, devices_per_host=4)
def test_a_pass_that_fails_in_one_process_stops_both() -> None:
    import jax

    jitted, array = step_and_input()
    with (
        runtime.install(Pipeline((ByProcess(fails=True),)), modules=NAME),
        pytest.raises(jax.errors.JaxRuntimeError) as caught,
    ):
        jitted(array)
    said = str(caught.value)
    assert "ZeroDivisionError: planted" in said
    assert ("a pass failed on jit_step in process 1" in said) == (
        jax.process_index() == 0
    )
    # With multiprocess="rank0" only process 0 runs it, where nothing is wrong.
    with runtime.install(
        Pipeline((ByProcess(fails=True),)), modules=NAME, multiprocess="rank0"
    ):
        assert bits(jitted(array))


@pytest.mark.hosts(2, devices_per_host=4)
def test_a_process_that_stays_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    monkeypatch.setattr(many_hosts, "WAIT_SECONDS", 2)
    jitted, array = step_and_input()
    installed = runtime.install(COMBINER, modules=NAME)
    if jax.process_index() == 0:
        with pytest.raises(
            jax.errors.JaxRuntimeError,
            match=r"R031.*waited for the processes 1",
        ):
            jitted.lower(array).compile()
    installed.remove()


def test_the_first_difference_is_found() -> None:
    one = "%c (p: f32[]) -> f32[] {\n  %p = f32[] parameter(0)\n  ROOT %r = f32[] negate(%p)\n}"
    other = one.replace("negate", "abs")
    place, lines = many_hosts.first_difference(one, other)
    assert place == "%r in %c"
    assert lines == ("  ROOT %r = f32[] negate(%p)", "  ROOT %r = f32[] abs(%p)")
    place, _ = many_hosts.first_difference(one, one + "\n%d () -> f32[] {")
    assert place == "%d"
    longer = one.replace("\n}", "\n  %x = f32[] abs(%p)\n}")
    assert many_hosts.first_difference(one, longer)[0] == "%x in %c"
    assert many_hosts.first_difference(one, one)[0] == "nothing"
