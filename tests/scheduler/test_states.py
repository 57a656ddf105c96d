"""Commands say what a module is on their first line, and refuse what means nothing."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.analysis.module_state import WrongStateError
from hlo_passes.cli.main import main
from tests.modules import REPOSITORY

MODULES = REPOSITORY / "corpus" / "modules" / "0.12.0.1"
NOT_PARTITIONED = MODULES / "matmul_2d.before-optimizations.hlo"
PARTITIONED = MODULES / "matmul_2d.partitioned.hlo"
BY_CPU = MODULES / "matmul_2d.scheduled.hlo"
BY_GPU = MODULES / "matmul_2d.gpu-scheduled.hlo"

#: Everything that prices or orders a module.
PRICING: list[Sequence[str]] = [
    ["simulate"],
    ["simulate", "--json"],
    [
        "simulate", "--passes=gpu-schedule",
        "--sweep=parallel-collective-overlap-limit=1,2",
    ],
    ["estimate"],
    ["estimate", "--compare-targets=h100_sxm,b200"],
    ["opt", "--passes=latency-hiding-scheduler"],
    ["opt", "--passes=hlo-memory-scheduler"],
    ["opt", "--passes=gpu-schedule"],
    ["opt", "--passes=xla-gpu"],
]  # fmt: skip


@pytest.mark.parametrize("words", PRICING, ids=" ".join)
def test_what_is_not_partitioned_is_refused(
    words: Sequence[str],
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, *options = words
    output = tmp_path / "out.hlo"
    if command == "opt":
        options.append(f"--output={output}")
    assert main([command, str(NOT_PARTITIONED), *options]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    first, *_, last = told.err.splitlines()
    assert first.startswith(f"{NOT_PARTITIONED}:")
    assert "error[S017]: %" in first
    assert "the module is not partitioned yet" in first
    assert last.startswith("  help: partition it: hlo-passes lower ")
    assert not output.exists()


def test_so_is_it_in_python() -> None:
    module = hlo_passes.parse(NOT_PARTITIONED.read_text())
    with pytest.raises(WrongStateError):
        scheduler.simulate(module)
    with pytest.raises(WrongStateError):
        scheduler.estimate(module)


def test_the_later_state_of_a_comparison_is_refused_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["simulate", str(PARTITIONED), f"--against={NOT_PARTITIONED}"]
    assert main(words) == 1
    assert f"{NOT_PARTITIONED}:" in capsys.readouterr().err


TO_SCHEDULE = "hlo-passes opt INPUT --passes=xla-gpu -o scheduled.hlo"
TO_LOWER = "hlo-passes lower FILE.py:FUNCTION --target=h100_sxm"


@pytest.mark.parametrize(
    ("file", "stage", "said", "cure"),
    [
        (PARTITIONED, "partitioned", "partitioned, not scheduled; ", TO_SCHEDULE),
        (BY_CPU, "cpu", "compiled for a CPU; ", TO_LOWER),
        (BY_GPU, "gpu-scheduled", "scheduled by XLA:GPU 0.11 or 0.12", ""),
    ],
)
def test_the_first_line_says_what_it_is_and_what_to_do(
    file: pathlib.Path,
    stage: str,
    said: str,
    cure: str,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = tmp_path / "page.html"
    for words in (["simulate", f"--html={page}"], ["estimate"]):
        assert main([*words[:1], str(file), *words[1:]]) == 0
        first = capsys.readouterr().out.splitlines()[0]
        assert first.startswith(f"module   {said}")
        assert first.endswith(cure)
    title = page.read_text()
    assert f'"subtitle":"{said.partition(";")[0]}' in title
    assert f'"is_final":{json.dumps(not cure)}' in title
    for command in ("simulate", "estimate"):
        assert main([command, str(file), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["module_state"] == stage
        assert told["module_evidence"]


def test_no_bound_is_claimed_for_what_a_gpu_does_not_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", str(PARTITIONED)]) == 0
    told = capsys.readouterr().out
    assert "no order of these instructions is faster" not in told
    assert "of the module as it is; what a GPU runs has another one" in told
    assert main(["simulate", str(BY_GPU)]) == 0
    assert (
        "no order of these instructions is faster; the gap is"
        in capsys.readouterr().out
    )


def test_its_cure_cures(tmp_path: pathlib.Path, capsys) -> None:
    made = tmp_path / "scheduled.hlo"
    words = ["opt", str(PARTITIONED), "--passes=xla-gpu", "-o", str(made)]
    report = tmp_path / "report.json"
    assert main([*words, f"--report={report}"]) == 0
    assert json.loads(report.read_text())["module_state"] == "partitioned"
    assert main(["simulate", str(made)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "module   scheduled for a GPU, nothing is fused"


def test_other_commands_say_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(NOT_PARTITIONED), str(PARTITIONED), str(BY_GPU)]
    assert main(["verify", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", ", 2)[2] for line in lines] == [
        "not partitioned yet",
        "partitioned, not scheduled",
        "scheduled by XLA:GPU 0.11 or 0.12",
    ]
    assert main(["diff", files[0], files[1]]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "module   not partitioned yet -> partitioned, not scheduled"
    assert main(["diff", files[1], files[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["module_state"] == {
        "before": "partitioned", "after": "partitioned",
    }  # fmt: skip
    against = f"--against={BY_GPU}"
    assert main(["simulate", str(BY_GPU), against]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "module   scheduled by XLA:GPU 0.11 or 0.12"


def test_a_program_for_one_device_is_priced(tmp_path: pathlib.Path, capsys) -> None:
    file = tmp_path / "one.hlo"
    file.write_text(
        "HloModule one\n\nENTRY %main {\n  %p = f32[8] parameter(0)\n"
        "  ROOT %n = f32[8] negate(%p)\n}\n"
    )
    assert main(["simulate", str(file)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("module   for one partition, not scheduled; ")
