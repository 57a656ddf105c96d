"""A Dask cluster of two processes on this machine: the same answers as one process."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from hlo_passes.cli.main import main
from hlo_passes.errors import UsageError
from hlo_passes.executors.evaluator import Evaluator
from hlo_passes.executors.named import connect
from tests.executors import tasks
from tests.modules import CORPUS, REPOSITORY
from tests.scheduler.schedules import LATE, write_costs

distributed = pytest.importorskip("distributed")
# Dask's own threads leave sockets to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

NUMBERS = range(40)
SQUARES = [n * n for n in NUMBERS]


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """A scheduler, and two workers in processes of their own."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=50,
    ) as made:
        yield made


@pytest.fixture
def where(cluster) -> str:
    return f"dask://{cluster.scheduler_address.removeprefix('tcp://')}"


def test_the_same_results(where: str) -> None:
    with Evaluator(tasks.square, executor=where) as evaluator:
        assert evaluator.width == 2
        assert list(evaluator.map(NUMBERS)) == SQUARES


def test_both_workers_work(where: str) -> None:
    with Evaluator(tasks.process_number, executor=where) as evaluator:
        found = set(evaluator.map(range(30)))
    assert len(found) == 2
    assert os.getpid() not in found


def test_a_worker_killed_in_the_middle(where: str) -> None:
    with Evaluator(tasks.process_number, executor=where) as evaluator:
        found = evaluator.map(range(60))
        victim = next(found)
        os.kill(victim, signal.SIGKILL)
        rest = list(found)
    assert len(rest) == 59
    assert all(isinstance(each, int) for each in rest)


def test_a_task_that_kills_its_worker(where: str, tmp_path: pathlib.Path) -> None:
    task = tasks.DieOnce(str(tmp_path), at=11)
    with Evaluator(task, executor=where) as evaluator:
        assert list(evaluator.map(NUMBERS)) == SQUARES


def test_a_sweep_on_the_cluster_is_the_sweep_here(
    where: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "late.hlo"
    file.write_text(LATE)
    words = [
        "simulate", str(file), f"--costs={write_costs(tmp_path)}",
        "--passes=latency-hiding-scheduler", "--json",
        "--sweep=parallel-collective-overlap-limit=1,2,3,simulate.streams=1,2",
    ]  # fmt: skip
    assert main([*words, "--processes=1"]) == 0
    alone = capsys.readouterr().out
    assert main([*words, f"--executor={where}"]) == 0
    assert capsys.readouterr().out == alone


def test_tune_on_the_cluster_finds_the_same(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = REPOSITORY / "docs" / "tutorial" / "step.h100_sxm.hlo"
    words = ["tune", str(module), "--budget=6", "--json"]
    found = []
    for place in ("--processes=1", f"--executor={where}"):
        assert main([*words, place]) == 0
        answer = json.loads(capsys.readouterr().out)
        del answer["seconds"]
        found.append(answer)
    assert found[0] == found[1]


def test_conformance_on_the_cluster_judges_the_same(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = CORPUS / "golden" / "0.10.2" / "count_limit"
    said = []
    for place in ("--processes=1", f"--executor={where}"):
        assert main(["conformance", str(folder), "--json", place]) == 0
        verdicts = json.loads(capsys.readouterr().out)["verdicts"]
        said.append([{**each, "seconds": 0} for each in verdicts])
    assert said[0] == said[1]


def test_error_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlo_passes.executors.dask_cluster._SECONDS", 1)
    started = time.monotonic()
    with pytest.raises(UsageError, match=r"U241.*no scheduler answers"):
        connect("dask://127.0.0.1:9")
    assert time.monotonic() - started < 20
    assert threading.active_count() < 60
