"""What JAX programs say about order stays said: groups, barriers, program order."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.xla_metadata import set_xla_metadata

from hlo_passes import Module, Pass, PassContext, Pipeline, Report, runtime
from tests.runtime.programs import BY_ROWS, over_devices, ring, rows, same_bits

STAGES = ("pre-scheduler", "post-scheduler")
COMBINER = "collective-permute-combiner"
SCHEDULER = "async-collective-creator,latency-hiding-scheduler"
GROUP = '_scheduling_group_id="1"'
Devices = Callable[[int], Sequence[Any]]

#: jax 0.10.2 expands barriers on CPUs before both stages.
needs_barriers = pytest.mark.skipif(
    jax.__version_info__[:2] < (0, 12),
    reason="this release drops barriers on CPUs first",
)
needs_overlap = pytest.mark.skipif(
    importlib.util.find_spec("jax.experimental.overlap") is None,
    reason="this release has no jax.experimental.overlap",
)


@dataclass(frozen=True, slots=True)
class Recorder(Pass):
    name: ClassVar[str] = "recorder"
    texts: list[str] = field(default_factory=list, compare=False)

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        self.texts.append(module.to_text())
        return False


def seen_by_passes(jitted: Any, stage: str) -> str:
    recorder = Recorder()
    pipeline = Pipeline((recorder,))
    with runtime.install(pipeline, stage=stage, has_collectives=True):
        jitted.lower(rows()).compile()
    return recorder.texts[0]


def grouped(x: jax.Array) -> jax.Array:
    with set_xla_metadata(_scheduling_group_id="1"):
        moved = jax.lax.ppermute(x, "d", ring(8))
        work = jnp.sin(x) @ jnp.ones((8, 8), jnp.float32)
    return moved + work + jax.lax.ppermute(jnp.cos(x), "d", ring(8))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("pipeline", [COMBINER, SCHEDULER])
def test_scheduling_groups(host_devices: Devices, stage: str, pipeline: str) -> None:
    jitted = jax.jit(over_devices(host_devices(8), grouped, BY_ROWS))
    before = jitted(rows())
    assert GROUP in seen_by_passes(jitted, stage)
    with runtime.install(pipeline, stage=stage, modules="grouped") as installed:
        after = jitted(rows())
        text = jitted.lower(rows()).compile().as_text()
    assert installed.changed == 1
    assert GROUP in text
    assert same_bits(before, after)


@needs_barriers
@pytest.mark.parametrize("stage", STAGES)
def test_optimization_barriers(host_devices: Devices, stage: str) -> None:
    def barred(x: jax.Array) -> jax.Array:
        first = jax.lax.ppermute(x, "d", ring(8))
        x, first = jax.lax.optimization_barrier((x, first))
        return first + jax.lax.ppermute(jnp.cos(x), "d", ring(8))

    jitted = jax.jit(over_devices(host_devices(8), barred, BY_ROWS))
    assert " opt-barrier(" in seen_by_passes(jitted, stage)
    with runtime.install(COMBINER, stage=stage, modules="barred") as installed:
        jitted(rows())
    assert (installed.fired, installed.changed) == (1, 0)
    before = jitted(rows())
    behind = Recorder()
    with (
        runtime.install(SCHEDULER, stage=stage, modules="barred") as installed,
        runtime.install(Pipeline((behind,)), stage=stage, modules="barred"),
    ):
        after = jitted(rows())
    assert installed.changed == 1
    # XLA drops them later.
    assert " opt-barrier(" in behind.texts[0]
    assert same_bits(before, after)


@needs_overlap
@pytest.mark.parametrize("stage", STAGES)
def test_program_order(host_devices: Devices, stage: str) -> None:
    from jax.experimental.overlap import (  # pyright: ignore[reportMissingImports]
        program_order,
    )

    @program_order(enforce=True)
    def ordered(x: jax.Array) -> jax.Array:
        last = jax.lax.ppermute(x * 2, "d", ring(8))
        return last + jax.lax.ppermute(x, "d", ring(8)) + jnp.sin(x)

    mapped = over_devices(host_devices(8), ordered, BY_ROWS)
    mapped.__name__ = "ordered"
    jitted = jax.jit(mapped)
    before = jitted(rows())
    with runtime.install(
        f"{COMBINER},{SCHEDULER}", stage=stage, modules="ordered"
    ) as installed:
        after = jitted(rows())
        text = jitted.lower(rows()).compile().as_text()
    assert installed.reports[0].result is not None
    assert not installed.reports[0].result.passes[0].changed
    assert text.count(" collective-permute(") == 2
    assert same_bits(before, after)
