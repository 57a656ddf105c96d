"""What XLA's own estimator logged: samples kept here, all of it where it is at hand."""

from __future__ import annotations

import functools
import json
import pathlib

import pytest

from hlo_passes import UsageError
from hlo_passes.scheduler.estimators.base import HIGH
from hlo_passes.scheduler.estimators.sol import SolEstimator
from hlo_passes.scheduler.fusions.roofline import fusion_time
from hlo_passes.scheduler.hardware.target import target
from hlo_passes.scheduler.latency.collective_time import CollectiveModel
from hlo_passes.scheduler.latency.data_tables import op_cycles
from hlo_passes.scheduler.latency.durations import us_of_ticks
from hlo_passes.scheduler.latency.matmul_table import Gemm, builtin_matmul_table
from hlo_passes.scheduler.latency.options import LatencyOptions
from tests.modules import SHARED
from tests.scheduler.make_samples import (
    COLLECTIVES,
    FUSIONS,
    MATMULS,
    SAMPLES,
    collective_rows,
)
from tests.scheduler.single_ops import collective_module, fusion_module

ALL = SHARED / "data"
needs_all = pytest.mark.skipif(not ALL.is_dir(), reason="no tables of logged values")

#: Values that XLA passes over in silence and that are errors here.
IGNORED_BY_XLA = {"rtt_us=10.5", "nic_speed_gbps=-2"}


def close(found: float, logged: float) -> bool:
    """Equal to the six digits that XLA logs."""
    return abs(found - logged) <= 1e-5 * logged + 0.0006


@functools.cache
def estimator(name: str, options: str) -> SolEstimator:
    kept = [option for option in options.split(";") if option not in IGNORED_BY_XLA]
    return SolEstimator(
        CollectiveModel(target(name), LatencyOptions.parse(",".join(kept)))
    )


def wrong_collectives(path: pathlib.Path) -> tuple[int, list[str]]:
    rows = collective_rows(path)
    wrong = []
    for row in rows:
        strategy = row["kernel_strategy"]
        module = collective_module(
            row["instruction"], row["operand_shapes"], row["result_shapes"],
            row["groups_or_pairs"], num_partitions=int(row["num_partitions"]),
            kernel_strategy="" if strategy == "DEFAULT" else strategy,
        )  # fmt: skip
        start = next(
            i for i in module.entry.instructions if i.name in ("start", "sync")
        )
        sol = estimator(row["target"], row["estimator_options"])
        found = sol.latency(start, module.entry.root)
        coarse = found.model == "gpu-approximate"
        if (
            not close(found.us, float(row["expected_latency_us"]))
            or coarse != (row["status"] == "fallback")
            or coarse != (found.us == HIGH)
        ):
            wrong.append(f"{row} gives {found}")
    return len(rows), wrong


def wrong_matmuls(path: pathlib.Path) -> tuple[int, list[str]]:
    rows = collective_rows(path)
    wrong = []
    for row in rows:
        sides = [int(row[name]) for name in "bmkn"]
        gemm = Gemm(*sides, row["lhs_dtype"], row["rhs_dtype"], row["out_dtype"])
        found = builtin_matmul_table(target(row["target"]).table_key).ticks(gemm)
        if not close(us_of_ticks(found), float(row["expected_us"])):
            wrong.append(f"{row} gives {us_of_ticks(found)}")
    return len(rows), wrong


def wrong_fusions(path: pathlib.Path) -> tuple[int, list[str]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    wrong = []
    for row in rows:
        module = fusion_module(row["hlo"], row["kind"])
        found = fusion_time(
            module.entry.root, target(row["target"]), op_cycles("sm_86")
        )
        launch = (found.kernel.launch.blocks, found.kernel.launch.threads)
        if (
            not close(us_of_ticks(found.ticks), row["expected_us"])
            or launch != (row["blocks"], row["threads_per_block"])
            or found.cost.flops != row["flops"]
        ):
            wrong.append(f"{row} gives {found}")
    return len(rows), wrong


def test_sampled_collectives() -> None:
    assert wrong_collectives(SAMPLES / COLLECTIVES) == (140, [])


def test_sampled_matmuls() -> None:
    assert wrong_matmuls(SAMPLES / MATMULS) == (68, [])


def test_sampled_fusions() -> None:
    assert wrong_fusions(SAMPLES / FUSIONS) == (26, [])


@needs_all
def test_all_collectives() -> None:
    assert wrong_collectives(ALL / "sol_golden_collectives.csv") == (1393, [])


@needs_all
def test_all_matmuls() -> None:
    assert wrong_matmuls(ALL / "sol_golden_matmul.csv") == (404, [])


@needs_all
def test_all_fusions() -> None:
    assert wrong_fusions(ALL / "sol_golden_fusions.jsonl") == (260, [])


@pytest.mark.parametrize("option", sorted(IGNORED_BY_XLA))
def test_what_xla_ignores_is_refused_with_its_range(option) -> None:
    with pytest.raises(UsageError) as refused:
        LatencyOptions.parse(option)
    assert refused.value.code == "U204"
    assert option.split("=")[0] in refused.value.hint
