"""Passes of ours that a job can have inside XLA's compilation, beside its flags.

    passes_for(facts)        the rows that may matter for a program
    PluggedIn(row, outcome)  the step that XLA makes of it with the best's flags

`tune` tries each alone, with the best's flags, in a compilation of XLA's. A pass that
asks what XLA's own passes leave of a gain (`after-xla`) is tried without that question,
too: the compilation tells what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from hlo_passes.scheduler.tuning.facts import ProgramFacts
from hlo_passes.scheduler.tuning.lever import Need
from hlo_passes.scheduler.tuning.outcome import Outcome

_NO_QUESTION: Final = "after-xla=false"


@dataclass(frozen=True, slots=True)
class PassLever:
    """A pass to install with `runtime.install`.

    Attributes:
        name: of the pass, with options.
        needs: what the program must have; all of them.
        stage: of XLA's compilation where it runs.
        asks: whether the pass has the option `after-xla`.
    """

    name: str
    needs: tuple[Need, ...] = ()
    stage: str = "pre-scheduler"
    asks: bool = True

    def forms(self) -> tuple[PassLever, ...]:
        """As it is, and without asking what XLA leaves of a gain."""
        if not self.asks:
            return (self,)
        name, _, options = self.name.removesuffix("}").partition("{")
        given = f"{options},{_NO_QUESTION}" if options else _NO_QUESTION
        return self, replace(self, name=f"{name}{{{given}}}", asks=False)

    def install_text(self, target: str, topology: str) -> str:
        """What to write into the program."""
        return (
            f'runtime.install("{self.name}", stage="{self.stage}", platforms="cuda", '
            f'context=PassContext(target="{target}", topology="{topology}"))'
        )


#: In the order in which they are tried.
PASS_LEVERS: Final = (
    PassLever("collective-matmul", (("products", ""),)),
    PassLever("collective-ring-decomposer", (("any", ""),)),
    PassLever("collective-backend-choice", (("any", ""),), asks=False),
    PassLever("uneven-reduce-scatter-creator", (("any", "all-reduce"),)),
    PassLever("loop-multi-buffer{control-edges=false}", (("looped", ""),)),
    PassLever("loop-multi-buffer{control-edges=false,buffers=4}", (("looped", ""),)),
    PassLever("loop-invariant-collective-hoisting", (("looped", ""),)),
    PassLever("ragged-all-to-all-chunker", (("any", "ragged-all-to-all"),)),
)
#: Why a pass of ours that makes modules faster is not tried.
CANNOT_BE_PLUGGED_IN: Final[Mapping[str, str]] = {
    "layout-chooser": (
        "XLA for GPUs calls passes before it assigns layouts, when none counts, and "
        "after it inserted copies, when a layout may not change"
    ),
    "scratch-budget-fusion": (
        "XLA for GPUs makes its own fusions after the stage where a pass may, and "
        "assigns no layouts to a fusion of several results"
    ),
}


@dataclass(frozen=True, slots=True)
class PluggedIn:
    """What a pass makes of the best.

    Attributes:
        lever: the pass.
        outcome: of XLA's compilation with the best's flags and the pass.
        changes: whether XLA's module is another one than without it.
        install: what to write into the program.
    """

    lever: PassLever
    outcome: Outcome
    changes: bool
    install: str

    def rank(self, memory_bytes: int | None) -> tuple[bool, int, int, bool, int, float]:
        """Less for what is better: priced, fewer doubts, room in memory, a short step.

        Args:
            memory_bytes: what a step may need; None for any.
        """
        found = self.outcome
        excess = 0
        if memory_bytes is not None:
            excess = max(0, found.memory_bytes - memory_bytes)
        doubts = found.unpriced, found.overcounted, found.neglected
        return not found.is_done, *doubts, excess, found.step_us

    def to_json(self, best: Outcome) -> dict[str, Any]:
        """The entry of `tune --json`."""
        done = self.outcome.is_done
        return {
            "name": self.lever.name,
            "stage": self.lever.stage,
            "install": self.install,
            "step_us": self.outcome.step_us if done else None,
            "change": self.outcome.change_from(best) if done else None,
            "changes_module": self.changes,
            "problem": self.outcome.problem,
        }


def passes_for(facts: ProgramFacts) -> tuple[PassLever, ...]:
    """The passes that may matter for a program."""
    return tuple(
        row for row in PASS_LEVERS if not any(facts.lacks(need) for need in row.needs)
    )
