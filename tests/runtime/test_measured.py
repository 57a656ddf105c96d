"""A trace that JAX's profiler writes here, on emulated devices, prices its module."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.scheduler.measured.trace import measured_of, read_trace

RUNS, LAYERS = 3, 4


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory):
    """(module, its trace in both forms)."""
    folder = tmp_path_factory.mktemp("trace")
    mesh = Mesh(jax.devices()[:8], ("x",))

    def step(a, w):
        return jax.lax.scan(lambda c, one: (jnp.tanh(c @ one), None), a, w)[0].sum()

    rows, columns = PartitionSpec("x"), PartitionSpec(None, "x")
    jitted = jax.jit(
        step, in_shardings=(NamedSharding(mesh, rows), NamedSharding(mesh, columns))
    )
    a, w = jnp.ones((128, 128)), jnp.ones((LAYERS, 128, 128))
    module = hlo_passes.parse(jitted.lower(a, w).compile().as_text())
    jitted(a, w).block_until_ready()
    with jax.profiler.trace(str(folder)):
        for _ in range(RUNS):
            jitted(a, w).block_until_ready()
    (plane,) = folder.rglob("*.xplane.pb")
    (trace,) = folder.rglob("*.trace.json.gz")
    return module, str(plane), str(trace)


def test_both_forms_say_the_same(traced) -> None:
    module, *files = traced
    plane, trace = (measured_of(module, read_trace(file)) for file in files)
    assert (plane.runs, plane.devices) == (trace.runs, trace.devices) == (RUNS, 8)
    assert plane.us == pytest.approx(trace.us, rel=1e-3, abs=2e-3)
    names = {i.name for c in module.computations for i in c.instructions}
    assert plane.us.keys() <= names
    assert any(name.startswith("all-gather") for name in plane.us)


def test_the_module_takes_what_was_measured(traced) -> None:
    module, plane, _ = traced
    timeline = scheduler.simulate(module, measured=plane)
    assert timeline.overlay is not None
    found = timeline.overlay.measured
    for row in timeline.collectives:
        assert (row.latency_us, row.model) == (found.us[row.name], "measured")
    body = [r for r in timeline.overlay.rows if r.executions == LAYERS]
    assert body
    # The parts of a run are no longer than the run; a CPU also waits between them.
    assert 0.0 < timeline.step_time_us <= 1.05 * found.step_us
