"""Peaks, limits and chosen orders against what XLA printed.

`memory pressure peak (bytes)` of statistics.json, for the recorded order of every
computation that XLA scheduled, before and after; corpus/golden and ../shared/golden.
"""

from __future__ import annotations

import gzip
import json
import pathlib

import pytest

import hlo_passes
from hlo_passes.ir.computation import Computation
from hlo_passes.scheduler import target
from hlo_passes.scheduler.memory.base_order import base_order
from hlo_passes.scheduler.memory.buffer_sizes import part_size_bytes
from hlo_passes.scheduler.memory.memory_limit import scheduler_memory_limit_bytes
from hlo_passes.scheduler.memory.pressure import ModuleMemory
from tests.modules import REPOSITORY

_SHARED = REPOSITORY.parent / "shared" / "golden"
_PEAK = "memory pressure peak (bytes)"


def _folders(root: pathlib.Path, pattern: str) -> list[pathlib.Path]:
    return sorted(f.parent for f in root.glob(f"{pattern}/statistics.json"))


def _recordings() -> list[tuple[pathlib.Path, str]]:
    folders = _folders(REPOSITORY / "corpus" / "golden", "*/*")
    if _SHARED.is_dir():
        folders += _folders(_SHARED, "*/*")
    return [(f, which) for f in folders for which in ("before", "after")]


def _read(folder: pathlib.Path, which: str) -> hlo_passes.Module:
    file = folder / f"latency-hiding-scheduler.{which}.hlo.gz"
    return hlo_passes.parse(gzip.decompress(file.read_bytes()).decode())


def _hidden_bytes(computation: Computation) -> int:
    """Pointer tables whose elements the text spells inside their users.

    jaxlib 0.12 prints so; the text does not show where such an element is in the
    schedule, and with it how long the table lives.
    """
    tables = {e.operands[0] for e in computation.spelled_elements}
    return sum(part_size_bytes(t.shape) for t in tables)


@pytest.mark.parametrize(
    ("folder", "which"),
    _recordings(),
    ids=lambda x: x if isinstance(x, str) else f"{x.parent.name}/{x.name}",
)
def test_peaks_are_those_that_xla_printed(folder: pathlib.Path, which: str) -> None:
    printed = json.loads((folder / "statistics.json").read_text())[which]
    if not printed:
        pytest.skip("nothing was scheduled")
    module = _read(folder, which)
    memory = ModuleMemory(module)
    hidden = sum(_hidden_bytes(c) for c in memory.computations)
    for name, statistics in printed.items():
        computation = module.computation(name)
        assert computation is not None
        difference = memory.of(computation).peak_bytes() - statistics[_PEAK]
        if which == "after" or not hidden:
            assert difference == 0, name
        else:
            assert 0 <= difference <= hidden, name


#: (module, slop in percent, the limit that XLA logged) for an H100.
_LIMITS = [
    ("llama3_8b_cp_bf16_1x4", 95, 41668018279),
    ("llama31_70b_bf16_16x8", 95, 51974172775),
    ("llama31_70b_bf16_16x8", 55, 30090310554),
    ("llama31_8b_bf16_1x8", 95, 53110568026),
]


@pytest.mark.parametrize(("name", "slop", "logged"), _LIMITS)
def test_limit_is_the_one_that_xla_logged(name: str, slop: int, logged: int) -> None:
    folder = _SHARED / name / "sol"
    if not folder.is_dir():
        pytest.skip("no ../shared/golden")
    limit = scheduler_memory_limit_bytes(
        _read(folder, "before"), target("h100_sxm").memory_bytes, slop_percent=slop
    )
    assert limit == logged


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("llama31_70b_bf16_16x8", ""),
        ("llama31_405b_fp8_16x8", ""),
        # The list order that would win here goes by lists that no text shows.
        ("llama3_8b_cp_bf16_1x4", "dfs"),
    ],
)
def test_depth_first_order_is_xlas(name: str, chosen: str) -> None:
    """XLA took the depth-first order: it has no equals to choose among."""
    folder = _SHARED / name / "sol"
    if not folder.is_dir():
        pytest.skip("no ../shared/golden")
    module = _read(folder, "before")
    found = base_order(module, scheduler=chosen)
    assert found.scheduler == "dfs"
    for computation, order in found.orders.items():
        assert order == list(computation.instructions), computation.name
