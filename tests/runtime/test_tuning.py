"""Tuning with XLA's GPU compiler; all of it needs JAX's CUDA plug-in."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes.runtime import jax_private
from hlo_passes.runtime.tuning import compile_process
from hlo_passes.runtime.tuning.compile_process import CompileProcess
from hlo_passes.runtime.tuning.compiled_tuning import evaluating
from hlo_passes.runtime.tuning.evaluation import XlaEvaluator, compile_for_gpus
from hlo_passes.runtime.tuning.program import Program
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.flag_list import given_list
from hlo_passes.scheduler.tuning.plugged_in import PassLever
from hlo_passes.scheduler.tuning.store import Store
from tests.modules import REPOSITORY
from tests.runtime.tuning_agreement import SAME, both_ways, settings

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None, reason="no jax-cuda12-plugin"
)
FSDP = f"{REPOSITORY}/docs/tutorial/fsdp.py:step"
LIMIT = Combination.of({"overlap limit": "2"})


def test_a_compilation_that_ends_at_the_schedule_gives_the_same_module() -> None:
    with CompileProcess(Program(FSDP, hosts=1)) as process:
        part = compile_for_gpus(process, {})
        whole = compile_for_gpus(process, {}, makes_kernels=True)
        assert part.after
        assert part.after == whole.after
        assert part.before == whole.before
        request = {"makes_kernels": False, "installed": None}
        with process.answered({}, request) as found:
            assert found.fields["is_last"]
        # A flag that XLA does not know is the problem of one evaluation.
        refused = compile_for_gpus(process, {"xla_gpu_no_such_flag": True})
        assert not refused.after
        assert "xla_gpu_no_such_flag" in refused.problem
        assert not refused.problem.startswith("error")


def test_both_ways_agree() -> None:
    tried = [LIMIT, *settings()[:2]]
    for chosen, xla, own in both_ways(Program(FSDP, hosts=1), tried):
        assert xla.is_done
        assert own.is_done
        assert own.step_us == pytest.approx(xla.step_us, rel=SAME), chosen


def test_a_process_that_dies_costs_one_evaluation(monkeypatch) -> None:
    program = Program(FSDP, hosts=1)
    with CompileProcess(program) as process:
        assert process.traced.machine == "1x1x8"
        assert process._process is not None
        process._process.kill()
        ended = compile_for_gpus(process, {})
        assert "was ended by signal 9" in ended.problem
        assert not ended.is_certain
        assert compile_for_gpus(process, {}).after


def test_what_is_known_is_not_compiled_again(tmp_path: pathlib.Path) -> None:
    store = Store(str(tmp_path))
    program = Program(FSDP, hosts=1)
    found = []
    for _ in range(2):
        evaluator = XlaEvaluator(program, Rules(), store, on=program.on)
        outcomes = dict(evaluator.compiled([Combination(), LIMIT]))
        outcomes[Combination.of({"overlap limit": "4"})] = evaluator.alone(LIMIT, "")
        found.append(outcomes)
        counted = evaluator.compilations
        evaluator.close()
        assert counted == (3 if len(found) == 1 else 0)
    assert found[0] == found[1]
    # From its flags alone, in a process of its own, the step is the same.
    alone = found[0][Combination.of({"overlap limit": "4"})]
    assert alone.step_us == found[0][LIMIT].step_us
    assert compile_process._process is None


def test_the_command(tmp_path: pathlib.Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "hlo_passes", "tune", FSDP, "--hosts=1", "--budget=3",
         f"--cache={tmp_path}", "--json"],
        capture_output=True, text=True, check=False, cwd=REPOSITORY,
        env=os.environ | {"XLA_FLAGS": "--xla_gpu_all_gather_combine_threshold_bytes=0"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["best"] == {"overlap limit": "2"}
    # The flags of the environment stay.
    assert found["xla_flags"] == (
        "--xla_gpu_all_gather_combine_threshold_bytes=0 "
        "--xla_gpu_experimental_parallel_collective_overlap_limit=2"
    )
    assert found["recompiled_step_us"] == found["best_step_us"]
    assert found["best_step_us"] < found["baseline_step_us"]
    assert found["evaluations"] <= 3


def test_a_cache_that_keeps_nothing(tmp_path: pathlib.Path) -> None:
    arguments = argparse.Namespace(cache="none", executor="", processes=1)
    seen = []

    class Nothing:
        def __init__(self, store: Store, executor: str, processes: int) -> None:
            seen.append((store.folder, executor, processes))

        def close(self) -> None: ...

    for cache in ("none", str(tmp_path)):
        arguments.cache = cache
        with evaluating(Nothing, arguments):  # type: ignore[type-var]
            pass
    assert seen == [("", "", 1), (str(tmp_path), "", 1)]


def test_a_given_list_is_tried_as_it_is(tmp_path: pathlib.Path) -> None:
    program = Program(FSDP, hosts=1)
    store = Store(str(tmp_path))
    evaluator = XlaEvaluator(program, Rules(), store, on=program.on)
    outcomes = dict(evaluator.compiled([LIMIT]))
    limit = "--xla_gpu_experimental_parallel_collective_overlap_limit=2"
    tried = evaluator.listed(given_list(limit), "")
    assert tried.flags == limit
    assert tried.outcome.step_us == outcomes[LIMIT].step_us
    # What XLA refuses is the problem of one list.
    refused = evaluator.listed(given_list("--xla_gpu_no_such_flag=1"), "")
    evaluator.close()
    assert not refused.outcome.is_done
    assert "xla_gpu_no_such_flag" in refused.outcome.problem


@pytest.mark.skipif(
    not jax_private.XLA.calls_back_without_gpus, reason="XLA calls no passes here"
)
def test_passes_inside_the_compilation(tmp_path: pathlib.Path) -> None:
    """In a new process with the flags of a combination; the second time from the store."""
    program = Program(FSDP, hosts=1)
    always = PassLever("collective-ring-decomposer{form=ring,always=true}")
    levers = (PassLever("collective-ring-decomposer"), always)
    found, alone = [], {}
    for _ in range(2):
        evaluator = XlaEvaluator(program, Rules(), Store(str(tmp_path)), on=program.on)
        alone |= evaluator.compiled([LIMIT])
        found.append(list(evaluator.plugged_in(levers, LIMIT, "")))
        counted = evaluator.compilations
        evaluator.close()
        assert counted == (3 if len(found) == 1 else 0)
    assert found[0] == found[1]
    stays, rings = found[0]
    assert not stays.changes
    assert stays.outcome.step_us == alone[LIMIT].step_us
    assert rings.changes
    assert rings.outcome.step_us > alone[LIMIT].step_us


@pytest.mark.skipif(
    not jax_private.XLA.calls_back_without_gpus, reason="XLA calls no passes here"
)
def test_a_pass_is_also_tried_without_asking_what_xla_leaves(
    tmp_path: pathlib.Path,
) -> None:
    """`xla-gpu` fuses nothing, so by it one of two loops has no gain."""
    program = Program(f"{REPOSITORY}/docs/pipelining/loops.py:fsdp", hosts=2)
    levers = (
        PassLever("loop-multi-buffer{control-edges=false,buffers=4}"),
        PassLever("collective-ring-decomposer"),
    )
    store = Store(str(tmp_path))
    evaluator = XlaEvaluator(program, Rules(), store, on=program.on)
    outcomes = dict(evaluator.compiled([Combination()]))
    found = {}
    for both in (False, True):
        tried = evaluator.plugged_in(levers, Combination(), "", both_forms=both)
        found[both] = list(tried)
    evaluator.close()
    asked, better = (found[both][0] for both in (False, True))
    assert better.lever.name.endswith("{control-edges=false,buffers=4,after-xla=false}")
    assert better.lever.name in better.install
    assert better.outcome.step_us < 0.95 * asked.outcome.step_us
    assert asked.outcome.step_us < outcomes[Combination()].step_us
    # Where both forms come to the same, the question stays.
    assert found[True][1] == found[False][1]


def test_a_program_that_is_not_there() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "hlo_passes", "tune", "no/such.py:step"],
        capture_output=True, text=True, check=False, cwd=REPOSITORY,
    )  # fmt: skip
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
