"""Recorded modules before and after XLA's partitioner are told apart."""

from __future__ import annotations

import pytest

from hlo_passes.analysis.partitioning import mark_of_no_partitioning
from hlo_passes.files import read_module
from tests.modules import REPOSITORY

MODULES = REPOSITORY / "corpus" / "modules"


@pytest.mark.parametrize("release", ["0.10.2", "0.12.0.1"])
@pytest.mark.parametrize(
    "stage", ["before-optimizations", "partitioned", "scheduled", "gpu-scheduled"]
)
def test_recorded_modules(release: str, stage: str) -> None:
    files = sorted((MODULES / release).glob(f"*.{stage}.hlo"))
    assert len(files) > 5
    for file in files:
        module = read_module(str(file))
        mark = mark_of_no_partitioning(module)
        expected = stage == "before-optimizations" and module.num_partitions > 1
        assert (mark is not None) == expected, file.name
