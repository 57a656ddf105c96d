"""Sweeps as a user runs them: table, best, limit, plot, and failures in single rows."""

from __future__ import annotations

import importlib
import json
import pathlib
import subprocess
import sys
import time

import pytest

from hlo_passes.cli.main import main
from hlo_passes.scheduler.sweep.options import parse_sweep
from tests.modules import REPOSITORY
from tests.scheduler.schedules import EARLY, LATE, write_costs

_PASSES = "--passes=latency-hiding-scheduler"
_SWEEP = "--sweep=parallel-collective-overlap-limit=1,2,simulate.streams=1,2"


@pytest.fixture
def files(tmp_path):
    file = tmp_path / "late.hlo"
    file.write_text(LATE)
    return [str(file), f"--costs={write_costs(tmp_path)}"]


def test_all_combinations_and_the_best(files, capsys) -> None:
    assert main(["simulate", *files, _PASSES, _SWEEP, "--processes=1"]) == 0
    first, machine, *out = capsys.readouterr().out.splitlines()
    assert first == "module   scheduled, for which machine is unknown"
    assert machine.startswith("h100_sxm 1x1x")
    assert out[0].split()[:3] == [
        "parallel-collective-overlap-limit",
        "streams",
        "step",
    ]
    assert out[1].split()[:4] == ["as", "given", "110.0", "us"]
    assert [line.lstrip("* ").split()[:3] for line in out[2:6]] == [
        ["1", "1", "65.0"], ["1", "2", "65.0"], ["2", "1", "65.0"], ["2", "2", "65.0"],
    ]  # fmt: skip
    assert [line.startswith("*") for line in out[2:6]] == [True, False, False, False]
    assert out[6] == "best: parallel-collective-overlap-limit=1, streams=1"
    assert out[7] == (
        '--passes="latency-hiding-scheduler{parallel-collective-overlap-limit=1}"'
    )


def test_the_best_setting_is_named_as_a_flag_of_xla(files, capsys) -> None:
    words = [*files, _PASSES, _SWEEP, "--processes=1"]
    assert main(["simulate", *words]) == 0
    flag = "--xla_gpu_experimental_parallel_collective_overlap_limit"
    assert f'XLA_FLAGS="{flag}=1"' in capsys.readouterr().out.splitlines()
    assert main(["simulate", *words, "--json"]) == 0
    options = json.loads(capsys.readouterr().out)["options"]
    assert [each["xla_flags"] for each in options] == [
        [f"{flag}=1", f"{flag}=2"],
        ["", ""],  # the simulator's own option
    ]


def test_an_option_of_a_sequence_has_its_flag() -> None:
    (swept,) = parse_sweep("parallel-async-compute-limit=3", "gpu-schedule")
    flag = "--xla_gpu_experimental_parallel_async_compute_limit=3"
    assert swept.xla_flag_setting("3") == flag


def test_options_of_one_name_are_told_apart(files, capsys) -> None:
    passes = "--passes=gpu-all-gather-combiner,gpu-all-reduce-combiner"
    swept = (
        "--sweep=gpu-all-gather-combiner.threshold-bytes=1,2,"
        "gpu-all-reduce-combiner.threshold-bytes=3"
    )
    assert main(["simulate", *files, passes, swept, "--processes=1"]) == 0
    first, _, out = capsys.readouterr().out.split("\n", 2)
    assert first.startswith("module   ")
    assert out.split()[:2] == [
        "gpu-all-gather-combiner.threshold-bytes",
        "gpu-all-reduce-combiner.threshold-bytes",
    ]
    assert (
        "best: gpu-all-gather-combiner.threshold-bytes=1, "
        "gpu-all-reduce-combiner.threshold-bytes=3"
    ) in out
    assert (
        'XLA_FLAGS="--xla_gpu_all_gather_combine_threshold_bytes=1 '
        '--xla_gpu_all_reduce_combine_threshold_bytes=3"'
    ) in out
    # Combining changes nothing in this module.
    assert "nothing beats the module as given (110.0 us)" in out
    words = [*files, passes, "--sweep=*.threshold-bytes=1,2"]
    assert main(["simulate", *words, "--processes=1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["options"][0]["label"] == "*.threshold-bytes"
    assert told["given_is_best"] is True


def test_many_processes_say_what_one_says(files, capsys) -> None:
    texts = []
    for processes in (1, 2):
        words = [*files, _PASSES, _SWEEP, "--json", f"--processes={processes}"]
        assert main(["simulate", *words]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    told = json.loads(texts[0])
    assert len(told["combinations"]) == 4
    assert told["best"] == 0
    assert told["given"]["step_time_us"] == pytest.approx(110.0)
    assert told["combinations"][0]["step_time_us"] == pytest.approx(65.0)


def test_the_memory_limit_decides(files, capsys) -> None:
    words = [*files, _PASSES, _SWEEP, "--processes=1", "--memory-limit-bytes=1"]
    assert main(["simulate", *words]) == 0
    out = capsys.readouterr().out
    assert out.count("over the limit") == 4
    assert "best: none, no combination stays within 1 bytes" in out
    assert "*" not in out


def test_a_combination_that_fails_says_why_and_the_others_run(files, capsys) -> None:
    swept = "--sweep=max-iterations=1,5"
    passes = "--passes=fixed-point(latency-hiding-scheduler)"
    code = main(["simulate", *files, passes, swept, "--processes=1"])
    out = capsys.readouterr().out.splitlines()
    assert code == 0
    assert "error[E004]" in out[4]
    assert out[5].startswith("*")


def test_when_all_fail_the_exit_code_says_so(files, capsys) -> None:
    swept = "--sweep=max-iterations=1"
    passes = "--passes=fixed-point(latency-hiding-scheduler)"
    assert main(["simulate", *files, passes, swept, "--processes=1"]) == 3
    assert "best: none, every combination failed" in capsys.readouterr().out


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_plot_is_the_same_every_time(files, tmp_path, suffix) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("one", "two"):
        file = tmp_path / f"{name}.{suffix}"
        words = [*files, _PASSES, _SWEEP, "--processes=1", f"--plot={file}"]
        assert main(["simulate", *words]) == 0
        pictures.append(file.read_bytes())
    assert pictures[0] == pictures[1]
    if suffix == "svg":
        assert b"memory limit" not in pictures[0]
        assert b"<svg" in pictures[0]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--sweep=threshold-bytes=1"], "U222"),
        (["--passes=hlo-dce"], "U222"),
        (["--memory-limit-bytes=5"], "U222"),
        ([_PASSES, _SWEEP, "--html=x.html"], "U222"),
        ([_PASSES, _SWEEP, "--plot=x.gif"], "U212"),
        ([_PASSES, "--sweep=parallel-collective-overlap-limit=many"], "U013"),
        ([_PASSES, "--sweep=streams=many"], "U220"),
        ([_PASSES, f"--sweep=streams={'9' * 5000}"], "U220"),
        (["--passes=no-such", "--sweep=a=1"], "U011"),
    ],
)
def test_usage_errors(files, capsys, words, code) -> None:
    assert main(["simulate", *files, *words]) == 2
    assert f"error[{code}]" in capsys.readouterr().err


def test_without_rich_progress_is_plain_lines(monkeypatch, capsys) -> None:
    progress = importlib.import_module("hlo_passes.progress")
    clock = iter([0.0, 0.5, 1.5, 1.6, 9.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    assert list(progress.with_progress("abcd", 4, "sweep")) == list("abcd")
    assert capsys.readouterr().err == "sweep: 2 of 4\n"


def test_against_tells_moves_and_draws_both(files, tmp_path, capsys) -> None:
    after = tmp_path / "early.hlo"
    after.write_text(EARLY)
    page = tmp_path / "both.html"
    words = [*files, f"--against={after}", f"--html={page}"]
    assert main(["simulate", *words]) == 0
    assert "40.0 us less exposed: now overlaps %dot" in capsys.readouterr().out
    assert "late.hlo" in page.read_text()
    assert main(["simulate", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step_time_us"] == pytest.approx(110.0)
    assert told["against"]["step_time_us"] == pytest.approx(70.0)
    assert told["moves"][0]["name"] == "ag-start"


@pytest.mark.skipif(not pathlib.Path("/proc/self/stat").exists(), reason="no /proc")
def test_processes_end_with_a_command_that_was_killed(tmp_path: pathlib.Path) -> None:
    """Workers and the resource tracker: nobody of the session is left."""
    limits = ",".join(map(str, range(1, 901)))
    process = subprocess.Popen(
        [sys.executable, "-m", "hlo_passes", "simulate", str(REPOSITORY / "docs/simulator.hlo"),
         "--passes=gpu-schedule", "--processes=2",
         f"--sweep=parallel-collective-overlap-limit={limits}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while len(_of_session(process.pid)) < 4 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(_of_session(process.pid)) >= 4
    process.kill()
    process.wait()
    while _of_session(process.pid) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _of_session(process.pid)


def _of_session(session: int) -> list[int]:
    """Processes of a session that are not zombies."""
    found = []
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = file.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(its_session) == session and state != "Z":
            found.append(int(file.parent.name))
    return found
