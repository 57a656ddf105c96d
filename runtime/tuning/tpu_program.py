"""The program that is tuned for absent TPUs, as a process that compiles receives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from hlo_passes.runtime.tpu_aot import Grid, grid_to_compile_for


@dataclass(frozen=True, slots=True)
class TpuProgram:
    """What a user names, and the absent TPUs to compile it for.

    Attributes:
        function: FILE.py:FUNCTION, MODULE:FUNCTION or FILE.mlir.
        arguments: of a function that is jitted itself.
        target: the chip.
        topology: chips in each dimension, '' for eight devices.
        slices: so many grids.
        flags: of the compiler for all compilations, 'name=value' each.
    """

    WORKER: ClassVar[str] = "hlo_passes.runtime.tuning.tpu_compile_worker"

    function: str
    arguments: str = ""
    target: str = "v5e"
    topology: str = ""
    slices: int = 1
    flags: tuple[str, ...] = ()

    @property
    def grid(self) -> Grid:
        """The chips; errors as of `grid_to_compile_for`."""
        return grid_to_compile_for(self.target, self.topology, self.slices)

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)
