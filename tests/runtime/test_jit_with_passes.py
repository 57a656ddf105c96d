"""`runtime.jit`: passes for one function, and for no other. Five seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import pytest

from hlo_passes import Module, Pass, PassContext, Pipeline, Report, runtime
from tests.runtime.programs import (
    BY_ROWS,
    COMBINER,
    over_devices,
    ring,
    rows,
    same_bits,
    two_permutes,
)

Devices = Callable[[int], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Planted(Pass):
    name: ClassVar[str] = "planted"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        raise ZeroDivisionError


def permutes_of(text: str) -> int:
    return text.count(" collective-permute(")


def test_has_its_passes_and_leaves_others_alone(host_devices: Devices) -> None:
    mapped = over_devices(host_devices(8))
    with_passes = runtime.jit(mapped, passes=COMBINER)
    plain = jax.jit(mapped)
    before = with_passes.installation.fired  # functions of one name share it
    assert same_bits(with_passes(rows()), plain(rows()))
    assert with_passes.installation.fired == before + 1
    assert permutes_of(with_passes.lower(rows()).compile().as_text()) == 1
    assert permutes_of(plain.lower(rows()).compile().as_text()) == 2
    assert with_passes.__name__.startswith("two_permutes__hlo_passes_")


def test_two_pipelines_for_one_function(host_devices: Devices) -> None:
    mapped = over_devices(host_devices(8))
    both = runtime.jit(mapped, passes=COMBINER)
    sums = runtime.jit(mapped, passes="gpu-all-reduce-combiner")
    again = runtime.jit(mapped, passes=COMBINER)
    assert permutes_of(both.lower(rows()).compile().as_text()) == 1
    assert permutes_of(sums.lower(rows()).compile().as_text()) == 2
    assert again.installation is both.installation
    assert sums.installation is not both.installation


def test_late_compilations_and_removal(host_devices: Devices) -> None:
    def removed(x: jax.Array) -> Any:
        return two_permutes(x - 1)

    mapped = over_devices(host_devices(8), removed)
    lowered = runtime.jit(mapped, passes=COMBINER).lower(rows())
    assert permutes_of(lowered.compile().as_text()) == 1
    kept = runtime.jit(mapped, passes=COMBINER)
    kept.installation.remove()
    assert not kept.installation.active
    jax.clear_caches()
    assert permutes_of(kept.lower(rows()).compile().as_text()) == 2


def test_jit_options_static_arguments_and_gradients(host_devices: Devices) -> None:
    devices = host_devices(8)

    def scaled(x: jax.Array, factor: int) -> jax.Array:
        def per_device(y: jax.Array) -> jax.Array:
            a = jax.lax.ppermute(y, "d", ring(8))
            return a + jax.lax.ppermute(y * factor, "d", ring(8))

        return over_devices(devices, per_device, BY_ROWS)(x).sum()

    jitted = runtime.jit(scaled, passes=COMBINER, static_argnums=1)
    assert float(jitted(rows(), 3)) == float(scaled(rows(), 3))
    gradient = jax.grad(jitted)(rows(), 3)
    assert jitted.installation.fired >= 2
    assert same_bits(gradient, jnp.full((8, 8), 4.0, jnp.float32))


def test_decorates_with_options_as_jax_jit_does(host_devices: Devices) -> None:
    mapped = over_devices(host_devices(8))

    def repeated(x: jax.Array, times: int) -> Any:
        return mapped(x * times)

    plain = jax.jit(repeated, static_argnames=("times",))
    decorated = runtime.jit(passes=COMBINER, static_argnames=("times",))(repeated)
    assert same_bits(decorated(rows(), times=3), plain(rows(), times=3))
    assert decorated.installation.changed == 1
    decorated.installation.remove()


def test_compilations_of_other_threads_at_the_same_moment_are_untouched(
    host_devices: Devices,
) -> None:
    devices = host_devices(8)
    texts: dict[tuple[str, int], str] = {}
    start = threading.Barrier(8)

    def compile_one(kind: str, number: int) -> None:
        def scaled(x: jax.Array) -> Any:
            return two_permutes(x * number)

        scaled.__qualname__ = f"{kind}{number}"
        mapped = over_devices(devices, scaled)
        jitted = runtime.jit(mapped, passes=COMBINER) if kind == "ours" else None
        start.wait()
        lowered = (jitted or jax.jit(mapped)).lower(rows())
        texts[kind, number] = lowered.compile().as_text()

    threads = [
        threading.Thread(target=compile_one, args=(kind, number))
        for kind in ("ours", "other")
        for number in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = {key: permutes_of(text) for key, text in texts.items()}
    assert found == {
        (kind, number): 1 if kind == "ours" else 2
        for kind in ("ours", "other")
        for number in range(1, 5)
    }


def test_an_installation_beside_it(host_devices: Devices) -> None:
    def beside(x: jax.Array) -> Any:
        return two_permutes(x + 1)

    jitted = runtime.jit(over_devices(host_devices(8), beside), passes=COMBINER)
    with runtime.install(COMBINER, modules="beside") as installed:
        jitted(rows())
    assert jitted.installation.changed == 1
    assert (installed.fired, installed.changed) == (1, 0)


def test_a_failure_is_the_callers(host_devices: Devices) -> None:
    def failing(x: jax.Array) -> Any:
        return two_permutes(x + 2)

    mapped = over_devices(host_devices(8), failing)
    jitted = runtime.jit(mapped, passes="fixed-point{max-iterations=1}(hlo-dce)")
    jitted(rows())
    planted = runtime.jit(mapped, passes=Pipeline((Planted(),)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="E001"):
        planted(rows())
    assert [f.code for f in planted.installation.failures] == ["E001"]
    assert same_bits(jitted(rows()), jax.jit(mapped)(rows()))


def test_what_cannot_be_called_is_refused() -> None:
    number: Any = 3
    with pytest.raises(TypeError, match=r"jit\(\) takes a function, not int"):
        runtime.jit(number, passes=COMBINER)
    with pytest.raises(TypeError, match=r"jit\(\) takes a function, not int"):
        runtime.jit(passes=COMBINER)(number)
