"""What became of one module in an installation."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.errors import HloError
from hlo_passes.passes.pipeline import PipelineResult


@dataclass(frozen=True, slots=True)
class ModuleReport:
    """One module in which the passes ran, or were to run.

    Attributes:
        module: its name.
        platform: that XLA compiled it for.
        stage: "pre-scheduler" or "post-scheduler".
        seconds: what the passes took, reading and writing the module included.
        changed: whether XLA was given another module.
        result: what each pass did; None where one failed, or where another process
            ran them.
        error: why they failed, None where they did not.
    """

    module: str
    platform: str
    stage: str
    seconds: float
    changed: bool
    result: PipelineResult | None
    error: HloError | None
