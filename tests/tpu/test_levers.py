"""The levers of XLA:TPU, against themselves and against the library."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes import UsageError
from hlo_passes.scheduler.tpu.chips import chip_names
from hlo_passes.scheduler.tuning.tpu_levers import TPU_LEVERS, tpu_levers, tpu_options
from tests.modules import REPOSITORY
from tests.tpu.test_aot import needs_library

#: Asks the library for each flag: one that it does not know is named in the error.
ASK = """
import jax
from hlo_passes.runtime import tpu_aot
from hlo_passes.scheduler.tuning.tpu_levers import TPU_LEVERS, tpu_options
devices = tpu_aot.tpu_devices(tpu_aot.grid_to_compile_for("v5e", "1x1"))
traced = jax.jit(lambda x: x + 1).trace(jax.ShapeDtypeStruct((8,), "float32"))
lowered = traced.lower(lowering_platforms=("tpu",))
for name, row in TPU_LEVERS.items():
    for each in row.lever.settings:
        try:
            with tpu_aot.scheduler_log():
                options = tpu_options({name: each.setting})
                tpu_aot.compile_for(lowered, devices, options)
        except RuntimeError as problem:
            if "No such compile option" in str(problem) or "parse" in str(problem):
                print(name, each.setting, problem)
"""


def test_rows_are_sound() -> None:
    assert len(TPU_LEVERS) >= 30
    for name, row in TPU_LEVERS.items():
        assert set(row.chips) <= set(chip_names()), name
        assert set(row.lever.interacts) <= set(TPU_LEVERS), name
        settings = [each.setting for each in row.lever.settings]
        assert settings, name
        assert len(set(settings)) == len(settings), name
        for each in row.lever.settings:
            assert all(flag.name.startswith("xla_") for flag in each.flags), name


def test_a_chip_has_its_own() -> None:
    v5e, v6e = ({row.lever.name for row in tpu_levers(c)} for c in ("v5e", "v6e"))
    assert "several steps" in v5e - v6e
    assert "all-gather on SparseCores" in v6e - v5e
    with pytest.raises(UsageError, match="U250"):
        tpu_levers("h100")


def test_options() -> None:
    assert tpu_options({"all-gathers at once": "4", "scheduler": "off"}) == {
        "xla_max_concurrent_async_all_gathers": 4,
        "xla_tpu_enable_latency_hiding_scheduler": False,
    }
    for wrong in ({"all-gather at once": "4"}, {"scheduler": "on"}):
        with pytest.raises(UsageError, match="U251"):
            tpu_options(wrong)


@needs_library
def test_the_library_knows_every_flag(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    run = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout == ""
