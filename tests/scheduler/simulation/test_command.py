"""`hlo-passes simulate`, as a user runs it, and what a terminal shows."""

from __future__ import annotations

import gzip
import json
import pathlib
from typing import Any

import pytest

from hlo_passes import UsageError
from hlo_passes.cli.main import main
from hlo_passes.scheduler.advice.advise import advised as advised_timeline
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.simulation import command as own_command
from hlo_passes.scheduler.simulation.report import report_text
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_with
from hlo_passes.scheduler.simulation.timeline import Timeline
from hlo_passes.scheduler.simulation.units import (
    bytes_text,
    readable,
    share_text,
    time_text,
)
from tests.scheduler.simulation.loops import LAYERS, open_ended
from tests.scheduler.simulation.steps import (
    Branches,
    Compute,
    Done,
    Loop,
    Start,
    Steps,
    Sync,
    costs_of,
    module_of,
    text_of,
)
from tests.scheduler.simulation.test_trace import check_trace

STEPS: Steps = (
    Start("gather", 3000.0),
    Compute("before", 1000.0),
    Done("gather"),
    Loop("layers", 10, (Start("in", 20.0), Compute("part", 30.0), Done("in"))),
    Sync("last", 500.0),
)

SCREEN = """module   scheduled, for which machine is unknown
m on h100_sxm 1x1x2 (2 GPUs in one host), XLA 0.10.2, costs: table, 1 communication stream; all times are estimates

step     3.80 ms = compute 1.30 ms + exposed 2.50 ms (65.8%)
bound    3.80 ms (critical path): no order of these instructions is faster; the gap is 0.0 us (0.0%)
         because each instruction of the longest chain needs the one before it
         1.30 ms (compute): no restructuring that moves the same bytes and computes the same flops is faster
range    exposed 28.8% to 81.1% (825.0 us to 3.90 ms) of a step of 2.66 ms to 4.99 ms; more than 10% holds in 27 of 27 settings
network  3.70 ms of communication, 32.4% of it hidden
memory   72 bytes at the peak with parameters (40 bytes without), 65 bytes as XLA packs it; fits: XLA's pool is 59.3 GiB of h100_sxm's 79.1 GiB

3 collectives: 1 exposed, 1 partial, 1 hidden. What costs the step most, and why:
  1. 2.00 ms  %gather  all-reduce of 32 bytes, partial
     %x.main
     nothing left to overlap: the 1.00 ms of compute that does not depend on it already overlaps its 3.00 ms
     advice: nothing that was tried shortens the step; in the program: transfer less, or give each device more to compute beside it
  2. 500.0 us  %last  all-reduce of 32 bytes, exposed
     synchronous: it has no start and done, so the compute stream runs it for 500.0 us; 1.00 ms of compute do not depend on it
     advice: nothing that was tried shortens the step; in the program: make it asynchronous, with work beside it that does not need it

%main: 3.80 ms
compute         |##############                           LLLLl      |
exposed         |             .!!!!!!!!!!!!!!!!!!!!!!!!!!!.   !!!!!!!|
communication 0 |=========================================-          |
                 # compute  L loop  ! exposed  = beside compute  (- l . less than half)

note: settings of the range: latencies and kernels each times 0.7 to 1.3, compute 0% to 20% slower beside a collective
"""


@pytest.fixture
def files(tmp_path: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """(module, costs)."""
    module, costs = tmp_path / "m.hlo", tmp_path / "costs.json"
    module.write_text(text_of(STEPS))
    table = costs_of(STEPS)
    costs.write_text(
        json.dumps(
            {
                "node_cost_us": dict(table.node_costs),
                "latency_us": dict(table.latencies),
            }
        )
    )
    return module, costs


def simulate(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["simulate", *map(str, words)]) == 0
    return capsys.readouterr().out


def test_the_first_screen(files, capsys, monkeypatch) -> None:
    module, costs = files
    monkeypatch.setenv("COLUMNS", "70")
    assert simulate(capsys, module, f"--costs={costs}") == SCREEN


def test_json_trace_and_page(files, capsys, tmp_path) -> None:
    module, costs = files
    trace, page = tmp_path / "t.json.gz", tmp_path / "p.html"
    words = (module, f"--costs={costs}", "--json", f"--trace={trace}", f"--html={page}")
    view = json.loads(simulate(capsys, *words))
    assert view["step_time_us"] == 3800.0
    assert [row["name"] for row in view["collectives"]] == ["in", "gather", "last"]
    assert [row["stream"] for row in view["collectives"]] == [0, 0, None]
    check_trace(json.loads(gzip.decompress(trace.read_bytes())))
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "advised"),
    [
        (["--json"], True),
        (["--json", "--rows=0"], True),
        (["--json", "--no-advice"], False),
        (["--json", "--fail-if=exposed>99%"], False),
        (["--rows=0", "--html=PAGE"], True),
        (["--html=PAGE", "--no-advice"], False),
        (["--rows=0"], False),
        (["--rows=1"], True),
        (["--rows=1", "--no-advice"], False),
    ],
)
def test_advice_is_for_those_who_read_it(
    files, capsys, tmp_path, monkeypatch, words: list[str], *, advised: bool
) -> None:
    module, costs = files
    asked = []

    def advise(timeline: Timeline, *others: Any) -> Timeline:
        asked.append(timeline.not_tried)
        return advised_timeline(timeline, *others)

    monkeypatch.setattr(own_command, "advised", advise)
    page = tmp_path / "p.html"
    words = [word.replace("PAGE", str(page)) for word in words]
    told = simulate(capsys, module, f"--costs={costs}", *words)
    if page.exists():
        told = page.read_text()
    assert ("nothing that was tried shortens the step" in told) is advised
    assert asked == [0] * advised  # nothing is left out before anything is tried


def test_error_of_a_module_that_is_none(files, capsys) -> None:
    """Its text is read and could be simulated; the verifier refuses it."""
    module, costs = files
    text = module.read_text()
    part = "%part = f32[8]{0} negate("
    assert part in text
    module.write_text(text.replace(part, part.replace("8", "4")))
    assert main(["simulate", str(module), f"--costs={costs}", "--no-advice"]) == 1
    told = capsys.readouterr()
    assert not told.out
    assert "error[V402]: negate makes f32[8], not f32[4]" in told.err


@pytest.mark.parametrize(
    ("columns", "width"),
    [("10", 60), ("60", 60), ("61", 61), ("160", 160), ("999", 160)],
)
def test_lanes_are_as_wide_as_the_terminal_within_limits(
    files, capsys, monkeypatch, columns: str, width: int
) -> None:
    module, costs = files
    monkeypatch.setenv("COLUMNS", columns)
    lines = simulate(capsys, module, f"--costs={costs}").splitlines()
    lanes = [line for line in lines if line.endswith("|")]
    assert len(lanes) == 3
    assert {len(line) for line in lanes} == {width}


def test_streams_and_rules_are_handed_on(files, capsys) -> None:
    module, costs = files
    view = json.loads(
        simulate(capsys, module, f"--costs={costs}", "--streams=0", "--json")
    )
    assert view["streams"] == 0
    view = json.loads(
        simulate(capsys, module, f"--costs={costs}", "--xla-statistic", "--json")
    )
    assert view["step_time_us"] == pytest.approx(1000 + 2000 + 1 + 500, abs=2)


def test_branches_by_probability(tmp_path, capsys) -> None:
    steps = (Branches("cond", ((Compute("a", 1.0),), (Compute("b", 3.0),))),)
    module, costs = tmp_path / "m.hlo", tmp_path / "costs.json"
    module.write_text(text_of(steps))
    costs.write_text(json.dumps({"node_cost_us": {"a": 1.0, "b": 3.0}}))
    words = (module, f"--costs={costs}", "--branches=%cond=0.5,0.5", "--json")
    assert json.loads(simulate(capsys, *words))["step_time_us"] == 2.0


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("--streams=-1", "U220"), ("--branches=con=1", "U221"),
        ("--branches=cond=x,y", "U221"), ("--topology=8", "U202"),
        ("--branches=cond=nan,nan", "U221"), ("--target=h10", "U200"),
    ],
)  # fmt: skip
def test_error_usage(tmp_path, capsys, word: str, code: str) -> None:
    steps = (Branches("cond", ((Compute("a", 1.0),), (Compute("b", 3.0),))),)
    module = tmp_path / "m.hlo"
    module.write_text(text_of(steps))
    assert main(["simulate", str(module), word]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def test_error_rules_that_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="links are shared by what queues"):
        Rules(streams=0, share_links=True)


def test_the_same_bytes_every_time() -> None:
    def view() -> str:
        timeline = simulate_with(
            module_of(STEPS), "h100_sxm", Topology(1, 1, 2), costs_of(STEPS), Rules(2)
        )
        return json.dumps([timeline.to_json(), timeline.to_perfetto()]) + report_text(
            timeline
        )

    assert view() == view()


def test_units() -> None:
    assert [time_text(us) for us in (0.04, 12.34, 4567.0, 3.2e6)] == [
        "0.0 us", "12.3 us", "4.57 ms", "3.200 s",
    ]  # fmt: skip
    assert [bytes_text(n) for n in (7, 2048, 5 << 20, 3 << 30)] == [
        "7 bytes", "2.0 KiB", "5.0 MiB", "3.0 GiB",
    ]  # fmt: skip
    assert (share_text(1.0, 3.0), share_text(1.0, 0.0)) == ("33.3%", "0.0%")
    assert readable("waits 12345.6 us behind %a") == "waits 12.35 ms behind %a"


OPEN_ENDED = open_ended(
    module_of((Loop("loop", 4, (Compute("part", 3.0),)),)).to_text()
).replace("known_trip_count", "other")


def test_the_first_line_names_a_loop_that_counts_once(tmp_path, capsys) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(OPEN_ENDED)
    for command in ("simulate", "estimate"):
        assert main([command, str(path)]) == 0
        first, *rest = capsys.readouterr().out.splitlines()
        assert "how often %loop runs is not known, it counts once" in first
        assert not any("trip counts are not known" in line for line in rest)
        assert main([command, str(path), "--trip-count=%loop=126"]) == 0
        assert "not known" not in capsys.readouterr().out


def test_sweeps_and_differences_name_it_too(tmp_path, capsys) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(OPEN_ENDED)
    sweep = ["--passes=latency-hiding-scheduler", "--sweep=simulate.streams=1,2"]
    for arguments in (
        ["simulate", str(path), *sweep],
        ["simulate", str(path), f"--against={path}"],
    ):
        assert main([*arguments]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert "how often %loop runs is not known, it counts once" in first
        assert main([*arguments, "--trip-count=loop=126"]) == 0
        assert "not known" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["simulate", "estimate"])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("%lop=126", "the module does not have a loop %lop"),
        ("%lop=126", "did you mean loop?"),
        ("loop=many", "'many' does not say how often"),
        ("loop=-1", "'-1' does not say how often"),
        ("loop", "'loop' does not say how often"),
        ("loop=" + "9" * 30, "does not say how often"),
    ],
)
def test_error_trip_counts(
    tmp_path, capsys, command: str, given: str, message: str
) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(OPEN_ENDED)
    assert main([command, str(path), f"--trip-count={given}"]) == 2
    assert f"error[U226]: --trip-count={given}: " in (told := capsys.readouterr().err)
    assert message in told


def test_error_trip_counts_in_python() -> None:
    with pytest.raises(UsageError, match="cannot run -3 times") as refused:
        Rules(trip_counts={"loop": -3})
    assert refused.value.code == "U226"


def test_an_estimate_multiplies_by_loops(tmp_path, capsys) -> None:
    """What is most expensive in a step comes first, not in one execution."""
    path = tmp_path / "m.hlo"
    path.write_text(LAYERS)
    assert main(["estimate", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["instructions"]
    often = {row["name"]: row["executions"] for row in rows}
    assert (often["loop"], often["y"], often["less"]) == (1, 126, 127)
    assert main(["estimate", str(path)]) == 0
    text = capsys.readouterr().out
    assert "times" in text
    cost = next(row["node_cost_us"] for row in rows if row["name"] == "y")
    assert f"{126 * cost:.3f}" in text


def test_counts_of_eighteen_digits_are_taken() -> None:
    most = 10**18 - 1
    assert Rules(trip_counts={"loop": most}).trip_counts == {"loop": most}
    with pytest.raises(UsageError, match="a number from 0 to 999999999999999999"):
        Rules(trip_counts={"loop": most + 1})
