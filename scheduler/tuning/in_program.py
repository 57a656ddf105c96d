"""What only the program can change about its exposed collectives, with a bound.

    for change in changes_in_program(module, on, rules): change.name, change.bound_us
    'scan unroll', 55480.0

A row is data: where a module shows the pattern, what to change, and what the change
keeps. Where bytes and flops stay, the bound for any structure holds for it. Where only
flops stay, computing does. Where neither does, there is no bound. Nothing is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hlo_passes.errors import HloError
from hlo_passes.ir import opcodes
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.loops.windowed_einsum_handler import GATHERS, SCATTERS
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.reported import reported
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.passes.device_groups import DeviceGroups
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.simulation.simulate import simulate_on
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow, TimelineData
from hlo_passes.scheduler.simulation.units import time_text
from hlo_passes.scheduler.sums import sequential_sum

#: Collectives that are exposed for less than this share of the step are not told.
_WORTH: Final = 0.005
#: What JAX calls what a backward pass computes again.
_RECOMPUTED: Final = "rematted_computation"
#: Loops that XLA makes around a product and its collective; no program has them.
_WINDOWED: Final = (GATHERS, SCATTERS)
_PERMUTES: Final = opcodes.TRANSFERS | {"collective-permute"}
_COMPUTE: Final = "compute"

#: What a change leaves as it is.
Keeps = Literal["bytes and flops", "flops", "nothing"]


@dataclass(frozen=True, slots=True)
class ProgramChange:
    """One thing that only the program can change.

    Attributes:
        name: for a reader: 'scan unroll'.
        what: to do, and what it costs, without a full stop.
        collectives: that it is about, those of loops once.
        exposed_us: what these add to the step.
        bound_us: no step with this change is faster; None where nothing bounds it.
        bound_by: what that bound is, '' without.
    """

    name: str
    what: str
    collectives: int
    exposed_us: float
    bound_us: float | None
    bound_by: str

    @property
    def exposed_text(self) -> str:
        """'12.3 ms exposed in 4 collectives'."""
        words = "1 collective" if self.collectives == 1 else ""
        words = words or f"{self.collectives} collectives"
        return f"{time_text(self.exposed_us)} exposed in {words}"

    def to_json(self) -> dict[str, Any]:
        """The entry of `in_program` of `tune --json`."""
        return {
            "name": self.name,
            "change": self.what,
            "collectives": self.collectives,
            "exposed_us": self.exposed_us,
            "bound_us": self.bound_us,
            "bound_by": self.bound_by,
        }


@dataclass(slots=True)
class _Shown:
    """What a module shows of its collectives."""

    module: Module
    timeline: TimelineData
    machine: Topology
    _groups: DeviceGroups = field(init=False)
    _by_name: dict[str, dict[str, Instruction]] = field(default_factory=dict)
    _could_fit: dict[int, tuple[object, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._groups = DeviceGroups(self.module)

    def is_looped(self, row: CollectiveRow) -> bool:
        if any(name in row.computation for name in _WINDOWED):
            return False
        return self.timeline.computations[row.computation].trip_count > 1

    def is_recomputed(self, row: CollectiveRow) -> bool:
        places = (row.place, *row.place.members)
        return any(_RECOMPUTED in place.op_name for place in places)

    def is_handed_on(self, row: CollectiveRow) -> bool:
        return row.opcode in _PERMUTES and self.is_looped(row)

    def crosses_without_need(self, row: CollectiveRow) -> bool:
        """Whether groups lie in several NVLink domains and would fit into one."""
        size = self.machine.partition_size
        if self.machine.partitions < 2 or size < 2 or row.opcode in _PERMUTES:
            return False
        start = self._start(row)
        groups = (
            self._groups.of(start, row.opcode)
            if start.opcode in opcodes.SYNC_COLLECTIVES
            else self._groups.of_start(start)
        )
        if groups is None:
            return False
        # Many collectives have the same groups, and groups may be long. What is kept
        # here stays alive, so that no other groups get its id.
        if id(groups) not in self._could_fit:
            fits = all(len(group) <= size for group in groups) and any(
                len({device // size for device in group}) > 1 for group in groups
            )
            self._could_fit[id(groups)] = groups, fits
        return self._could_fit[id(groups)][1]

    def _start(self, row: CollectiveRow) -> Instruction:
        if row.computation not in self._by_name:
            computation = self.module.computation(row.computation)
            assert computation is not None, row.computation
            self._by_name[row.computation] = {
                each.name: each for each in computation.instructions
            }
        return self._by_name[row.computation][row.name]


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A row of the table: `is_shown` says whether a collective shows it."""

    name: str
    what: str
    keeps: Keeps
    is_shown: Callable[[_Shown, CollectiveRow], bool]

    def bound(self, timeline: TimelineData) -> tuple[float | None, str]:
        """The bound of the change, and what it is."""
        bound = timeline.any_structure
        if self.keeps == "bytes and flops":
            return timeline.lower_bound_any_structure_us, bound.bound_by
        if self.keeps == "flops":
            return min(bound.us, timeline.compute_us), _COMPUTE
        return None, ""


_PATTERNS: Final = (
    _Pattern(
        "scan unroll",
        "jax.lax.scan(..., unroll=2) puts two iterations side by side, so that a "
        "collective of one hides beside the other's compute; the program grows",
        "bytes and flops",
        _Shown.is_looped,
    ),
    _Pattern(
        "mesh axis",
        "the devices of a group lie in several NVLink domains and would fit into one; "
        "give this axis the inner place of the mesh, and another one crosses instead",
        "flops",
        _Shown.crosses_without_need,
    ),
    _Pattern(
        "remat policy",
        "the backward pass runs these again under jax.checkpoint; a policy that saves "
        "their results leaves them out and takes the memory",
        "nothing",
        _Shown.is_recomputed,
    ),
    _Pattern(
        "microbatches",
        "if this loop is a pipeline, more microbatches make its idle ends shorter and "
        "each transfer smaller; smaller products may be less efficient",
        "nothing",
        _Shown.is_handed_on,
    ),
)


def changes_in_program(
    module: Module, on: Pricing, rules: Rules
) -> tuple[ProgramChange, ...]:
    """The rows whose pattern a scheduled module shows, most exposed first.

    () for a module that cannot be simulated. Complexity: linear in instructions.
    """
    try:
        timeline = simulate_on(module, on, rules)
        machine = reported(module, on).machine
    except HloError:
        return ()
    shown = _Shown(module, timeline, machine)
    exposed = [row for row in timeline.collectives if row.total_exposed_us > 0.0]
    found = []
    for pattern in _PATTERNS:
        rows = [row for row in exposed if pattern.is_shown(shown, row)]
        us = sequential_sum(row.total_exposed_us for row in rows)
        if us > _WORTH * timeline.step_time_us:
            bound_us, bound_by = pattern.bound(timeline)
            found.append(
                ProgramChange(
                    pattern.name, pattern.what, len(rows), us, bound_us, bound_by
                )
            )
    return tuple(sorted(found, key=lambda change: -change.exposed_us))
