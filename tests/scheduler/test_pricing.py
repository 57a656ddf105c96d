"""One pricing: by keywords, as a value, from a command line, in a pass, in a sweep."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import pickle
from typing import Any

import pytest

import hlo_passes
from hlo_passes import PassContext, Pipeline, Pricing, UsageError, scheduler
from hlo_passes.scheduler.command_arguments import (
    add_pricing_arguments,
    checked_pricing,
)
from hlo_passes.scheduler.estimators.choice import priced_by
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.sweep.run import Sweep, run_sweep
from tests.modules import REPOSITORY
from tests.scheduler.latency_hiding.scenes import Scene

TEXT = (REPOSITORY / "docs" / "simulator.hlo").read_text()
#: A value of every field that is not its default, as a command line spells it.
SPELLED = {
    "target": "--target=b200",
    "topology": "--topology=2x1x8",
    "devices": "--devices=16",
    "estimator": "--estimator=profile+table",
    "costs": "--costs=c.json",
    "profile": "--profile=p.pbtxt",
    "options": "--latency-options=rtt_us=30",
    "extended": "--extended",
    "always": "--every-module",
    "xla": "--xla=0.12",
    "collective_perf_table": "--collective-perf-table=c.txtpb",
    "matmul_perf_table": "--matmul-perf-table=m.txtpb",
    "hosts": "--hosts=2",
    "gpus_per_host": "--gpus-per-host=8",
}
MACHINE = {"target": "b200", "topology": "2x1x8", "options": "rtt_us=30"}


def module() -> hlo_passes.Module:
    return hlo_passes.parse(TEXT)


def pricing_of(*words: str) -> Pricing:
    parser = argparse.ArgumentParser()
    add_pricing_arguments(parser)
    return checked_pricing(parser.parse_args(words))


def test_every_field_has_a_flag() -> None:
    assert set(SPELLED) == {f.name for f in dataclasses.fields(Pricing)}
    default = pricing_of()
    for name, word in SPELLED.items():
        changed = {
            other
            for other in SPELLED
            if getattr(pricing_of(word), other) != getattr(default, other)
        }
        assert changed == {name}


def test_keywords_and_value_are_one() -> None:
    on = Pricing(**MACHINE)
    by_value = scheduler.simulate(module(), on, streams=1).to_json()
    assert by_value == scheduler.simulate(module(), streams=1, **MACHINE).to_json()
    assert scheduler.estimate(module(), on) == scheduler.estimate(module(), **MACHINE)
    changed = scheduler.estimate(module(), on, target="h100_sxm")
    assert (changed.target, changed.topology) == ("h100_sxm", "2x1x8")
    assert PassContext(on) == PassContext(**MACHINE)
    assert PassContext(on, target="a100").pricing.target == "a100"
    again = dataclasses.replace(PassContext(on), explain="x")
    assert (again.pricing, again.explain) == (on, "x")


def test_values_that_were_parsed_already_are_taken() -> None:
    parsed: dict[str, Any] = {
        "topology": scheduler.Topology(2, 1, 8),
        "options": scheduler.LatencyOptions(rtt_us=30),
    }
    texts = scheduler.estimate(module(), topology="2x1x8", options="rtt_us=30")
    assert scheduler.estimate(module(), **parsed) == texts
    sol = scheduler.make_estimator(on=Pricing(**parsed))
    assert scheduler.estimate(module(), topology="2x1x8", estimator=sol) == texts


@pytest.mark.parametrize("name", ["topology", "options"])
def test_values_of_other_types_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match="not int"):
        scheduler.estimate(module(), **{name: 8})


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="'tarqet'"):
        scheduler.simulate(module(), tarqet="b200")
    with pytest.raises(TypeError, match="'tarqet'"):
        PassContext(tarqet="b200")


def test_it_crosses_process_borders() -> None:
    on = pricing_of("--latency-options=nic_speed_gbps=33.3333333", "--topology=2x1x8")
    assert pickle.loads(pickle.dumps(on)) == on
    assert hash(on) == hash(pickle.loads(pickle.dumps(on)))


GIVEN = Pricing(target="b200", estimator="ring", costs="c", profile="p")


@pytest.mark.parametrize(
    ("own", "estimator", "costs", "profile"),
    [
        ({}, "ring", "c", "p"),
        ({"estimator": "sol"}, "sol", "", ""),
        ({"estimator": "table"}, "table", "c", ""),
        ({"estimator": "profile"}, "profile", "", "p"),
        ({"estimator": "profile+table", "costs": "mine"}, "profile+table", "mine", "p"),
        ({"costs": "mine"}, "", "mine", ""),
        ({"profile": "mine"}, "", "", "mine"),
    ],
)
def test_a_pass_takes_from_the_pipeline_what_its_estimators_read(
    own: dict[str, str], estimator: str, costs: str, profile: str
) -> None:
    found = priced_by(GIVEN, Pricing(**own))
    assert (found.estimator, found.costs, found.profile) == (estimator, costs, profile)
    assert found.target == "b200"


def test_a_pass_prices_on_its_context_except_for_its_own_options() -> None:
    on = Pricing("b200", "2x1x8", 16, estimator="ring", options="rtt_us=9")
    context = PassContext(on)
    told = LatencyHidingScheduler().pricing(context)
    assert told == on
    own = LatencyHidingScheduler(target="a100", latency_options="rtt_us=7")
    assert own.pricing(context).target == "a100"
    assert own.pricing(context).options == "rtt_us=7"
    assert own.pricing(context).topology == "2x1x8"


def test_an_estimator_object_of_the_context_is_asked() -> None:
    with pytest.raises(UsageError, match="U219"):
        scheduler.estimate(
            module(), costs="c", estimator=scheduler.make_estimator("sol")
        )
    table = scheduler.make_estimator("gpu-approximate")
    by_object, by_name = module(), module()
    for each, estimator in ((by_object, table), (by_name, "gpu-approximate")):
        context = PassContext(estimator=estimator)
        Pipeline.parse("latency-hiding-scheduler", context).run(each)
    assert by_object.to_text() == by_name.to_text()


def test_a_sweep_schedules_on_what_it_simulates(tmp_path: pathlib.Path) -> None:
    costs = {"sa": 3000.0, "sb": 1.0} | {f"f{k}": 500.0 for k in range(4)}
    (tmp_path / "p.pbtxt").write_text(scheduler.Profile(costs).to_text())
    on = Pricing(profile=str(tmp_path / "p.pbtxt"))
    scene = Scene(partitions=2)
    scene.gather("sa", "d1", "p0", "{{0,1}}")
    scene.gather("sb", "d2", "p1", "{{0,1}}")
    for k in range(4):
        scene.loop(f"f{k}", "p2")
    scene.root("d1", "d2", *(f"f{k}" for k in range(4)))
    text = scene.text()
    sweep = Sweep(text, "m.hlo", "latency-hiding-scheduler", (), on, Rules())
    (row,) = run_sweep(sweep)
    assert row.times is not None
    # The long gather has all four fusions; without the profile the last one has them.
    assert row.times.exposed_us == pytest.approx(3000 - 4 * 500 + 1)
    by_default = hlo_passes.parse(text)
    Pipeline.parse("latency-hiding-scheduler").run(by_default)
    assert scheduler.simulate(by_default, on).exposed_us == pytest.approx(3000)
