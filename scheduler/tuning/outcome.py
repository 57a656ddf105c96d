"""What came out of trying a combination of levers.

outcome.step_us, outcome.memory_bytes     4930.1, 31.5e9
outcome.change_from(baseline)             (-0.084, -0.019): shorter in all settings
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hlo_passes.scheduler.simulation.neglected import Neglected
from hlo_passes.scheduler.simulation.timeline import Timeline

#: Who made the order that was priced.
Source = Literal["xla", "own"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step, as the simulator prices it.

    Attributes:
        step_us: how long it takes; infinite where there is a problem.
        exposed_us: of that, how long nothing is computed.
        memory_bytes: what the step takes of the device, parameters included, as
            `Footprint.needed_bytes`.
        bound_us: no restructuring with the same bytes and flops is faster.
        bound_by: what that bound is.
        steps_us: the step in each setting of the simulator's range.
        source: who made the order: XLA, or our scheduler on XLA's module.
        problem: why there is no step, '' where there is one.
        module: the sha256 of the scheduled module's text, '' without.
        remarks: what limits all of these numbers.
        unpriced: operations without a price, of which the step has a constant.
        overcounted: matrix products of which XLA's table takes more than their share.
        neglected: whether prices leave out bytes that take a share of the step.
        neglected_us: what they leave out at least.
    """

    step_us: float
    exposed_us: float = 0.0
    memory_bytes: int = 0
    bound_us: float = 0.0
    bound_by: str = ""
    steps_us: tuple[float, ...] = ()
    source: Source = "xla"
    problem: str = ""
    module: str = ""
    remarks: tuple[str, ...] = ()
    unpriced: int = 0
    overcounted: int = 0
    neglected: bool = False
    neglected_us: float = 0.0

    @classmethod
    def failed(cls, problem: str, source: Source = "xla") -> Outcome:
        """One without a step."""
        return cls(math.inf, source=source, problem=problem)

    @classmethod
    def of(
        cls, timeline: Timeline, *, source: Source = "xla", module: str = ""
    ) -> Outcome:
        """Of a simulated step."""
        sensitivity = timeline.sensitivity
        outcomes = sensitivity.outcomes if sensitivity is not None else ()
        bound = timeline.any_structure
        return cls(
            step_us=timeline.step_time_us,
            exposed_us=timeline.exposed_us,
            memory_bytes=timeline.footprint.needed_bytes,
            bound_us=bound.us,
            bound_by=bound.bound_by,
            steps_us=tuple(outcome.step_us for outcome in outcomes),
            source=source,
            module=module,
            remarks=timeline.remarks,
            unpriced=timeline.unpriced,
            overcounted=timeline.overcounted,
            neglected=timeline.neglected.matters(timeline.step_time_us),
            neglected_us=timeline.neglected.missing_us,
        )

    @property
    def is_done(self) -> bool:
        """Whether there is a step."""
        return not self.problem

    @property
    def misleads(self) -> str:
        """Why formulas of ours must price such a step; '' where XLA's prices will do.

        A lever that cuts a product, adds a copy, or fuses something with either, would
        seem to cost many times what it does, or nothing.
        """
        found = []
        if self.overcounted:
            found.append(
                "XLA's table counts matrix products of types that it lacks several "
                "times"
            )
        if self.neglected:
            found.append("XLA's prices leave out the bytes of some kernels")
        return ", and ".join(found)

    def neglects_more_than(self, before: Outcome) -> bool:
        """Whether prices leave out more bytes than they do of `before`.

        Their time matters if it is a share of the step before.
        """
        more = Neglected(1, self.neglected_us - before.neglected_us)
        return more.matters(before.step_us)

    def changes_from(self, before: Outcome) -> tuple[float, ...]:
        """By setting of the range, the change as a share of the step before."""
        if len(self.steps_us) != len(before.steps_us):
            return ()
        return tuple(
            share(a, b) for a, b in zip(self.steps_us, before.steps_us, strict=True)
        )

    def change_from(self, before: Outcome) -> float:
        """The change as a share of the step before: -0.063 for 6.3% less."""
        return share(self.step_us, before.step_us)

    def to_json(self) -> dict[str, Any]:
        """All fields; a step that is not there is null."""
        fields = asdict(self)
        if not self.is_done:
            fields["step_us"] = None
        return fields

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Outcome:
        """From `to_json`."""
        step = fields["step_us"]
        return cls(
            **{
                **fields,
                "step_us": math.inf if step is None else step,
                "steps_us": tuple(fields["steps_us"]),
                "remarks": tuple(fields["remarks"]),
            }
        )


def share(after: float, before: float) -> float:
    """By how much a time changed, as a share of the earlier one."""
    return after / before - 1.0 if before > 0.0 else 0.0
