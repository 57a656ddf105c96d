"""Collective kernels of the compiler take their time, whatever form they have."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes import scheduler
from hlo_passes.files import read_module
from hlo_passes.pricing import Pricing
from tests.modules import REPOSITORY

PROGRAM = "corpus/modules/0.12.0.1/tensor_parallel_mlp.partitioned.hlo"
PASSES = "collective-kernel-strategy-annotator{xla=0.12},gpu-schedule{xla=0.12}"
KERNEL_US = 2.51
ON = Pricing(xla="0.12")


@pytest.fixture(scope="module")
def kernels() -> hlo_passes.Module:
    """Four all-reduces of 512 bytes; two have become synchronous."""
    module = read_module(str(REPOSITORY / PROGRAM))
    hlo_passes.Pipeline.parse(PASSES).run(module)
    opcodes = [i.opcode for i in module.entry.instructions]
    assert (opcodes.count("all-reduce"), opcodes.count("async-start")) == (2, 2)
    return module


def test_each_is_priced_as_a_kernel(kernels: hlo_passes.Module) -> None:
    rows = [
        row
        for row in scheduler.estimate(kernels, on=ON).rows
        if row.opcode in ("all-reduce", "async-start")
    ]
    assert {row.model for row in rows} == {"sol/nvlink-kernel"}
    times = [row.latency_us or row.node_cost_us for row in rows]
    assert times == pytest.approx([KERNEL_US] * 4, abs=0.005)


def test_a_step_holds_all_of_them(kernels: hlo_passes.Module) -> None:
    timeline = scheduler.simulate(kernels, on=ON)
    assert timeline.step_time_us > 4 * KERNEL_US - 0.5
