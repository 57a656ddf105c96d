"""The result for one module in an installation."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_passes.errors import HloError
from hlo_passes.passes.framework.pipeline import PipelineResult


@dataclass(frozen=True, slots=True, repr=False)
class ModuleReport:
    """One module in which the passes ran or should have run.

    Attributes:
        module: its name.
        platform: that XLA compiled it for.
        stage: "pre-scheduler" or "post-scheduler".
        seconds: time of the passes, including reading and writing the module.
        changed: whether XLA received another module.
        result: what each pass did; None if one failed, or if another process
            ran them.
        error: why they failed, None if they did not.
        kept: computations whose order could not be given to XLA (TPUs).
    """

    module: str
    platform: str
    stage: str
    seconds: float
    changed: bool
    result: PipelineResult | None
    error: HloError | None
    kept: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line; `result` and `error` say the rest."""
        if self.error is not None:
            how = f"{type(self.error).__name__} {self.error.code}"
        elif self.result is None:
            how = "another process ran the passes"
        else:
            made = [run.name for run in self.result.passes if run.changed]
            how = f"changed by {', '.join(made)}" if made else "left as it is"
        if self.kept:
            how += f", the order of {', '.join(self.kept)} stays the compiler's"
        return (
            f"<{self.module} on {self.platform} at {self.stage}: {how}, "
            f"{self.seconds:.3f} s>"
        )
