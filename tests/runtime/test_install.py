"""`runtime.install`: passes inside jax.jit's own compilations on CPUs. Ten seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from hlo_passes import (
    Module,
    Pass,
    PassContext,
    Pipeline,
    PipelineSpecError,
    Report,
    runtime,
)
from hlo_passes.errors import UsageError
from hlo_passes.runtime.installation.install import PlatformError
from hlo_passes.runtime.jax_private import keeps_donation
from tests.runtime.programs import (
    COMBINER,
    over_devices,
    ring,
    rows,
    same_bits,
    two_permutes,
)

STAGES = ("pre-scheduler", "post-scheduler")
Devices = Callable[[int], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Planted(Pass):
    """Fails as asked."""

    name: ClassVar[str] = "planted"
    message: str = "planted failure"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        raise ZeroDivisionError(self.message)


@dataclass(frozen=True, slots=True)
class Nothing(Pass):
    """Reads the module and leaves it."""

    name: ClassVar[str] = "nothing"

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        report.count("instructions", module.instruction_count)
        return False


@pytest.mark.parametrize("stage", STAGES)
def test_combines_inside_jit_to_the_same_bits(
    host_devices: Devices, stage: str
) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    before = jitted(rows())
    with runtime.install(
        COMBINER, stage=stage, modules="jit_two_permutes"
    ) as installed:
        inside = jitted(rows())
        text = jitted.lower(rows()).compile().as_text()
    assert (installed.fired, installed.changed) == (1, 1)
    assert installed.seen >= installed.fired
    report = installed.reports[0]
    assert (report.module, report.platform) == ("jit_two_permutes", "cpu")
    assert (report.stage, report.error) == (stage, None)
    names = "collective-permute-combiner"  # the other one had nothing to do
    told = f"<jit_two_permutes on cpu at {stage}: changed by {names}, "
    assert repr(report).startswith(told)
    assert len(repr(report)) < 150
    assert report.result is not None
    assert report.result.passes[0].statistics["collectives-combined"] == 2
    assert text.count(" collective-permute(") == 1
    assert text.count(" all-reduce(") == 1
    assert same_bits(before, inside)


def test_what_was_compiled_inside_is_not_used_outside(host_devices: Devices) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    with runtime.install(COMBINER, modules="two_permutes") as installed:
        jitted(rows())
        jitted(rows())
        assert installed.fired == 1
    assert not installed.active
    with runtime.install(Pipeline((Nothing(),)), modules="two_permutes") as counting:
        jitted(rows())
    assert (counting.fired, counting.changed) == (1, 0)
    text = jitted.lower(rows()).compile().as_text()
    assert text.count(" collective-permute(") == 2
    assert counting.fired == 1


def test_a_permanent_installation_ends_with_remove(host_devices: Devices) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    installed = runtime.install(COMBINER, modules="two_permutes")
    try:
        jitted(rows())
    finally:
        installed.remove()
    installed.remove()
    jax.clear_caches()
    jitted(rows())
    assert installed.fired == 1


def test_installations_run_in_their_order(host_devices: Devices) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    with (
        runtime.install(COMBINER, modules="two_permutes") as first,
        runtime.install(COMBINER, modules="two_permutes") as second,
    ):
        jitted(rows())
    assert (first.changed, second.changed) == (1, 0)
    assert second.fired == 1


def test_passes_that_need_collectives_skip_modules_without(
    host_devices: Devices,
) -> None:
    host_devices(8)
    with runtime.install(COMBINER) as installed:
        jax.jit(lambda x: x * 2 + 1)(np.float32(1))
    assert installed.seen == 1
    assert installed.fired == 0
    with runtime.install("hlo-dce") as installed:
        jax.jit(lambda x: x * 2 + 1)(np.float32(1))
    assert installed.fired == 1


def test_filters(host_devices: Devices) -> None:
    host_devices(8)

    def fired(**filters: Any) -> int:
        nothing = Pipeline((Nothing(),))
        with runtime.install(nothing, **filters) as installed:
            jax.jit(lambda x: jnp.cos(x) * 2 + 1).lower(np.float32(1)).compile()
        assert installed.seen == 1
        return installed.fired

    assert fired() == 1
    assert fired(modules="lambda") == 1
    assert fired(modules="^lambda") == 0
    assert fired(min_instructions=4) == 1
    assert fired(min_instructions=400) == 0
    assert fired(max_instructions=3) == 0
    assert fired(has_collectives=True) == 0
    assert fired(modules=lambda facts: facts.instruction_count > 3) == 1
    assert fired(modules=lambda facts: facts.has_collectives) == 0


@pytest.mark.parametrize("stage", STAGES)
def test_failing_passes_fail_the_compilation_with_their_message(
    host_devices: Devices, stage: str
) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    planted = Pipeline((Planted(),))
    with runtime.install(planted, stage=stage, modules="two_permutes") as installed:
        for _ in range(2):
            with pytest.raises(jax.errors.JaxRuntimeError) as refused:
                jitted(rows())
            assert "error[E001]: planted raised ZeroDivisionError: planted" in str(
                refused.value
            )
        assert float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
    assert installed.fired == 0
    assert [f.code for f in installed.failures] == ["E001", "E001"]
    assert np.isfinite(np.asarray(jitted(rows())[0])).all()


def test_pass_through_compiles_what_was_there(
    host_devices: Devices, caplog: pytest.LogCaptureFixture
) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    before = jitted(rows())
    planted = Pipeline((Planted(),))
    with (
        caplog.at_level(logging.WARNING, logger="hlo_passes.runtime"),
        runtime.install(
            planted, modules="two_permutes", on_error="pass-through"
        ) as installed,
    ):
        assert same_bits(jitted(rows()), before)
    assert "jit_two_permutes stays unchanged" in caplog.text
    assert [f.code for f in installed.failures] == ["E001"]


def test_a_filter_that_raises_passes_through_too(host_devices: Devices) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    before = jitted(rows())

    def broken(facts: object) -> bool:
        raise KeyError("planted")

    with runtime.install(
        "hlo-dce", modules=broken, on_error="pass-through"
    ) as installed:
        assert same_bits(jitted(rows()), before)
    assert installed.fired == 0
    assert "a filter function failed: KeyError" in str(installed.failures[0])


@pytest.mark.parametrize("stage", STAGES)
def test_a_schedule_made_of_starts_and_dones_runs_on_cpus(
    host_devices: Devices, stage: str
) -> None:
    jitted = jax.jit(over_devices(host_devices(8)))
    before = jitted(rows())
    pipeline = "async-collective-creator,latency-hiding-scheduler"
    with runtime.install(pipeline, stage=stage, modules="two_permutes") as installed:
        inside = jitted(rows())
        text = jitted.lower(rows()).compile().as_text()
    assert installed.fired == 1
    assert installed.changed == 1
    assert "-start(" not in text
    assert same_bits(before, inside)


def test_an_order_at_pre_scheduler_is_not_handed_over(host_devices: Devices) -> None:
    # XLA goes on to change the module there, and dies over a schedule.
    jitted = jax.jit(over_devices(host_devices(8)))
    with runtime.install("latency-hiding-scheduler", modules="two_permutes") as at_pre:
        jitted(rows())
    assert (at_pre.fired, at_pre.changed) == (1, 0)


def test_autodiff_scan_and_donation(host_devices: Devices) -> None:
    devices = host_devices(8)

    def body(x: jax.Array) -> jax.Array:
        def step(c: jax.Array, _: Any) -> tuple[jax.Array, jax.Array]:
            a = jax.lax.ppermute(c, "d", ring(8))
            b = jax.lax.ppermute(jnp.cos(c), "d", ring(8))
            return a * 0.5 + b, a.sum()

        return jax.lax.scan(step, x, None, length=3)[0]

    mapped = over_devices(devices, body, P("d"))
    mapped.__name__ = "loop"
    gradient = jax.jit(jax.grad(lambda x: (mapped(x) ** 2).sum()))
    update = jax.jit(lambda x: mapped(x) + 1, donate_argnums=0)
    sharding = NamedSharding(jax.sharding.Mesh(np.array(devices[:8]), ("d",)), P("d"))

    def run() -> tuple[Any, Any, bool]:
        donated = jax.device_put(rows(), sharding)
        return gradient(rows()), update(donated), donated.is_deleted()

    before = run()
    for stage in STAGES:
        with runtime.install(COMBINER, stage=stage) as installed:
            after = run()
        assert installed.changed >= 2
        assert same_bits(before[:2], after[:2])
        assert before[2]
        assert after[2] == keeps_donation()


def test_pmap(host_devices: Devices) -> None:
    devices = host_devices(8)[:8]
    mapped = jax.pmap(two_permutes, "d", devices=list(devices))
    before = mapped(rows())
    with runtime.install(COMBINER, has_collectives=True) as installed:
        after = mapped(rows())
    assert installed.changed == 1
    assert same_bits(before, after)


def test_threads(host_devices: Devices) -> None:
    devices = host_devices(8)
    texts: dict[int, str] = {}
    problems: list[Exception] = []

    def compile_one(number: int) -> None:
        def scaled(x: jax.Array) -> Any:
            return two_permutes(x * number)

        try:
            lowered = jax.jit(over_devices(devices, scaled)).lower(rows())
            texts[number] = lowered.compile().as_text()
        except Exception as problem:
            problems.append(problem)

    with runtime.install(COMBINER, modules="scaled") as installed:
        threads = [threading.Thread(target=compile_one, args=(n,)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not problems
    assert (installed.fired, installed.changed) == (8, 8)
    assert all(text.count(" collective-permute(") == 1 for text in texts.values())


def test_threads_install_and_remove_while_others_compile(host_devices: Devices) -> None:
    devices = host_devices(8)

    def job(number: int) -> int:
        def scaled(x: jax.Array) -> Any:
            return two_permutes(x * number)

        scaled.__name__ = f"scaled{number}"
        wanted = f"jit_{scaled.__name__}$"
        with runtime.install(COMBINER, modules=wanted) as installed:
            jax.jit(over_devices(devices, scaled)).lower(rows()).compile()
        return installed.changed

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(job, range(1, 13))) == [1] * 12


@pytest.mark.parametrize("stage", STAGES)
def test_layout_schedule_and_aliasing_survive(
    host_devices: Devices, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    jitted = jax.jit(over_devices(host_devices(8)), donate_argnums=0)
    plain = jitted.lower(rows()).compile().as_text()
    assert "input_output_alias=" in plain
    with runtime.install(COMBINER, stage=stage) as installed:
        changed = jitted.lower(rows()).compile().as_text()
    assert installed.changed == 1
    assert "is_scheduled=true" in changed
    assert ("input_output_alias=" in changed) == keeps_donation()
    assert ("forgets donated buffers" in caplog.text) != keeps_donation()
    kept = "entry_computation_layout"
    assert plain.split(kept)[1].split("\n")[0] == changed.split(kept)[1].split("\n")[0]


def test_arguments_are_looked_at() -> None:
    with pytest.raises(UsageError, match=r"U060.*stage='pre'"):
        runtime.install("hlo-dce", stage="pre")
    with pytest.raises(UsageError, match=r"U060.*on_error"):
        runtime.install("hlo-dce", on_error="ignore")
    with pytest.raises(UsageError, match=r"U060.*multiprocess"):
        runtime.install("hlo-dce", multiprocess="yes")
    with pytest.raises(PipelineSpecError, match=r"U011"):
        runtime.install("hlo-dcee")
    with pytest.raises(UsageError, match=r"U061.*hlo-cse"):
        runtime.install("fixed-point(hlo-dce,hlo-cse)")
    for name in ("layout-chooser", "scratch-budget-fusion"):
        with pytest.raises(UsageError, match=rf"U061.*{name}"):
            runtime.install(name)
    with pytest.raises(PlatformError, match="R008"):
        runtime.install("hlo-dce", platforms="nowhere")
    with pytest.raises(UsageError, match=r"U060.*no platforms"):
        runtime.install("hlo-dce", platforms=())
    with pytest.raises(UsageError, match=r"U060.*not a regular expression"):
        runtime.install("hlo-dce", modules="step(")
    with pytest.raises(UsageError, match=r"U060.*not a regular expression"):
        runtime.install("hlo-dce", modules="(" * 5000)


def test_a_platform_named_twice_is_one(host_devices: Devices) -> None:
    with runtime.install(COMBINER, platforms=["cpu", "cpu"]) as installed:
        jax.jit(over_devices(host_devices(8))).lower(rows()).compile()
    assert (installed.platforms, installed.fired) == (("cpu",), 1)


def test_what_was_removed_is_not_entered_again() -> None:
    installed = runtime.install("hlo-dce", modules="nothing")
    with installed:
        pass
    with pytest.raises(UsageError, match=r"U060.*was removed"), installed:
        pass
