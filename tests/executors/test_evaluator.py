"""Tasks on items: order, errors, and workers that die, here and on executors."""

from __future__ import annotations

import os
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from hlo_passes import plugins
from hlo_passes.cli.main import main
from hlo_passes.errors import UsageError
from hlo_passes.executors import named
from hlo_passes.executors.evaluator import Evaluator, Lost
from tests.executors import tasks
from tests.modules import CORPUS, REPOSITORY

NUMBERS = range(20)
SQUARES = [n * n for n in NUMBERS]


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_items(processes: int) -> None:
    with Evaluator(tasks.square, processes=processes) as evaluator:
        assert list(evaluator.map(NUMBERS)) == SQUARES
        # The same workers take the next batch.
        assert list(evaluator.map(iter([5, 6]))) == [25, 36]
        assert list(evaluator.map([])) == []


def test_a_slow_item_holds_the_order_and_not_the_others() -> None:
    with Evaluator(tasks.slow_first, processes=2) as evaluator:
        assert list(evaluator.map(range(6))) == list(range(6))


def test_a_single_item_starts_no_process() -> None:
    with Evaluator(tasks.process_number, processes=4) as evaluator:
        assert list(evaluator.map([1])) == [os.getpid()]
        several = set(evaluator.map(range(8)))
    assert os.getpid() not in several


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_task_raises_is_raised_here(processes: int) -> None:
    with (
        Evaluator(tasks.refuse, processes=processes) as evaluator,
        pytest.raises(UsageError, match="three is too many") as caught,
    ):
        list(evaluator.map(NUMBERS))
    assert caught.value.hint == "two"


def test_a_worker_that_dies_costs_its_evaluation_alone(tmp_path: pathlib.Path) -> None:
    task = tasks.DieOnce(str(tmp_path), at=7)
    with Evaluator(task, processes=2) as evaluator:
        assert list(evaluator.map(NUMBERS)) == SQUARES
    assert (tmp_path / "died").exists()


def test_an_item_that_kills_every_worker_is_lost() -> None:
    with Evaluator(tasks.die_at_three, processes=2) as evaluator:
        found = list(evaluator.map(NUMBERS))
    assert isinstance(found[3], Lost)
    assert "terminated abruptly" in found[3].reason
    assert found[:3] + found[4:] == SQUARES[:3] + SQUARES[4:]


def test_an_executor_of_another_distribution(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[hlo_passes.executors]\nthreads = mine:threads\nbroken = mine:broken\n"
        "wrong = mine:wrong\n"
    )
    (tmp_path / "mine.py").write_text(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def threads(address):\n    return ThreadPoolExecutor(int(address))\n"
        "def broken(address):\n    raise OSError('nobody there')\n"
        "def wrong(address):\n    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "threads" in named.executor_names()
    with Evaluator(tasks.square, executor="threads://3") as evaluator:
        assert evaluator.width == 3
        assert list(evaluator.map(NUMBERS)) == SQUARES
    for text, said in (
        ("broken://x", "U241.*nobody there"),
        ("wrong", "U015.*not a concurrent.futures.Executor"),
        ("thread://3", "U240.*no executor is called thread"),
    ):
        with pytest.raises(UsageError, match=f"(?s){said}"):
            named.connect(text)
    sys.modules.pop("mine", None)


def test_the_names_of_this_package_are_its_own() -> None:
    assert {"dask", "ray"} <= set(named.executor_names())
    assert plugins.EXECUTORS == "hlo_passes.executors"
    named.check_executor("dask://nowhere:1")
    named.check_executor("")


def test_an_executor_that_forgets_what_it_took() -> None:
    """An executor may lose work in a way of its own: the item runs again."""

    class Forgetful(ThreadPoolExecutor):
        lost = 0

        def submit(self, fn, /, *args, **kwargs):
            if args[-1] == 4 and Forgetful.lost < 1:
                Forgetful.lost += 1
                return super().submit(_forget)
            return super().submit(fn, *args, **kwargs)

    evaluator = Evaluator(tasks.square, executor="mine")
    evaluator._pool, evaluator._width = Forgetful(2), 2
    evaluator._packed, evaluator._digest = evaluator._pack()
    with evaluator:
        assert list(evaluator.map(NUMBERS)) == SQUARES
    assert Forgetful.lost == 1


def _forget() -> None:
    raise ConnectionError("the worker has gone")


def test_conformance_and_tune_take_processes(capsys) -> None:
    folder = CORPUS / "golden" / "0.10.2" / "count_limit"
    module = REPOSITORY / "docs" / "tutorial" / "step.h100_sxm.hlo"
    for words in (["conformance", str(folder)], ["tune", str(module), "--budget=4"]):
        found = []
        for count in (1, 2):
            assert main([*words, "--json", f"--processes={count}"]) == 0
            told = capsys.readouterr().out
            found.append([k for k in told.splitlines() if '"seconds"' not in k])
        assert found[0] == found[1]
