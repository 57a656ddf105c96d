"""The counts that XLA noted follow from the program alone, at every stage."""

from __future__ import annotations

import functools
import pathlib

import pytest

from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.files import read_module
from hlo_passes.ir.gpu_config import known_trip_count
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module

MODULES = pathlib.Path(__file__).resolve().parents[2] / "corpus" / "modules"
STAGES = ("before-optimizations", "partitioned", "scheduled", "gpu-scheduled")
#: Programs with loops, and how often these run; at all stages there are as many loops.
PROGRAMS = {
    "gradient_accumulation": [4],
    "pipeline_scan": [11],
    "scan_layers": [6],
    "scan_layers_train": [6, 6],
    "swap_in_loop": [5],
}


@functools.cache
def module_of(release: str, program: str, stage: str) -> Module:
    (file,) = (MODULES / release).glob(f"{program}.{stage}.hlo*")
    return read_module(str(file))


def loops_of(module: Module) -> list[Instruction]:
    return [
        i for c in module.computations for i in c.instructions if i.opcode == "while"
    ]


@pytest.mark.parametrize("release", ["0.10.2", "0.12.0.1"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("stage", STAGES)
def test_scans_are_counted_at_every_stage(
    release: str, program: str, stage: str
) -> None:
    module = module_of(release, program, stage)
    counts = TripCounts(module)
    assert [counts.found(loop) for loop in loops_of(module)] == PROGRAMS[program]


@pytest.mark.parametrize("release", ["0.10.2", "0.12.0.1"])
def test_what_xla_noted_is_what_the_program_says(release: str) -> None:
    noted = 0
    for file in sorted((MODULES / release).glob("*.hlo*")):
        module = read_module(str(file))
        counts = TripCounts(module)
        for loop in loops_of(module):
            count = known_trip_count(loop)
            if count is not None:
                noted += 1
                assert counts.found(loop) == count, (file.name, loop.name)
    assert noted >= 10


@pytest.mark.parametrize("release", ["0.10.2", "0.12.0.1"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_loop_that_data_ends_is_not_counted(release: str, stage: str) -> None:
    module = module_of(release, "control_flow", stage)
    counts = TripCounts(module)
    (loop,) = loops_of(module)
    assert counts.of(loop) is None
    assert "f32[]" in counts.why_unknown(loop)
