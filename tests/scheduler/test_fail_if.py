"""`simulate --fail-if`: what each condition compares, and where a bad one is wrong."""

from __future__ import annotations

import json
import pathlib

import pytest

from hlo_passes import UsageError
from hlo_passes.cli.main import main
from hlo_passes.exit_codes import ExitCode
from hlo_passes.scheduler.fail_if import parse_conditions
from tests.modules import REPOSITORY

MODULE = REPOSITORY / "docs" / "simulator.hlo"
COSTS = f"--costs={REPOSITORY / 'docs' / 'simulator_costs.json'}"
#: Of that module: a step of 1630 us, 730 us exposed, 4 all-gathers of 4 MiB in a loop,
#: 10.5 MiB and 16 bytes of memory.
FAILING = (
    "step>1629us", "step>1.629ms", "step>1629999.9ns", "step>0.0016s", "step>0",
    "exposed>44%", "exposed>729us", "compute>899us", "communication>809us",
    "memory>10.5MiB", "memory>11010063B", "all-gather>3", "all-gather>15MiB",
    "all-gather>239us", "collectives>12", "reduce-scatter>3",
)  # fmt: skip
PASSING = (
    "step>1630us", "step>1.63ms", "exposed>45%", "exposed>730us", "memory>11010064B",
    "memory>target", "all-gather>4", "all-gather>16MiB", "all-gather>240us",
    "collectives>13", "all-to-all>0", "send>0", " step > 2 ms ",
)  # fmt: skip


def simulate(*words: str) -> int:
    return main(["simulate", str(MODULE), COSTS, "--rows=0", *words])


@pytest.mark.parametrize("condition", FAILING)
def test_a_condition_that_holds_fails_the_command(condition: str, capsys) -> None:
    assert simulate(f"--fail-if={condition}") == ExitCode.LIMIT_EXCEEDED == 6
    assert f"fail-if  {condition}: fails: " in capsys.readouterr().out


@pytest.mark.parametrize("condition", PASSING)
def test_a_condition_that_does_not_hold_passes(condition: str, capsys) -> None:
    assert simulate(f"--fail-if={condition}") == 0
    assert f"fail-if  {condition.strip()}: passes: " in capsys.readouterr().out


@pytest.fixture
def slower(tmp_path: pathlib.Path) -> str:
    """The same with a gather that takes 100 us instead of 60: a step of 1790 us."""
    costs = json.loads((REPOSITORY / "docs" / "simulator_costs.json").read_text())
    costs["latency_us"]["gather"] = 100.0
    path = tmp_path / "slower.json"
    path.write_text(json.dumps(costs))
    return f"--costs={path}"


def test_the_base_is_the_file_of_against(tmp_path, capsys) -> None:
    # One layer more than the base has.
    deeper = tmp_path / "deeper.hlo"
    deeper.write_text(MODULE.read_text().replace('"n":"4"', '"n":"5"'))
    words = [str(deeper), COSTS, f"--against={MODULE}", "--rows=0"]
    held = ("step>+20%", "step>+389us", "all-gather>+0", "all-gather>+3MiB")
    for condition in held:
        assert main(["simulate", *words, f"--fail-if={condition}"]) == 6
    for condition in ("step>+24%", "step>+390us", "all-gather>+1", "all-to-all>+0"):
        assert main(["simulate", *words, f"--fail-if={condition}"]) == 0
    capsys.readouterr()
    main(["simulate", *words, "--fail-if=step>+2%"])
    printed = capsys.readouterr().out
    # The report goes from the base to what is judged.
    assert "schedule: step 1.63 ms -> 2.02 ms (390.0 us more)" in printed
    assert printed.endswith(
        "fail-if  step>+2%: fails: 2.02 ms is more than 1.66 ms; the base has 1.63 ms "
        "(+23.9%); so in 27 of 27 settings\n"
    )


def test_what_is_alike_passes_everywhere(capsys) -> None:
    """Nothing is more than itself, however the sum was rounded."""
    quantities = (
        "step",
        "exposed",
        "compute",
        "communication",
        "memory",
        "collectives",
    )
    relative = ",".join(f"{q}>+0,{q}>+0%" for q in (*quantities, "all-gather"))
    assert simulate(f"--against={MODULE}", f"--fail-if={relative}") == 0


def test_conditions_repeat_and_those_that_fail_come_first(capsys) -> None:
    code = simulate("--fail-if=step>5ms,exposed>10%", "--fail-if=memory>target")
    assert code == 6
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split(": ")[1] for line in lines] == ["fails", "passes", "passes"]
    assert lines[0] == (
        "fail-if  exposed>10%: fails: 730.0 us is more than 163.0 us; 44.8% of the "
        "step of 1.63 ms; so in 27 of 27 settings"
    )


@pytest.mark.parametrize(("gib", "code"), [(48, 0), (64, 6), (90, 6)])
def test_the_target_is_full_where_the_report_says_so(
    gib: int, code: int, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """64 GiB fit into an H100 of 79.1 GiB, but not into XLA's pool of 59.3 GiB."""
    path = tmp_path / "large.hlo"
    path.write_text(
        "HloModule m, is_scheduled=true, num_partitions=8\n\n"
        f"ENTRY %main {{\n  %p = s8[{gib << 30}] parameter(0)\n"
        f"  ROOT %s = s8[8] slice(%p), slice={{[0:8]}}\n}}\n"
    )
    assert main(["simulate", str(path), "--fail-if=memory>target"]) == code
    told = capsys.readouterr().out
    assert ("; fits" in told) == (code == 0)
    assert "more than 59.3 GiB" in told


def test_the_same_as_json(capsys) -> None:
    assert simulate("--json", f"--against={MODULE}", "--fail-if=step>+2%,step>1ms") == 6
    told = capsys.readouterr()
    view = json.loads(told.out)
    assert view["step_time_us"] == 1630.0
    assert view["fail_if"] == [
        {
            "condition": "step>+2%", "quantity": "step", "unit": "us",
            "value": 1630.0, "base": 1630.0, "limit": 1662.6, "fails": False,
            "settings": 27, "holds": 27,
        },
        {
            "condition": "step>1ms", "quantity": "step", "unit": "us",
            "value": 1630.0, "base": None, "limit": 1000.0, "fails": True,
            "settings": 27, "holds": 27,
        },
    ]  # fmt: skip
    # What fails is told beside the JSON, too.
    assert told.err.splitlines() == [
        "fail-if  step>1ms: fails: 1.63 ms is more than 1.00 ms; so in 27 of 27 settings"
    ]


@pytest.mark.parametrize(
    ("text", "column", "part"),
    [
        ("", 1, "no quantity"),
        ("stpe>3ms", 1, "stpe is not a quantity"),
        ("step>1ms,stpe>3ms", 10, "stpe is not a quantity"),
        ("step>1ms,", 10, "no quantity"),
        ("step", 5, "no '>'"),
        ("step=3ms", 5, "no '>'"),
        ("step<3ms", 5, "no '>'"),
        ("step,exposed>10%", 5, "no '>'"),
        ("step>", 6, "no number"),
        ("step>,", 6, "no number"),
        ("step>-", 7, "no number"),
        ("step>nan", 6, "no number"),
        ("step>3", 7, "needs a unit"),
        ("step>3parsec", 7, "not a unit"),
        ("step>3GiB", 7, "does not measure"),
        ("memory>3ms", 9, "does not measure"),
        ("step>3%", 7, "a limit of exposed, not of step"),
        ("memory>90%", 10, "a limit of exposed, not of memory"),
        ("step>target", 6, "a limit of memory, not of step"),
        ("memory>targets", 14, "s is too much"),
        ("step>1ms step>2ms", 10, "too much"),
        ("step>1e3us", 7, "not a unit"),
        ("step>1234567890123456us", 6, "no number"),
        ("step>1.5.2us", 6, "no number"),
    ],
)
def test_a_bad_condition_is_refused_at_its_place(text, column, part) -> None:
    with pytest.raises(UsageError) as caught:
        parse_conditions([text])
    assert caught.value.code == "U227"
    assert part in caught.value.message
    assert str(caught.value.location) == f"--fail-if:1:{column}"


def test_without_a_base_there_is_nothing_to_compare_with(capsys) -> None:
    assert simulate("--fail-if=exposed>10%,step>+2%") == ExitCode.USAGE
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("--fail-if:1:18: error[U227]: step>+2% compares with")


def test_a_sweep_has_many_schedules(capsys) -> None:
    words = ["--passes=hlo-dce", "--sweep=simulate.streams=1,2", "--fail-if=step>1ms"]
    assert simulate(*words) == ExitCode.USAGE
    assert "error[U222]: --fail-if" in capsys.readouterr().err
