"""The schedule improver inside jit: the same bits, its options, and Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from hlo_passes import runtime
from hlo_passes.runtime.installation.install import Installation
from hlo_passes.scheduler.improver.window import Window

Devices = Callable[[int], Sequence[Any]]
_SIZE = 256


def _improver(options: str) -> Installation:
    """After CPUs' own scheduler, which puts every done right after its start."""
    return runtime.install(
        f"async-collective-creator,schedule-improver{{{options}}}",
        stage="post-scheduler",
        modules="gathered_step",
    )


def _step(devices: Sequence[Any]) -> Callable[[], Any]:
    """A step whose gathers have work that could hide them."""
    mesh = Mesh(np.array(devices), ("d",))

    def gathered_step(x: Any, w: Any, v: Any) -> Any:
        first = jnp.tanh(x @ jax.lax.all_gather(w, "d", tiled=True))
        second = jnp.sin(x @ jax.lax.all_gather(v, "d", tiled=True))
        return first @ second

    specs = (P("d"), P("d"), P("d"))
    mapped = jax.shard_map(gathered_step, mesh=mesh, in_specs=specs, out_specs=P("d"))
    jitted = jax.jit(mapped)
    count = len(devices) * _SIZE
    square = np.linspace(-1.0, 1.0, _SIZE * _SIZE, dtype=np.float32)
    tall = np.tile(square.reshape(_SIZE, _SIZE), (len(devices), 1))
    assert tall.shape[0] == count
    whole = square.reshape(_SIZE, _SIZE)
    return lambda: np.asarray(jitted(tall, whole, whole))


def _details(installed: Installation) -> dict[str, Any]:
    (report,) = installed.reports
    assert report.result is not None
    assert report.seconds > 0.0
    found = report.result.passes[-1].details["improvement"]
    assert isinstance(found, dict)
    return found


def test_improves_inside_jit_to_the_same_bits(host_devices: Devices) -> None:
    step = _step(host_devices(8))
    before = step()
    with _improver("effort=0.1,min-gain=0,memory-cap=limit") as installed:
        after = step()
    assert (installed.fired, installed.changed) == (1, 1)
    found = _details(installed)
    assert found["step_us"] < found["step_before_us"]
    assert 0.0 < found["seconds"] <= installed.reports[0].seconds
    assert before.tobytes() == after.tobytes()


@pytest.mark.parametrize("options", ["effort=0", "seconds=0"])
def test_without_effort_or_time_the_order_stays(
    host_devices: Devices, options: str
) -> None:
    step = _step(host_devices(8))
    with _improver(options) as installed:
        step()
    found = _details(installed)
    assert found["moves_tried"] == 0
    assert found["step_us"] == found["step_before_us"]


def test_ctrl_c_ends_the_compilation(
    host_devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = _step(host_devices(8))

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Window, "try_window", interrupted)
        with (
            _improver("memory-cap=limit") as installed,
            pytest.raises((KeyboardInterrupt, jax.errors.JaxRuntimeError)) as ended,
        ):
            step()
    assert "KeyboardInterrupt" in ended.exconly()
    assert installed.fired == 0
    # Nothing half-done stays behind: the next call compiles, and computes.
    assert step().shape == (8 * _SIZE, _SIZE)
