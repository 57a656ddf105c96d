"""What to change about an exposed collective, as values.

    advice.change           'a second collective in flight'
    advice.xla_flag         '--xla_gpu_experimental_parallel_collective_overlap_limit=2'
    advice.step_time_us     1870.0, as simulated again
    advice.to_text()        'a second collective in flight: -415.1 us, verified'

`scheduler.advice` finds it; this is what a timeline, its report and its page hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hlo_passes.scheduler.simulation.ranges import Change
from hlo_passes.scheduler.simulation.units import bytes_text, share_text, time_text

#: From this share of the step on, a change of the peak is worth a word.
_TOLD_BYTES: Final = 0.01
#: By cause of exposure, what would change it in the program itself.
_IN_THE_PROGRAM: Final[Mapping[str, str]] = {
    "hidden": "nothing to do: these are what is left at their ends",
    "synchronous": "make it asynchronous, with work beside it that does not need it",
    "queued": "give it another stream, or start it when that one has run",
    "nothing-left": "transfer less, or give each device more to compute beside it",
    "start-waits": "compute its operand earlier",
    "done-needed": "start it earlier, or need its result later",
    "start-and-done": "compute its operand earlier, or need its result later",
    "window-short": "move more work between its start and its done",
}
#: The same on a TPU, where it differs: streams are a GPU's, flags make asynchronous.
_ON_TPUS: Final[Mapping[str, str]] = {
    "synchronous": "flags that `hlo-passes tune` tries may make it asynchronous; work "
    "beside it must not need it",
    "queued": "start it when that one has run",
}


def in_the_program(cause_kind: str, *, on_tpu: bool = False) -> str:
    """What would change a cause of exposure in the program itself."""
    plain = _IN_THE_PROGRAM[cause_kind]
    return _ON_TPUS.get(cause_kind, plain) if on_tpu else plain


def how_on_tpus(target: str, *, has_gap: bool = True) -> str:
    """What can be changed of a step for a TPU, and the commands that do it.

    Args:
        target: the chip.
        has_gap: whether another order could be faster.
    """
    chips = f"FILE.py:FUNCTION --target={target} --topology=GRID"
    order = (
        f", and the order, by `hlo-passes compile {chips} --passes=schedule-improver`"
    )
    return (
        f"flags of the compiler, which `hlo-passes tune {chips}` finds"
        f"{order * has_gap} (--slices=N for several slices)"
    )


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing to change, or why to leave it, and what that does to the step.

    Attributes:
        change: what, in a few words without a full stop.
        xla_flag: what sets it in a job, as XLA_FLAGS spells it; '' without a flag.
        step_time_us: the whole step with this change alone; None where nothing was
            simulated.
        verified: whether the step was simulated again; of advice to leave it, whether
            a bound proves it.
        saved_us: by how much the step is shorter; 0 where nothing was simulated.
        most_us: of what was not simulated, the most that it can save; 0 for unknown.
        pipeline: what does the same here, for `--passes`; '' if nothing does.
        peak_bytes: peak memory with it, parameters included; 0 where not simulated.
        more_bytes: by how much that is more.
        sure: the change in all settings of the range; None where not simulated.
        concerns: (computation, collective) of those that it makes less exposed.
    """

    change: str
    xla_flag: str = ""
    step_time_us: float | None = None
    verified: bool = False
    saved_us: float = 0.0
    most_us: float = 0.0
    pipeline: str = ""
    peak_bytes: int = 0
    more_bytes: int = 0
    sure: Change | None = None
    concerns: frozenset[tuple[str, str]] = frozenset()

    @property
    def is_change(self) -> bool:
        """Whether there is something to set, or to pipeline."""
        return self.saved_us > 0.0 or bool(self.xla_flag)

    def to_text(self) -> str:
        """'a second collective in flight: -415.1 us, verified'."""
        if self.saved_us > 0.0:
            return f"{self.change}: -{time_text(self.saved_us)}, verified"
        if not self.is_change:
            return self.change
        most = f"at most -{time_text(self.most_us)}, " if self.most_us > 0.0 else ""
        return f"{self.change}: {most}not verified here, `hlo-passes tune` compiles it"

    def to_lines(self, step_us: float) -> list[str]:
        """What it does to the whole step, and what sets it; for verified changes."""
        assert self.step_time_us is not None
        said = (
            f"step {time_text(self.step_time_us)} "
            f"(-{share_text(self.saved_us, step_us)}): {self.change}"
        )
        how = f'XLA_FLAGS="{self.xla_flag}"' if self.xla_flag else self.how()
        return ["; ".join([said, *self.besides()]), how]

    def besides(self) -> list[str]:
        """What else a verified change does: to memory, and in how many settings."""
        told = []
        if abs(self.more_bytes) > _TOLD_BYTES * self.peak_bytes:
            way = "more" if self.more_bytes > 0 else "less"
            told.append(f"{bytes_text(abs(self.more_bytes))} {way} memory")
        if self.sure is not None:
            settings = len(self.sure.changes_us)
            held = f"faster in {self.sure.holds} of {settings} settings"
            told.append(f"not sure: {held}" if self.sure.flips else held)
        return told

    def how(self) -> str:
        """What sets it: flags, or the pass of this project that does it."""
        if self.xla_flag:
            return self.xla_flag
        return f'--passes="{self.pipeline}", in a job by runtime.install; XLA has none'

    def to_json(self) -> dict[str, Any]:
        """The entry of `simulate --json`."""
        return {
            "change": self.change,
            "xla_flag": self.xla_flag,
            "step_time_us": self.step_time_us,
            "verified": self.verified,
            "saved_us": self.saved_us,
            "most_us": self.most_us,
            "pipeline": self.pipeline,
            "peak_with_parameters_bytes": self.peak_bytes,
            "range": None if self.sure is None else self.sure.to_json(),
        }
