"""The program that is tuned for absent TPUs, as a process that compiles receives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.runtime.tpu_aot import Grid, grid_to_compile_for
from hlo_passes.runtime.tuning.program import Tuned


@dataclass(frozen=True, slots=True)
class TpuProgram(Tuned):
    """A program, and the absent TPUs to compile it for.

    Attributes:
        target: the chip.
        topology: chips in each dimension, '' for eight devices.
        slices: so many grids.
        flags: of the compiler for all compilations, 'name=value' each.
    """

    WORKER: ClassVar[str] = "hlo_passes.runtime.tuning.tpu_compile_worker"

    target: str = "v5e"
    topology: str = ""
    slices: int = 1
    flags: tuple[str, ...] = ()

    @property
    def grid(self) -> Grid:
        """The chips; errors as of `grid_to_compile_for`."""
        return grid_to_compile_for(self.target, self.topology, self.slices)
