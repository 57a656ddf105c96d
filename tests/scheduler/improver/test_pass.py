"""The pass: options, remarks, report, and the same bytes on every Python."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

from hlo_passes import scheduler
from hlo_passes.errors import PipelineSpecError
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.passes.framework.sequence import expanded
from hlo_passes.scheduler.improver import whole_module
from hlo_passes.scheduler.improver.offers import offers
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.improver.search import Effort
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from tests.modules import REPOSITORY
from tests.scheduler.improver.modules import conditions, order_text, random_module
from tests.scheduler.schedules import LATE, START, module, write_costs

_SOURCE = """\
from hlo_passes.passes.framework.pipeline import Pipeline
from tests.scheduler.improver.modules import conditions, order_text, random_module
from hlo_passes.scheduler.improver.schedule_improver import ScheduleImprover
from hlo_passes.scheduler.improver.search import Effort
from hlo_passes.scheduler.improver.whole_module import improve_module
for seed in (2, 5, 9):
    module, costs = random_module(seed)
    improve_module(module, conditions(costs, effort=Effort(0.1, 2)))
    print(order_text(module))
"""


def _improve(text: str, costs: str, options: str = "", explain: str = "") -> tuple:
    made = module(text)
    spec = f"schedule-improver{{costs={costs}{options}}}"
    pipeline = Pipeline.parse(spec, PassContext(explain=explain))
    (run,) = pipeline.run(made, verify_each=True).passes
    return made, run


def test_the_step_of_simulate_becomes_shorter(tmp_path: pathlib.Path) -> None:
    costs = write_costs(tmp_path)
    before = scheduler.simulate(module(LATE), costs=costs).step_time_us
    made, report = _improve(LATE, costs)
    after = scheduler.simulate(made, costs=costs).step_time_us
    assert after < before
    assert report.statistics["computations-improved"] == 2
    found = report.details["improvement"]
    assert found["step_before_us"] == before
    assert found["step_us"] == after
    assert found["peak_bytes"] <= found["peak_before_bytes"]
    hidden = "hidden: %ag-start 40 of 50 us in %main (before: 0): its start "
    assert any(r.startswith(hidden) for r in report.remarks)
    assert any(r.startswith("step: ") for r in report.remarks)


def test_a_second_run_changes_nothing(tmp_path: pathlib.Path) -> None:
    costs = write_costs(tmp_path)
    made, _ = _improve(LATE, costs)
    _, report = _improve(made.to_text(), costs)
    assert report.details["improvement"]["kept"]


def test_explain_says_what_stands_in_a_window(tmp_path: pathlib.Path) -> None:
    costs = write_costs(tmp_path)
    _, report = _improve(LATE, costs, explain="ag-start")
    (text,) = report.explanations
    assert "before: 0 us of work in its window, 50 of 50 us exposed" in text
    assert "after: 40 us of work in its window, 10 of 50 us exposed: %dot" in text


@pytest.mark.parametrize(("count", "more"), [(9, 0), (10, 0), (11, 1), (13, 3)])
def test_explain_names_ten_and_counts_the_rest(
    count: int, more: int, tmp_path: pathlib.Path
) -> None:
    """Work of 0.5 us each, and as much that costs nothing."""
    work = [f"  %n{k} = f32[64]{{0}} negate(%y)\n" for k in range(count)]
    idle = [f"  %i{k} = f32[64]{{0}} tanh(%y)\n" for k in range(count)]
    made = module(LATE.replace(START, "".join([*work, *idle]) + START))
    costs = {
        "node_cost_us": {f"n{k}": 0.5 for k in range(count)},
        "latency_us": {"ag-start": 50.0, "ar-start": 5.0},
    }
    file = tmp_path / "costs.json"
    file.write_text(json.dumps(costs))
    spec = f"schedule-improver{{costs={file},effort=0.2,memory-cap=99999}}"
    (run,) = Pipeline.parse(spec, PassContext(explain="ag-start")).run(made).passes
    (text,) = run.explanations
    window = next(line for line in text.splitlines() if "after: " in line)
    assert f"after: {count * 0.5:.6g} us of work in its window" in window
    assert window.count("%n") == min(count, 10)
    assert "%i" not in window
    assert window.endswith(f" and {more} more") is bool(more)


@pytest.mark.parametrize(
    "options",
    [
        "memory-cap=some",
        "effort=-1",
        "min-gain=1",
        "seconds=-2",
        "rounds=-1",
        "seed=-3",
    ],
)
def test_values_out_of_range_are_refused(options: str) -> None:
    with pytest.raises(PipelineSpecError) as caught:
        Pipeline.parse(f"schedule-improver{{{options}}}")
    assert caught.value.code == "U013"


def test_gpu_schedule_improves_if_asked() -> None:
    names = [p.name for p in expanded(Pipeline.parse("gpu-schedule").passes)]
    assert "schedule-improver" not in names
    asked = Pipeline.parse("gpu-schedule{improve=true,effort=0.5}").passes
    passes = {p.name: p for p in expanded(asked)}
    order = list(passes)
    at = order.index("schedule-improver")
    assert order[at - 1] == "latency-hiding-scheduler"
    assert passes["schedule-improver"].describe_options()["effort"] == 0.5


def test_the_same_bytes_under_every_hash_seed() -> None:
    found = set()
    for seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", _SOURCE],
            cwd=REPOSITORY,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_an_interrupted_search_leaves_the_orders_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, costs = random_module(5)
    given = order_text(made)
    reached = []

    def interrupted(run: whole_module._Run) -> None:
        reached.append(order_text(run.module))
        raise KeyboardInterrupt

    monkeypatch.setattr(whole_module._Run, "_judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        whole_module.improve_module(made, conditions(costs, effort=Effort(0.1, 2)))
    assert reached != [given]
    assert order_text(made) == given


def test_ctrl_c_ends_the_command_and_writes_nothing(tmp_path: pathlib.Path) -> None:
    given, wanted = tmp_path / "given.hlo", tmp_path / "made.hlo"
    given.write_text(module(LATE).to_text())
    program = (
        "import os, signal, sys\n"
        "from hlo_passes.scheduler.improver import window\n"
        # A suite that runs in the background ignores this signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def interrupted(*_): os.kill(os.getpid(), signal.SIGINT)\n"
        "window.Window.try_window = interrupted\n"
        "from hlo_passes.cli.main import main; sys.exit(main(sys.argv[1:]))\n"
    )
    spec = f"--passes=schedule-improver{{costs={write_costs(tmp_path)}}}"
    done = subprocess.run(
        [sys.executable, "-c", program, "opt", str(given), spec, "-o", str(wanted)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert not wanted.exists()


def test_the_time_that_a_search_took(monkeypatch: pytest.MonkeyPatch) -> None:
    made, costs = random_module(5)
    clock = iter([100.0, 107.5])
    monkeypatch.setattr(
        whole_module, "time", types.SimpleNamespace(monotonic=lambda: next(clock))
    )
    result = whole_module.improve_module(made, conditions(costs, effort=Effort(0.0)))
    assert result.seconds == 7.5
    clock = iter([1.0, 7.5])
    result = whole_module.improve_module(made, conditions(costs, effort=Effort(0.0)))
    assert result.seconds == 6.5


def test_offers_leave_every_order_as_it_was() -> None:
    useful = 0
    for seed in range(4):
        made, costs = random_module(seed)
        on = conditions(costs, effort=Effort(0.1, 1))
        result = whole_module.improve_module(made, on)
        found = order_text(made)
        for offer in offers(made, on, result, [2, 1, 4, 2]):
            assert offer.limit in (2, 4)
            useful += not offer.kept
            assert order_text(made) == found
    assert useful


def test_options_of_the_scheduler_have_its_defaults() -> None:
    """Orders are improved within the limits, and by the prices, that made them."""
    scheduler, improver = (
        {f.name: f.default for f in dataclasses.fields(kind)}
        for kind in (LatencyHidingScheduler, ScheduleImprover)
    )
    shared = scheduler.keys() & improver.keys()
    assert {"parallel_async_compute_limit", "costs", "xla"} <= shared
    assert {k: improver[k] for k in shared} == {k: scheduler[k] for k in shared}
