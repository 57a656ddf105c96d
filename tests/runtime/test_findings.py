"""What XLA made of the reproducers of docs/findings, run on emulated devices."""

from __future__ import annotations

import gzip

import pytest

import hlo_passes
from hlo_passes import runtime
from hlo_passes.ir.module import Module
from tests.passes.test_findings import FINDINGS, PAIRS, SEEN, Finding, by_name


def for_cpu(module: Module) -> Module:
    """The module without ragged all-to-alls, which CPUs do not have."""
    hlo_passes.Pipeline.parse("ragged-all-to-all-decomposer").run(module)
    return module


@pytest.fixture(autouse=True, scope="module")
def _devices(host_devices) -> None:
    host_devices(8)


@pytest.mark.parametrize(
    ("finding", "release"),
    SEEN,
    ids=[f"{f.path.stem}-{r}" for f, r in SEEN],
)
def test_what_xla_made_of_it_computes_something_else(
    finding: Finding, release: str
) -> None:
    folder = PAIRS / release / f"finding.{finding.path.stem}"
    (before,), (after,) = (
        [
            for_cpu(hlo_passes.parse(gzip.decompress(path.read_bytes()).decode()))
            for path in folder.glob(f"*.{which}.hlo.gz")
        ]
        for which in ("before", "after")
    )
    assert not runtime.compare(before, after).bitwise_equal


@pytest.mark.parametrize("finding", FINDINGS, ids=by_name)
def test_without_quirks_every_bit_is_the_same(finding: Finding) -> None:
    module, _ = finding.rewritten(xla_quirks=False)
    before = for_cpu(finding.module)
    assert runtime.compare(before, for_cpu(module)).bitwise_equal
    module, _ = finding.rewritten(xla_quirks=True)
    assert not runtime.compare(before, for_cpu(module)).bitwise_equal
