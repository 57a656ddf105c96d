"""The same step in other settings, and what contention does to it."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given

from hlo_passes import UsageError, scheduler
from hlo_passes.cli.main import main
from hlo_passes.files import read_module
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation.ranges import Change, Outcome, Sensitivity
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.setting import Setting, settings
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from tests.modules import CORPUS, REPOSITORY
from tests.scheduler.simulation.steps import (
    Compute,
    Done,
    Loop,
    Start,
    Steps,
    Sync,
    costs_of,
    every,
    module_of,
    step_lists,
    text_of,
)

MODULE = REPOSITORY / "docs" / "simulator.hlo"
COSTS = str(REPOSITORY / "docs" / "simulator_costs.json")
STEP, FASTER = (
    REPOSITORY / "docs" / "tutorial" / f"{name}.h100_sxm.hlo"
    for name in ("step", "faster")
)
ONE = Topology(1, 1, 2)


def timeline_of(schedule: Steps, *, with_range: bool = False, **rules) -> Timeline:
    return simulate_with(
        module_of(schedule), "h100_sxm", ONE, costs_of(schedule), Rules(**rules),
        with_range=with_range,
    )  # fmt: skip


# -- contention --------------------------------------------------------------------


def test_compute_beside_a_collective_is_slower() -> None:
    """60 us of compute beside 40 us: at half speed 20 of them, then the other 40."""
    schedule: Steps = (Start("a", 40.0), Compute("c", 60.0), Done("a"))
    timeline = timeline_of(schedule, contention=0.5)
    assert timeline.step_time_us == 80.0
    assert timeline.compute_us == 80.0
    assert timeline.exposed_us == 0.0
    (span,) = [s for s in timeline.spans if s.name == "c"]
    assert (span.start_us, span.end_us) == (0.0, 80.0)


def test_compute_that_ends_first_is_slower_all_along() -> None:
    schedule: Steps = (
        Start("a", 40.0),
        Compute("c", 10.0),
        Done("a"),
        Compute("d", 5.0),
    )
    timeline = timeline_of(schedule, contention=0.2)
    assert timeline.compute_us == 12.5 + 5.0
    assert timeline.exposed_us == 40.0 - 12.5
    assert timeline.step_time_us == 45.0


def test_what_is_alone_is_as_fast_as_before() -> None:
    schedule: Steps = (
        Compute("c", 10.0), Start("a", 40.0), Done("a"), Sync("s", 7.0), Compute("d", 5.0),
    )  # fmt: skip
    assert timeline_of(schedule, contention=0.9).times == timeline_of(schedule).times


def test_a_loop_is_slower_while_its_caller_s_collective_runs() -> None:
    """Iterations of 10 us: the first three take 20 each, and the fourth 10 + 10 / 2."""
    schedule: Steps = (
        Start("a", 70.0), Loop("l", 8, (Compute("c", 10.0),)), Done("a"),
    )  # fmt: skip
    timeline = timeline_of(schedule, contention=0.5)
    assert timeline.step_time_us == 80.0 + 35.0
    assert timeline.compute_us == 115.0
    assert timeline.exposed_us == 0.0


@given(step_lists())
def test_laws(schedule: Steps) -> None:
    """Step = compute + exposed; between the bound and the serial sum; never faster."""
    plain = timeline_of(schedule)
    before = plain.step_time_us
    for contention in (0.1, 0.5, 0.9):
        timeline = timeline_of(schedule, contention=contention)
        times = timeline.times
        assert times.step_time_us == pytest.approx(times.compute_us + times.exposed_us)
        assert times.lower_bound_us == plain.lower_bound_us
        assert times.step_time_us >= before - 1e-6
        assert times.step_time_us <= times.serial_us + 1e-6
        for computation in timeline.computations.values():
            assert computation.step_time_us == pytest.approx(
                computation.compute_us + computation.exposed_us
            )
        before = times.step_time_us
    assert timeline_of(schedule, contention=0.0).times == plain.times


@pytest.mark.parametrize(
    "rules",
    [
        {"contention": 1.0}, {"contention": -0.1}, {"contention": float("nan")},
        {"contention": 0.1, "share_links": True},
        {"contention": 0.1, "xla_statistic": True},
    ],
)  # fmt: skip
def test_contention_that_makes_no_sense_is_refused(rules) -> None:
    with pytest.raises(UsageError) as caught:
        Rules(**rules)
    assert caught.value.code == "U220"


def test_the_option_is_handed_on(capsys) -> None:
    words = ["simulate", str(MODULE), f"--costs={COSTS}", "--json"]
    assert main([*words, "--contention=0.2"]) == 0
    view = json.loads(capsys.readouterr().out)
    module = read_module(str(MODULE))
    timeline = scheduler.simulate(module, costs=COSTS, contention=0.2)
    assert view["compute_us"] == timeline.compute_us == 920.0
    assert any("loses 20% of its speed" in note for note in view["notes"])


# -- settings ----------------------------------------------------------------------


@given(step_lists())
def test_a_setting_is_a_simulation_of_other_prices(schedule: Steps) -> None:
    """Only the clocks run again, and they show what a whole simulation would."""
    timeline = timeline_of(schedule, with_range=True)
    assert timeline.sensitivity is not None
    outcomes = {o.setting: o for o in timeline.sensitivity.outcomes}
    costs = costs_of(schedule)
    synchronous = {s.name for s in every(schedule) if isinstance(s, Sync)}
    for setting in (
        Setting(0.7, 1.3, 0.0),
        Setting(1.3, 0.7, 0.2),
        Setting(1.3, 1.3, 0.1),
    ):
        scaled = dataclasses.replace(
            costs,
            node_costs={
                name: us * (setting.latency if name in synchronous else setting.compute)
                for name, us in costs.node_costs.items()
            },
            latencies={k: v * setting.latency for k, v in costs.latencies.items()},
        )
        whole = simulate_with(
            module_of(schedule), "h100_sxm", ONE, scaled,
            Rules(contention=setting.contention),
        )  # fmt: skip
        assert outcomes[setting].step_us == pytest.approx(whole.step_time_us)
        assert outcomes[setting].exposed_us == pytest.approx(whole.exposed_us, abs=1e-6)


def test_the_grid() -> None:
    grid = settings()
    assert len(set(grid)) == len(grid) == 27
    assert Setting() in grid
    assert len(settings(None)) == 9
    assert {s.contention for s in settings(0.85)} == {0.85, 0.9}


def test_asking_for_a_range_changes_nothing_else() -> None:
    module = read_module(str(STEP))
    alone, ranged = (
        scheduler.simulate(module, with_range=asked) for asked in (False, True)
    )
    assert alone.sensitivity is None
    assert dataclasses.replace(ranged, sensitivity=None) == alone
    again = scheduler.simulate(module, with_range=True)
    assert again.sensitivity == ranged.sensitivity


@pytest.mark.parametrize(
    "rules", [{"share_links": True}, {"xla_statistic": True}, {"streams": 0}]
)
def test_every_rule_has_a_range(rules) -> None:
    found = scheduler.simulate(
        read_module(str(STEP)), with_range=True, **rules
    ).sensitivity
    assert found is not None
    assert len(found.outcomes) == (27 if "streams" in rules else 9)


def test_devices_that_differ_have_a_range() -> None:
    (file,) = CORPUS.glob("modules/0.12.0.1/ring_attention.gpu-scheduled.hlo*")
    timeline = scheduler.simulate(read_module(str(file)), with_range=True)
    assert timeline.sensitivity is not None
    plain = timeline.sensitivity.plain
    assert plain.step_us == timeline.step_time_us
    assert plain.exposed_us == pytest.approx(timeline.exposed_us)


# -- verdicts ----------------------------------------------------------------------


def sensitivity(*pairs: tuple[float, float]) -> Sensitivity:
    """The plain outcome comes first."""
    outcomes = [Outcome(Setting(1.0 + k), *pair) for k, pair in enumerate(pairs)]
    return Sensitivity(outcomes[0], tuple(outcomes))


def test_a_verdict_that_holds() -> None:
    found = sensitivity((1000.0, 300.0), (800.0, 200.0), (1200.0, 480.0))
    assert found.to_text() == (
        "exposed 25.0% to 40.0% (200.0 us to 480.0 us) of a step of 800.0 us to 1.20 "
        "ms; more than 10% holds in 3 of 3 settings"
    )


def test_a_verdict_that_flips_says_so_first() -> None:
    found = sensitivity((1000.0, 99.0), (1000.0, 101.0))
    assert found.to_text().startswith(
        "not sure that no more than 10% is exposed, it holds in 1 of 2 settings: exposed"
    )


def test_nothing_exposed() -> None:
    assert sensitivity((10.0, 0.0), (13.0, 0.0)).to_text() == (
        "step 10.0 us to 13.0 us; nothing is exposed in 2 of 2 settings"
    )


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ((100, 70, 130), (90, 56, 117), "faster holds in 3 of 3 settings; the step is 10.0% to 20.0% shorter"),
        ((100, 100, 100), (90, 110, 90), "not sure: faster holds in 2 of 3 settings, slower in 1; the step is 10.0% shorter to 10.0% longer"),
        ((100, 100, 100), (100, 100, 100), "as fast holds in 3 of 3 settings"),
        ((100, 100, 100), (100, 100, 120), "as fast holds in 2 of 3 settings, slower in 1; the step is 0.0% to 20.0% longer"),
        ((100, 100, 100), (95, 100, 100), "faster holds in 1 of 3 settings, as fast in 2; the step is 0.0% to 5.0% shorter"),
    ],
)  # fmt: skip
def test_changes(before, after, text) -> None:
    pairs = [sensitivity(*((us, 0.0) for us in steps)) for steps in (before, after)]
    assert Change(*pairs).to_text() == text


def test_a_share_of_a_step_of_nothing_is_nothing() -> None:
    before, after = sensitivity((0.0, 0.0), (4.0, 0.0)), sensitivity((2.0, 0), (5.0, 0))
    assert Change(before, after).shares == (0.0, 0.25)


def test_a_comparison_has_its_range(capsys) -> None:
    words = ["simulate", str(STEP), f"--against={FASTER}", "--rows=0"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("schedule: step 2.28 ms -> 1.87 ms")
    assert lines[2] == (
        "range: faster holds in 27 of 27 settings; the step is 10.6% to 26.3% shorter"
    )
    assert main([*words, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert view["change"]["holds"] == view["change"]["settings"] == 27
    assert not view["change"]["flips"]
    assert len(view["sensitivity"]["settings"]) == 27
    assert main(["diff", str(STEP), str(FASTER), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schedule"]["change"] == view["change"]


#: The second one hides the collective, but its compute takes longer: 110 and 108 us.
#: With a latency of 7 us it is the slower one.
APART: Steps = (Start("a", 10.0), Done("a"), Compute("c", 100.0))
BESIDE: Steps = (Start("a", 10.0), Compute("e", 108.0), Done("a"))


def test_a_change_whose_sign_is_not_sure_comes_first(tmp_path, capsys) -> None:
    files = []
    for name, schedule in (("apart", APART), ("beside", BESIDE)):
        files.append(tmp_path / f"{name}.hlo")
        files[-1].write_text(text_of(schedule))
    table = tmp_path / "costs.json"
    nodes = {**costs_of(APART).node_costs, **costs_of(BESIDE).node_costs}
    table.write_text(json.dumps({"node_cost_us": nodes, "latency_us": {"a": 10.0}}))
    words = [str(files[0]), f"--against={files[1]}", f"--costs={table}", "--rows=0"]
    assert main(["simulate", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("range: not sure: faster holds in ")
    assert ", slower in " in lines[1]
    assert lines[2].startswith("schedule: ")


def test_a_judgment_says_in_how_many_settings(capsys) -> None:
    words = [str(MODULE), f"--costs={COSTS}", "--rows=0", "--fail-if=exposed>30%"]
    assert main(["simulate", *words]) == 6
    assert capsys.readouterr().out.endswith("of 1.63 ms; so in 24 of 27 settings\n")


def test_a_sweep_says_how_sure_its_best_is(capsys) -> None:
    words = [
        "simulate",
        str(STEP),
        "--passes=latency-hiding-scheduler",
        "--processes=1",
    ]
    option = "--sweep=parallel-collective-overlap-limit=1,2"
    assert main([*words, option]) == 0
    assert (
        "range: no other is faster in 27 of 27 settings; than as given, faster holds in "
    ) in capsys.readouterr().out
    assert main([*words, option, "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["best_holds"], view["settings"]) == (27, 27)
    assert view["change"]["settings"] == 27


def test_the_page_says_it_in_a_line(tmp_path) -> None:
    page = tmp_path / "p.html"
    words = ["simulate", str(MODULE), f"--costs={COSTS}", f"--html={page}"]
    assert main(words) == 0
    assert "Range: exposed 26.8% to 61.3%" in page.read_text()
