"""What makes a lever pointless, and what our own passes make of a dumped module."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from dataclasses import replace

import hlo_passes
from hlo_passes import Pipeline, Pricing
from hlo_passes.passes.framework.registry import find_pass
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.choices import choices_for
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.facts import facts_of
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.own_passes import OwnPassesEvaluator
from hlo_passes.scheduler.tuning.own_schedule import (
    BeforeScheduling,
    elided_copies,
    rewritten_fusions,
    schedule_pipeline,
    simulated,
)
from hlo_passes.scheduler.tuning.plugged_in import (
    CANNOT_BE_PLUGGED_IN,
    PASS_LEVERS,
    PassLever,
    PluggedIn,
    passes_for,
)
from hlo_passes.scheduler.tuning.result import unpriced_text
from hlo_passes.xla_release import xla_release
from tests.modules import REPOSITORY

FLAT = """HloModule m, num_partitions=8
ENTRY %main (x: f32[8,128], y: f32[1024,64]) -> f32[64,64] {
  %x = f32[8,128]{1,0} parameter(0)
  %y = f32[1024,64]{1,0} parameter(1)
  %g = f32[64,128]{1,0} all-gather(%x), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  %c = f32[] constant(1)
  %b = f32[8,1024]{1,0} broadcast(%c), dimensions={}
  %h = f32[64,1024]{1,0} all-gather(%b), channel_id=2, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, use_global_device_ids=true
  ROOT %d = f32[64,64]{1,0} dot(%h, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
IN_FLIGHT = """HloModule m, is_scheduled=true, num_partitions=4
ENTRY %main (x: f32[1024], y: f32[1024]) -> (f32[GATHERED], f32[GATHERED]) {
  %x = f32[1024]{0} parameter(0)
  %y = f32[1024]{0} parameter(1)
  %a = (f32[1024]{0}, f32[GATHERED]{0}) all-gather-start(%x), channel_id=1, replica_groups=FIRST, dimensions={0}, use_global_device_ids=true
  %b = (f32[1024]{0}, f32[GATHERED]{0}) all-gather-start(%y), channel_id=2, replica_groups=SECOND, dimensions={0}, use_global_device_ids=true
  %da = f32[GATHERED]{0} all-gather-done(%a)
  %db = f32[GATHERED]{0} all-gather-done(%b)
  ROOT %t = (f32[GATHERED]{0}, f32[GATHERED]{0}) tuple(%da, %db)
}
"""
TUTORIAL = REPOSITORY / "docs" / "tutorial"


def facts(text: str = FLAT, machine: str = "1x1x8"):
    return facts_of(hlo_passes.parse(text), Topology.parse(machine))


def test_facts_of_a_module_without_loops() -> None:
    found = facts()
    assert found.kinds == {"all-gather"}
    assert dict(found.together)["all-gather"] == 2
    assert found.has_products
    assert not found.loops
    dropped = found.dropped()
    assert dropped["pipelined all-gather"] == "no all-gather is in a loop"
    assert dropped["optimization level"] == "it has no loop"
    assert dropped["all-reduce in steps"] == "it has no all-reduce"
    assert "combined all-gather" not in dropped
    assert "windowed einsum" not in dropped


def test_loops_of_a_training_step() -> None:
    text = (TUTORIAL / "training.h100_sxm.hlo").read_text()
    found = facts(text, "2x1x8")
    assert found.looped == {"all-gather", "reduce-scatter"}
    # What pipelines all-reduces runs before reduce-scatters are made of them.
    assert "pipelined all-reduce" not in found.dropped()
    assert "all-reduce in steps" in found.dropped()


COMBINED = """HloModule m, num_partitions=2
ENTRY %main (x: f32[8], y: f32[8]) -> (f32[16], f32[16]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  ROOT %g = (f32[16]{0}, f32[16]{0}) all-gather(%x, %y), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
}
"""


def test_a_combined_collective_counts_for_each_operand() -> None:
    assert dict(facts(COMBINED).together) == {"": 2, "all-gather": 2}


def test_every_lever_is_tried_or_has_a_reason() -> None:
    for release in ("0.10.2", "0.12"):
        found = choices_for(facts(), xla_release(release), is_ordered=True)
        assert set(LEVERS) <= set(found.settings) | set(found.dropped)
        assert not set(found.settings) & set(found.dropped)
        assert found.settings["scheduler"] == ("off",)
        assert "JAX_ENABLE_PGLE" in found.dropped["profile-guided scheduling"]


def test_our_passes_take_a_partitioned_module_on() -> None:
    module = hlo_passes.parse(FLAT)
    found = OwnPassesEvaluator.of(module, Pricing(xla="0.12"), Rules())
    assert found.passes == "xla-gpu"
    chosen = Combination.of({"overlap limit": "2", "combined all-gather": "off"})
    assert found.pipeline(chosen) == (
        "xla-gpu{parallel-collective-overlap-limit=2,all-gather-combine-threshold-bytes=0}"
    )
    outcomes = dict(found.compiled([Combination(), chosen]))
    assert all(
        outcome.is_done and outcome.source == "own" for outcome in outcomes.values()
    )
    assert not found.has(LEVERS["windowed einsum"].settings[0])


def test_a_scheduled_module_is_its_own_baseline() -> None:
    text = (TUTORIAL / "step.h100_sxm.hlo").read_text()
    module = hlo_passes.parse(text)
    found = OwnPassesEvaluator.of(module, Pricing(xla="0.10.2"), Rules())
    assert found.passes == "gpu-schedule"
    assert found.pipeline(Combination()) == ""
    # Without the scheduler the order given would stay, which is no setting of XLA.
    assert not found.has(LEVERS["scheduler"].candidate("off"))
    (baseline,) = dict(found.compiled([Combination()])).values()
    assert (
        baseline.step_us
        == hlo_passes.scheduler.simulate(module, xla="0.10.2").step_time_us
    )


#: XLA's table has no product of bf16 into f32.
WIDENED = """HloModule m, is_scheduled=true, num_partitions=8

ENTRY %e (a: bf16[512,1024], b: bf16[1024,2048]) -> f32[512,2048] {
  %a = bf16[512,1024]{1,0} parameter(0)
  %b = bf16[1024,2048]{1,0} parameter(1)
  ROOT %d = f32[512,2048]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def test_products_that_count_several_times_are_priced_once() -> None:
    module = hlo_passes.parse(WIDENED)
    found = OwnPassesEvaluator.of(module, Pricing(xla="0.12"), Rules())
    assert found.misleads
    assert (found.on.extended, found.prices.extended) == (False, True)
    outcome = found.outcome(Combination())
    assert outcome.overcounted == 0
    once = hlo_passes.scheduler.simulate(module, xla="0.12", extended=True)
    assert outcome.step_us == once.step_time_us
    often = hlo_passes.scheduler.simulate(module, xla="0.12")
    assert (often.overcounted, often.step_time_us > 10 * once.step_time_us) == (1, True)


def test_other_products_have_the_prices_of_xla() -> None:
    module = hlo_passes.parse(WIDENED.replace("f32[512", "bf16[512"))
    found = OwnPassesEvaluator.of(module, Pricing(xla="0.12"), Rules())
    assert not found.misleads
    assert not found.prices.extended


def test_the_pipeline_of_an_order() -> None:
    chosen = Combination.of(
        {"overlap limit": "4", "early starts": "on", "loop unrolling": "full"}
    )
    assert schedule_pipeline(chosen) == (
        "latency-hiding-scheduler{parallel-collective-overlap-limit=4,"
        "collective-start-as-early-as-possible=true},gpu-convert-async-collectives-to-sync"
    )


def test_copies_that_came_back_were_not_left_out() -> None:
    def module(*copies: str):
        lines = "".join(
            f"  %{name} = f32[{n}]{{0}} copy(%p{n})\n"
            for name, n in (c.split(":") for c in copies)
        )
        return hlo_passes.parse(
            "HloModule m, is_scheduled=true\nENTRY %main (p4: f32[4], p8: f32[8]) -> f32[4] {\n"
            "  %p4 = f32[4]{0} parameter(0)\n  %p8 = f32[8]{0} parameter(1)\n"
            f"{lines}  ROOT %n = f32[4]{{0}} negate(%p4)\n}}\n"
        )

    assert elided_copies(module("a:4", "b:8", "c:8"), module("c:8", "d:8")) == {"a"}


def tune(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hlo_passes", "tune", *arguments],
        capture_output=True, text=True, check=False, cwd=REPOSITORY,
    )  # fmt: skip


def test_the_command_on_a_dumped_module(tmp_path: pathlib.Path) -> None:
    """A second collective in flight is what the tutorial finds by hand."""
    flags = tmp_path / "flags.env"
    run = tune(
        "docs/tutorial/step.h100_sxm.hlo",
        "--xla=0.10.2",
        "--budget=5",
        f"--output={flags}",
        "--json",
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    keys = "baseline_step_us best_step_us range_us peak_memory_bytes xla_flags compiler_options levers evaluations seconds"
    assert set(keys.split()) <= set(found)
    assert found["best"] == {"overlap limit": "2"}
    assert found["best_step_us"] < 0.9 * found["baseline_step_us"]
    assert found["range_us"][0] <= found["best_step_us"] <= found["range_us"][1]
    assert found["evaluations"] <= 5
    flag = "--xla_gpu_experimental_parallel_collective_overlap_limit=2"
    assert found["xla_flags"] == flag
    assert flags.read_text().endswith(f'\nXLA_FLAGS="{flag}"\n')
    verdicts = {
        (row["name"], row["setting"]): row["verdict"] for row in found["levers"]
    }
    assert verdicts["overlap limit", "2"] == "set"
    assert verdicts["loop unrolling", ""] == "pointless"


def test_the_text_says_who_made_the_modules_and_is_the_same_again() -> None:
    arguments = (
        "docs/tutorial/step.h100_sxm.hlo",
        "--xla=0.10.2",
        "--budget=3",
        "--memory=1MiB",
    )
    runs = [tune(*arguments) for _ in range(2)]
    texts = []
    for run in runs:
        assert run.returncode == 0, run.stderr
        texts.append(
            [
                line
                for line in run.stdout.splitlines()
                if " combinations made by" not in line
            ]
        )
    assert texts[0] == texts[1]
    told = runs[0].stdout
    assert "made by our own passes" in told
    assert "nothing ran on a GPU" in told
    assert "more than 1.0 MiB" in told


def test_what_cannot_be_tuned() -> None:
    for arguments, code, words in (
        (("no/such.hlo",), 2, "no such file"),
        (
            ("docs/tutorial/step.h100_sxm.hlo", "--memory=much"),
            2,
            "is not a number of bytes",
        ),
        (("docs/tutorial/step.h100_sxm.hlo", "--target=h100_sxn"), 2, "h100_sxm"),
    ):
        run = tune(*arguments)
        assert run.returncode == code, run.stderr
        assert words in run.stderr
        assert "Traceback" not in run.stderr


def test_streams_on_which_collectives_could_wait_for_each_other_are_refused() -> None:
    """XLA's scheduler keeps them apart; where it did not, the job could hang."""

    def module(first: str, second: str, gathered: int) -> hlo_passes.Module:
        text = IN_FLIGHT.replace("FIRST", first).replace("SECOND", second)
        return hlo_passes.parse(text.replace("GATHERED", str(gathered)))

    on = Pricing(target="h100_sxm", topology="1x1x4")
    streams = Combination.of({"overlap limit": "2", "several streams": "on"})
    rows, columns = "{{0,1},{2,3}}", "{{0,2},{1,3}}"
    apart = simulated(module(rows, columns, 2048), streams, on, Rules())
    assert apart.is_done
    both = module("{{0,1,2,3}}", "{{0,1,2,3}}", 4096)
    together = simulated(both, streams, on, Rules())
    assert together.problem == (
        "%b and %a would be in flight on two streams, where they could wait for each "
        "other in a cycle"
    )
    assert simulated(both, Combination.of({"overlap limit": "2"}), on, Rules()).is_done


def test_passes_of_ours_that_may_matter() -> None:
    assert [row.name for row in passes_for(facts())] == [
        "collective-matmul",
        "collective-ring-decomposer",
        "collective-backend-choice",
    ]
    alone = FLAT.replace("dot(%h, %y)", "foo(%h, %y)")
    assert [row.name for row in passes_for(facts(alone))] == [
        "collective-ring-decomposer",
        "collective-backend-choice",
    ]
    reduced = alone.replace("foo(%h, %y)", "all-reduce(%y)")
    assert "uneven-reduce-scatter-creator" in [
        row.name for row in passes_for(facts(reduced))
    ]
    for row in PASS_LEVERS:
        forms = [Pipeline.parse(form.name).passes[0] for form in row.forms()]
        asks = [getattr(form, "after_xla", None) for form in forms]
        assert asks == ([True, False] if row.asks else [None])
    for name in CANNOT_BE_PLUGGED_IN:
        assert find_pass(name).name == name


def test_fusions_that_become_another_kernel_after_scheduling() -> None:
    """XLA 0.10.2 does that; our order of the module has them, too."""
    before = """HloModule m, is_scheduled=true, num_partitions=2
%f (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}
%g (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %n = f32[8]{0} negate(%p)
}
ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %a = f32[8]{0} fusion(%x), kind=kLoop, calls=%f
  ROOT %b = f32[8]{0} fusion(%a), kind=kLoop, calls=%g
}
"""
    config = '{"fusion_backend_config":{"kind":"__custom_fusion"}}'
    after = before.replace(
        "fusion(%x), kind=kLoop, calls=%f",
        f"fusion(%x), kind=kCustom, calls=%f, backend_config={config}",
    )
    modules = hlo_passes.parse(before), hlo_passes.parse(after)
    rewritten = rewritten_fusions(*modules)
    assert rewritten == (("a", "kCustom", config),)
    on = Pricing(target="h100_sxm", topology="1x1x2", xla="0.10.2")
    ours = BeforeScheduling(before, frozenset(), on, Rules(), rewritten)
    kinds = {
        i.name: i.attributes.get("kind")
        for i in ours.scheduled(Combination()).entry.instructions
    }
    assert kinds == {"x": None, "a": "kCustom", "b": "kLoop"}
    assert rewritten_fusions(modules[0], modules[0]) == ()


def test_of_two_forms_the_one_that_fits_is_told() -> None:
    asked, free = PassLever("collective-matmul").forms()
    small = PluggedIn(asked, Outcome(95.0, memory_bytes=50), changes=True, install="")
    large = PluggedIn(free, Outcome(94.9, memory_bytes=200), changes=True, install="")
    failed = PluggedIn(free, Outcome.failed("no"), changes=False, install="")
    for most, best in ((None, large), (100, small), (10, small), (400, large)):
        both = sorted((large, failed, small), key=lambda each: each.rank(most))
        assert both[0] is best
        assert both[-1] is failed


def test_why_xlas_prices_mislead() -> None:
    assert Outcome(1.0).misleads == ""
    assert "matrix products" in Outcome(1.0, overcounted=2).misleads
    both = Outcome(1.0, overcounted=1, neglected=True, neglected_us=1.0)
    assert both.misleads.endswith(
        ", and XLA's prices leave out the bytes of some kernels"
    )
    told = unpriced_text(replace(both, unpriced=2), Outcome(1.0))
    assert told.startswith("2 operations without a price, 1 matrix product that ")
    assert told.endswith("kernels whose bytes have no price (--extended has one)")


def test_a_shorter_step_with_the_same_kernels_compares() -> None:
    """Their share grows as the step gets shorter; nothing was added."""
    baseline = Outcome(1000.0, neglected_us=4.9)
    same = Outcome(900.0, neglected=True, neglected_us=4.9)
    more = Outcome(900.0, neglected=True, neglected_us=10.0)
    assert not same.neglects_more_than(baseline)
    assert more.neglects_more_than(baseline)
    assert not baseline.neglects_more_than(more)
    assert unpriced_text(more, baseline).startswith("kernels whose bytes have no price")
    both = replace(baseline, unpriced=1), replace(more, unpriced=1)
    assert "operation" not in unpriced_text(both[1], both[0])


def test_a_form_without_prices_ranks_last() -> None:
    lever = PASS_LEVERS[0]
    priced = PluggedIn(lever, Outcome(95.0), changes=True, install="")
    fast = PluggedIn(lever, Outcome(60.0, neglected=True), changes=True, install="")
    assert min((fast, priced), key=lambda each: each.rank(None)) is priced


def test_kernels_without_a_price_are_priced_by_their_bytes() -> None:
    """A copy of 64 MiB beside a sum of as much."""
    text = """HloModule step, is_scheduled=true

%fused (p: f32[4096,4096]) -> f32[4096,4096] {
  %p = f32[4096,4096] parameter(0)
  ROOT %sum = f32[4096,4096] add(%p, %p)
}

ENTRY %main (x: f32[4096,4096]) -> f32[4096,4096] {
  %x = f32[4096,4096] parameter(0)
  %copied = f32[4096,4096] copy(%x)
  ROOT %f = f32[4096,4096] fusion(%copied), kind=kLoop, calls=%fused
}
"""
    module = hlo_passes.parse(text)
    found = OwnPassesEvaluator.of(module, Pricing(target="h100_sxm"), Rules())
    assert found.misleads == "XLA's prices leave out the bytes of some kernels"
    assert found.prices.extended
    step = found.outcome(Combination())
    assert not step.neglected
    assert step.step_us > 75.0
