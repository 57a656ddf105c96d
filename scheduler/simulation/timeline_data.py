"""The values of a simulated step, from which reports, pages and traces are made.

Every computation has its own clock, which starts at 0 with its first instruction:
the spans of a loop body are those of one iteration, and the loop itself is one span of
its caller. All times are microseconds, all of them estimates.

    step_time = compute + exposed      in every computation, loops multiplied
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hlo_passes.analysis.module_state import ModuleState
from hlo_passes.analysis.program_places import NOWHERE, ProgramPlace
from hlo_passes.scheduler.headline import priced_on
from hlo_passes.scheduler.measured.overlay import Overlay
from hlo_passes.scheduler.memory.footprint import Footprint
from hlo_passes.scheduler.simulation.advice import Advice, how_on_tpus
from hlo_passes.scheduler.simulation.neglected import NOTHING_NEGLECTED, Neglected
from hlo_passes.scheduler.simulation.ranges import Sensitivity
from hlo_passes.scheduler.tpu.chips import is_chip

#: Share of a step below which a gap to the bound is that of rounded sums.
_LEAST_GAP: Final = 1e-9
#: What a span shows. `wait` means that the compute lane waits at a done.
SpanKind = Literal[
    "compute", "loop", "call", "conditional",
    "collective", "transfer", "copy", "async", "wait",
]  # fmt: skip
#: Why a collective is exposed; `hidden` if hardly any of it is.
CauseKind = Literal[
    "hidden", "synchronous", "queued", "nothing-left",
    "start-waits", "done-needed", "start-and-done", "window-short",
]  # fmt: skip
#: xprof's classes by the share of a collective that compute overlaps.
OverlapClass = Literal["hidden", "partial", "exposed"]

#: Pieces of advice on one collective, in words.
_MOST_ADVICE: Final = 3
#: The lane that runs instructions in their scheduled order.
COMPUTE_LANE: Final = "compute"
#: From this share of overlap on, xprof calls a collective hidden; up to the other
#: one exposed; between them partial.
HIDDEN_SHARE: Final = 0.9
EXPOSED_SHARE: Final = 0.1


def overlap_class(latency_us: float, exposed_us: float) -> OverlapClass:
    """The xprof class of a collective that stays visible for that long."""
    if latency_us <= 0.0:
        return "hidden" if exposed_us <= 0.0 else "exposed"
    overlapped = max(0.0, 1.0 - exposed_us / latency_us)
    if overlapped >= HIDDEN_SHARE:
        return "hidden"
    return "exposed" if overlapped <= EXPOSED_SHARE else "partial"


@dataclass(frozen=True, slots=True)
class Span:
    """Something that takes time on one lane.

    Attributes:
        computation: whose clock the times are on.
        name: of the instruction; of a `wait`, the done that waits.
        opcode: of the instruction, as printed.
        lane: `compute`, `communication 0`, `async compute 0`.
        start_us: when it begins.
        end_us: when it ends, not before `start_us`.
        kind: what it is.
    """

    computation: str
    name: str
    opcode: str
    lane: str
    start_us: float
    end_us: float
    kind: SpanKind


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One collective, send or recv of one computation, in one execution of it.

    Attributes:
        computation: its name.
        name: of the start, or of the synchronous collective.
        done: name of the done, '' for a synchronous collective or if there is none.
        opcode: the operation without start and done: 'all-gather'.
        stream: number of the communication stream, None for a synchronous one.
        lane: where its span is drawn.
        bytes: of the message: what a device gives or gets in all, whichever is more
            (the gathered result, the input of a reduce-scatter, a reduced array).
        operands: operand texts: 'bf16[8,128] %fusion.3'.
        groups: replica groups or source-target pairs, as written; '' if none.
        latency_us: how long it runs by itself.
        exposed_us: how long the compute lane waits for it.
        start_us: when the compute lane issues it.
        begin_us: when its stream begins to run it (later than `start_us` if queued).
        end_us: when it has run.
        done_us: when the compute lane asks for the result.
        executions: how often it runs in a step, loops multiplied.
        total_exposed_us: its exposure in the whole step.
        overlap: xprof's class.
        cause_kind: why it is exposed, in one word.
        cause: the same as a sentence without a full stop.
        model: that gave the price.
        reason: why a better model had no answer, '' where it had.
        place: where in the user's program it comes from.
    """

    computation: str
    name: str
    done: str
    opcode: str
    stream: int | None
    lane: str
    bytes: int
    operands: tuple[str, ...]
    groups: str
    latency_us: float
    exposed_us: float
    start_us: float
    begin_us: float
    end_us: float
    done_us: float
    executions: float
    total_exposed_us: float
    overlap: OverlapClass
    cause_kind: CauseKind
    cause: str
    model: str
    reason: str
    place: ProgramPlace = NOWHERE

    def to_json(self) -> dict[str, Any]:
        """The row of `simulate --json`."""
        own = {
            name: list(value) if isinstance(value, tuple) else value
            for name in self.__slots__
            if name != "place"
            for value in (getattr(self, name),)
        }
        return own | self.place.to_json()


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """Bytes in use from `time_us` on, until the next point of the computation."""

    computation: str
    time_us: float
    bytes: int


@dataclass(frozen=True, slots=True)
class AnyStructureBound:
    """A bound for any structure, and what it comes from: 'compute', 'network traffic'.

    No restructuring that moves the same bytes and computes the same flops is faster.
    """

    us: float
    bound_by: str


@dataclass(frozen=True, slots=True)
class ComputationTimes:
    """One execution of a computation, including what it calls.

    Attributes:
        name: of the computation.
        step_time_us: how long it takes.
        exposed_us: how long the compute lane waits, or runs a synchronous collective.
        other_exposed_us: of that, waits for copies and asynchronous computations.
        compute_us: how long the compute lane computes; `step_time_us - exposed_us`.
        communication_us: latencies of all collectives, sends and receives.
        lower_bound_us: no order of the same instructions is faster.
        bound_by: which bound that is, as in `Bound.by`.
        bound_why: a sentence that says why no order is faster.
        serial_us: how long it takes if nothing overlaps.
        peak_memory_bytes: the most that is in use at once, without the parameters of
            the entry.
        trip_count: of the loop whose body it is, else 1.
        executions: how often a step runs it.
    """

    name: str
    step_time_us: float
    exposed_us: float
    other_exposed_us: float
    compute_us: float
    communication_us: float
    lower_bound_us: float
    bound_by: str
    bound_why: str
    serial_us: float
    peak_memory_bytes: int
    trip_count: int
    executions: float

    @property
    def gap_us(self) -> float:
        """The most that a better order could save."""
        return self.step_time_us - self.lower_bound_us

    def to_json(self) -> dict[str, Any]:
        """The entry of `simulate --json`, name excluded."""
        return {n: getattr(self, n) for n in self.__slots__ if n != "name"}


@dataclass(frozen=True, slots=True)
class TimelineData:
    """A simulated step: the values of a `Timeline`.

    Attributes:
        module: its name.
        state: what the module is.
        target: name of the GPU or TPU.
        topology: 'PxHxG'.
        estimator: that gave the prices.
        streams: number of communication streams; 0 means that nothing queues.
        entry: name of the entry computation.
        computations: by name, in text order: every one that a step may run.
        collectives: in text order.
        spans: of every computation, by start; see `lanes`.
        memory: points of every computation, by time.
        notes: what a reader should know about these numbers.
        machine: the topology in words.
        xla: the release of XLA that is followed.
        remarks: what limits all of these numbers.
        unpriced: operations that have no price, only a constant.
        neglected: kernels whose price leaves out their bytes.
        overcounted: matrix products of which XLA's table takes more than their share.
        counted_once: loops that nobody knows how often they run.
        footprint: memory with parameters, and whether the device has that much.
        any_structure: no restructuring that moves the same bytes and computes the same
            flops is faster than this.
        sensitivity: the same in other settings; None where nobody asked for it.
        overlay: what was measured beside what was predicted; None without a trace.
        advice: what to change, most saving first; () where nobody asked for it.
        not_tried: changes left out because too much would be scheduled again.
    """

    module: str
    state: ModuleState
    target: str
    topology: str
    estimator: str
    streams: int
    entry: str
    computations: Mapping[str, ComputationTimes]
    collectives: tuple[CollectiveRow, ...]
    spans: tuple[Span, ...] = field(repr=False)
    memory: tuple[MemoryPoint, ...] = field(repr=False)
    notes: tuple[str, ...] = ()
    machine: str = ""
    xla: str = ""
    remarks: tuple[str, ...] = ()
    unpriced: int = 0
    neglected: Neglected = NOTHING_NEGLECTED
    overcounted: int = 0
    counted_once: tuple[str, ...] = ()
    footprint: Footprint = field(default=Footprint(0, 0, "", ()), repr=False)
    any_structure: AnyStructureBound = AnyStructureBound(0.0, "")
    sensitivity: Sensitivity | None = field(default=None, repr=False)
    overlay: Overlay | None = field(default=None, repr=False)
    advice: tuple[Advice, ...] = field(default=(), repr=False)
    not_tried: int = 0
    #: What belongs to each computation, by the name of the list; made when needed.
    _grouped: dict[str, dict[str, list[Any]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def is_of_tpu(self) -> bool:
        """Whether it is priced on a TPU."""
        return is_chip(self.target)

    @property
    def how_to_change(self) -> str:
        """What to change of a step for a TPU, by which command; '' if nothing waits.

        For a GPU, `advice` has tried changes.
        """
        if not self.is_of_tpu or self.exposed_us <= 0.0:
            return ""
        has_gap = self.times.gap_us > _LEAST_GAP * self.times.step_time_us
        return f"what to change: {how_on_tpus(self.target, has_gap=has_gap)}"

    @property
    def bound_premise(self) -> str:
        """How a bound begins: another estimator of TPUs may give a step below it."""
        return "by these costs " if self.is_of_tpu else ""

    @property
    def priced_on(self) -> str:
        """The machine and the release of XLA, for a first line."""
        return priced_on(self.target, self.topology, self.machine, self.xla)

    @property
    def times(self) -> ComputationTimes:
        """Of the entry computation: the whole step."""
        return self.computations[self.entry]

    @property
    def step_time_us(self) -> float:
        """How long a step takes."""
        return self.times.step_time_us

    @property
    def exposed_us(self) -> float:
        """How long the compute lane does not compute in a step."""
        return self.times.exposed_us

    @property
    def compute_us(self) -> float:
        """How long the compute lane computes in a step."""
        return self.times.compute_us

    @property
    def communication_us(self) -> float:
        """Latencies of all collectives of a step, loops multiplied."""
        return self.times.communication_us

    @property
    def lower_bound_us(self) -> float:
        """No order of the same instructions is faster."""
        return self.times.lower_bound_us

    @property
    def lower_bound_any_structure_us(self) -> float:
        """No restructuring with the same bytes and flops is faster."""
        return self.any_structure.us

    @property
    def peak_memory_bytes(self) -> int:
        """The most that is in use at once, without parameters."""
        return self.times.peak_memory_bytes

    @property
    def peak_with_parameters_bytes(self) -> int:
        """The most that is in use at once, parameters of the entry included."""
        return self.footprint.peak_bytes

    @property
    def target_memory_bytes(self) -> int:
        """What XLA's allocator takes of the device by default; 0 if unknown."""
        return self.footprint.available_bytes

    @property
    def fits(self) -> bool | None:
        """Whether the peak with parameters fits there; None if unknown."""
        return self.footprint.fits

    def worst(self, count: int) -> list[CollectiveRow]:
        """The collectives that cost the step most, in that order; exposed ones only."""
        exposed = [row for row in self.collectives if row.total_exposed_us > 0.0]
        exposed.sort(key=lambda row: -row.total_exposed_us)
        return exposed[:count]

    def spans_of(self, computation: str) -> list[Span]:
        """Spans of one computation, by start."""
        return self._of("spans", computation)

    def collectives_of(self, computation: str) -> list[CollectiveRow]:
        """Collectives of one computation, in text order."""
        return self._of("collectives", computation)

    def memory_of(self, computation: str) -> list[MemoryPoint]:
        """Points of one computation, by time."""
        return self._of("memory", computation)

    def _of(self, listed: str, computation: str) -> list[Any]:
        groups = self._grouped.get(listed)
        if groups is None:
            groups = self._grouped[listed] = {}
            for each in getattr(self, listed):
                groups.setdefault(each.computation, []).append(each)
        return list(groups.get(computation, ()))

    def advice_on(self, row: CollectiveRow) -> tuple[Advice, ...]:
        """What to change about a collective, most saving first."""
        name = (row.computation, row.name)
        return tuple(each for each in self.advice if name in each.concerns)

    def advice_lines(self, row: CollectiveRow) -> list[str]:
        """What to change about an exposed collective, in words."""
        if row.total_exposed_us <= 0.0:
            return []
        return [each.to_text() for each in self.advice_on(row)[:_MOST_ADVICE]]

    def lanes(self, computation: str) -> list[str]:
        """Lanes that a computation uses: compute first, then by name and number."""
        found = {span.lane for span in self.spans_of(computation)}
        return sorted(found, key=_lane_order)

    def to_json(self) -> dict[str, Any]:
        """The object that `simulate --json` prints."""
        entry = self.times.to_json()
        return {
            **{k: entry[k] for k in entry if k not in ("trip_count", "executions")},
            "lower_bound_any_structure_us": self.any_structure.us,
            "any_structure_bound_by": self.any_structure.bound_by,
            "module": self.module,
            **self.state.to_json(),
            "target": self.target,
            "topology": self.topology,
            "machine": self.machine,
            "xla": self.xla,
            "remarks": list(self.remarks),
            "neglected_kernels": self.neglected.count,
            "neglected_us": self.neglected.us,
            "underpriced_products": self.neglected.products,
            "underpriced_us": self.neglected.products_us,
            "estimator": self.estimator,
            "streams": self.streams,
            "entry": self.entry,
            "computations": {n: t.to_json() for n, t in self.computations.items()},
            "collectives": [
                {
                    **row.to_json(),
                    "advice": [each.to_json() for each in self.advice_on(row)],
                }
                for row in self.collectives
            ],
            "notes": list(self.notes),
            "counted_once": list(self.counted_once),
            "memory": self.footprint.to_json(),
            **({"sensitivity": self.sensitivity.to_json()} if self.sensitivity else {}),
            **({"measured": self.overlay.to_json()} if self.overlay else {}),
        }


def _lane_order(lane: str) -> tuple[int, str, int]:
    if lane == COMPUTE_LANE:
        return (0, "", 0)
    name, _, number = lane.rpartition(" ")
    # People look for "communication" first, so it follows compute.
    return (1 if name == "communication" else 2, name, int(number))
