"""Programs of the corpus with passes inside: a sample of install_table.py. A minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.runtime.install_table import VARIANTS, cpu_rows, programs

SAMPLE = ("control_flow", "moe", "tensor_parallel_mlp")


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_stage_and_pipeline_gives_the_same_bits(
    host_devices: Callable[[int], Sequence[Any]], name: str, variant: str
) -> None:
    host_devices(8)
    rows = cpu_rows(name, programs()[name], [variant])
    assert len(rows) == 6
    for row in rows:
        assert row.problem == "", row
        assert row.fired >= 1, row
        assert row.same_bits, row
    assert any(row.changed for row in rows)


def test_programs_are_found() -> None:
    assert len(programs()) >= 20
    assert list(programs(["moe"])) == ["moe"]
