"""Flag lists that others publish, and what `tune --also` makes of them."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import subprocess
import sys

import pytest

from hlo_passes.cli.main import main
from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.flag_list import (
    GivenList,
    TriedList,
    given_list,
)
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.published import FLAGS, PUBLISHED
from hlo_passes.scheduler.tuning.report import report_text
from hlo_passes.xla_release import xla_release
from tests.modules import REPOSITORY
from tests.scheduler.tuning.test_report import result

INSTALLED = xla_release(importlib.metadata.version("jaxlib"))
OLD, NEW = xla_release("0.10.2"), xla_release("0.12")
#: Flags that pages name without a value, with one that XLA takes.
VALUES = {
    "xla_gpu_analytical_latency_estimator_options": "gpus_per_node=8",
    "xla_gpu_disable_async_collectives": "allreduce",
    "xla_gpu_experimental_collective_perf_table_path": "none",
    "xla_gpu_memory_limit_slop_factor": "95",
    "xla_gpu_nccl_collective_max_nchannels": "0",
    "xla_gpu_nccl_p2p_max_nchannels": "0",
    "xla_gpu_pgle_profile_file_or_directory_path": "none",
    "xla_gpu_graph_level": "0",
}


def problem_of(flags: str) -> str:
    """What XLA says on stderr where it refuses flags, '' where it takes them."""
    done = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stderr if done.returncode else ""


def test_xla_takes_every_list() -> None:
    every = " ".join(
        given_list(name).flags_for(INSTALLED)
        for name in PUBLISHED
    )  # fmt: skip
    assert not problem_of(every)


def test_xla_knows_the_flags_that_it_is_said_to_know() -> None:
    """It names all those that it does not know at once."""
    named = dict(pair for row in PUBLISHED.values() for pair in row.flags)
    texts = [f"--{name}={(named | VALUES).get(name, 'true')}" for name in FLAGS]
    known = {name for name, row in FLAGS.items() if row.is_in(INSTALLED)}
    problem = problem_of(" ".join(texts))
    unknown = {name for name in FLAGS if f"--{name}=" in problem}
    assert unknown == set(FLAGS) - known


def test_every_flag_has_a_lever_or_a_reason() -> None:
    in_lists = {name for row in PUBLISHED.values() for name, _ in row.flags}
    assert in_lists <= set(FLAGS)
    for name, row in FLAGS.items():
        assert bool(row.lever) != bool(row.why), name
        assert not row.lever or row.lever in LEVERS, name
    for row in PUBLISHED.values():
        names = [name for name, _ in row.flags]
        assert len(names) == len(set(names))
        assert all(address.startswith("https://") for address in row.sources)


def test_a_list_is_spelled_as_a_release_has_it() -> None:
    given = given_list("maxtext-a3-1vm")
    assert "--xla_gpu_pipeline_all_gather=on" in given.flags_for(NEW)
    assert "--xla_gpu_enable_pipelined_all_gather=true" in given.flags_for(OLD)
    assert given.unknown_to(OLD) == given.unknown_to(NEW) == ()
    assert given_list("nvidia-permute").unknown_to(NEW) == (
        "xla_gpu_lhs_enable_gpu_async_tracker",
    )
    # What the level decides is not said in another way.
    assert "xla_gpu_pipeline_all_gather" in given_list("maxtext-matmul").unknown_to(OLD)


def test_own_flags_go_to_xla_as_they_are() -> None:
    text = "--xla_gpu_no_such_flag=1 --xla_dump_hlo_as_text --xla_a='b c' --xla_b="
    text += ' --xla_c="it\'s so"'
    given = given_list(text)
    assert given.flags_for(NEW) == text
    assert given.unknown_to(NEW) == ()
    assert given.label(NEW) == f"{text[:69]}..."


@pytest.mark.parametrize(
    "text", ["", "maxtext-a3-1vmm", "xla_gpu_pipeline_all_gather=on", "--xla_a='b"]
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        given_list(text)


def test_levers_that_a_list_has() -> None:
    text = "--xla_gpu_pipeline_all_gather=on --xla_gpu_memory_limit_slop_factor=80"
    assert given_list(text).levers_in(NEW) == Combination.of(
        {"pipelined all-gather": "on", "scheduler memory": "80"}
    )
    # By the names of an older release, too.
    old = given_list("openxla-o1").levers_in(OLD)
    assert old.get("pipelined all-gather") == "on"
    # So a second stream is priced as one.
    streams = "--xla_gpu_experimental_enable_collective_multi_streaming=true"
    assert given_list(streams).levers_in(NEW).get("several streams") == "on"


def test_flags_that_choose_kernels_are_not_priced() -> None:
    given = given_list("--xla_gpu_enable_triton_gemm=false --xla_gpu_x=1")
    assert given.flags_for(NEW) == "--xla_gpu_x=1"
    assert given.kernel_choices() == ("xla_gpu_enable_triton_gemm",)
    assert "triton" not in given_list("maxtext-a3-1vm").flags_for(NEW)
    tried = TriedList(given, "--xla_gpu_x=1", (), Outcome(99_000.0))
    found = result(lists=(tried,))
    assert "which only a GPU can time: xla_gpu_enable_triton_gemm" in report_text(found)
    told = found.to_json()["given_lists"][0]
    assert told["kernel_choices"] == ["xla_gpu_enable_triton_gemm"]


def test_the_report_has_a_line_for_each() -> None:
    unknown = ("xla_gpu_lhs_enable_gpu_async_tracker",)
    slower = Outcome(110_000.0, 22_000.0, 1 << 30, steps_us=(110_000.0, 121_000.0))
    own = GivenList("", (("xla_gpu_no_such_flag", "1"),))
    found = result(
        lists=(
            TriedList(given_list("nvidia-permute"), "--xla_a=1", unknown, slower),
            TriedList(own, "", (), Outcome.failed("XLA's process ended")),
        )
    )
    lines = report_text(found).splitlines()
    assert (
        "given list  nvidia-permute: step 110.00 ms (+10.0%, range +10.0% to +10.0%), "
        "exposed 22.00 ms (20.0%), memory 1.0 GiB; left out, as XLA 0.12 does not know "
        "it: xla_gpu_lhs_enable_gpu_async_tracker"
    ) in lines
    assert "given list  --xla_gpu_no_such_flag=1: XLA's process ended" in lines
    first, second = found.to_json()["given_lists"]
    assert first["name"] == "nvidia-permute"
    assert first["step_us"] == 110_000.0
    assert first["change"] == pytest.approx(0.1)
    assert second["step_us"] is None
    assert second["problem"] == "XLA's process ended"


def test_a_list_that_is_faster_than_the_best_says_so() -> None:
    given = given_list("nvidia-image")
    for step_us, is_told in ((80_000.0, True), (89_000.0, False)):
        tried = TriedList(given, "", (), Outcome(step_us, memory_bytes=1 << 30))
        text = report_text(result(lists=(tried,)))
        assert ("faster than the best, take this list" in text) == is_told
    assert result().best.step_us == pytest.approx(89_000.0)


def test_a_step_without_all_prices_is_no_gain() -> None:
    free = Outcome(
        40_000.0,
        memory_bytes=1 << 30,
        remarks=("no price for 8 operations",),
        unpriced=8,
    )
    tried = TriedList(given_list("nvidia-permute"), "", (), free)
    found = result(lists=(tried,))
    text = report_text(found)
    assert "not priced: 8 operations without a price" in text
    assert "take this list" not in text
    (told,) = found.to_json()["given_lists"]
    assert (told["change"], told["unpriced"]) == (None, 8)


def test_a_dumped_module_has_no_flags(capsys: pytest.CaptureFixture[str]) -> None:
    module = str(REPOSITORY / "docs" / "tutorial" / "step.h100_sxm.hlo")
    assert main(["tune", module, "--also=nvidia-fsdp"]) == 2
    assert "--also needs XLA" in capsys.readouterr().err
