"""Facts of an operation from module and machine: stream, devices, link, trips.

surroundings.stream(start)       Stream('communication', 0)
surroundings.groups(start)       None: all devices take part, so one represents all
surroundings.link(start)         'nvlink' or 'network'; 'interconnect' of TPUs
surroundings.trip_count(loop)    how often it runs, else 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.devices import require_listable
from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.analysis.module_state import module_state
from hlo_passes.analysis.trip_counts import TripCounts
from hlo_passes.errors import ParseError, UsageError
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import is_transfer, work_of
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import parse_source_target_pairs
from hlo_passes.scheduler.hardware.topology import Topology, device_count_of
from hlo_passes.scheduler.latency.collectives import kernel_collective
from hlo_passes.scheduler.passes.device_groups import DeviceGroups
from hlo_passes.scheduler.passes.stream_values import (
    Stream,
    communicates,
    scope_kind,
    stream_of,
)
from hlo_passes.scheduler.passes.streams import assign_streams
from hlo_passes.scheduler.simulation.rules import Rules
from hlo_passes.scheduler.tpu.continuations import Continuations, continuations
from hlo_passes.scheduler.tpu.dma import is_dma
from hlo_passes.scheduler.tpu.sparse_core import (
    is_on_sparse_core,
    offloaded_collective,
)
from hlo_passes.xla_release import XlaRelease

_NETWORK: Final = "network"
_HOST_LINK: Final = "host link"
#: How an instruction marks a buffer in host memory.
_HOST_SPACE: Final = "S(5)"
#: Calls on SparseCores are taken to run one after the other, beside all other work.
_SPARSE_CORE_QUEUE: Final = Stream("sparsecore")
#: Copies inside a TPU share the bandwidth of its memory, so they do, too.
_DMA_QUEUE: Final = Stream("dma")
#: What goes to other slices, and what comes from them, over the data center's network.
_SLICE_QUEUES: Final = {"send": Stream("dcn-out"), "recv": Stream("dcn-in")}
_NO_CONTINUATIONS: Final = Continuations()

Groups = tuple[tuple[int, ...], ...]
WorkKind = Literal["collective", "transfer", "copy", "async"]


@dataclass(slots=True)
class Surroundings:
    """Answers about one module on one machine.

    Attributes:
        module: what runs.
        topology: of the machine.
        rules: of the simulation.
        leaves_out: whether an operation that was asked about leaves devices out.
        is_tpu: whether it is for a TPU.
        cut_in_two: fusions that were met which begin or end a collective of a TPU, and
            whose other half is in another computation.
    """

    module: Module
    topology: Topology
    rules: Rules
    leaves_out: bool = False
    is_tpu: bool = field(init=False)
    cut_in_two: int = 0
    _streams: dict[Instruction, Stream] = field(default_factory=dict)
    _release: XlaRelease = field(init=False)
    _groups: DeviceGroups = field(init=False)
    _trip_counts: TripCounts = field(init=False)
    _is_whole: dict[Groups, bool] = field(default_factory=dict)
    _crosses: dict[Groups, bool] = field(default_factory=dict)
    _device_count: int = 0

    def __post_init__(self) -> None:
        """Read the streams of the whole module once."""
        self.is_tpu = module_state(self.module).stage == "tpu"
        self._groups = DeviceGroups(self.module)
        self._trip_counts = TripCounts(self.module, self.rules.trip_counts)
        self._release = self.rules.release or followed_release(self.module)
        assigned = assign_streams(self.module, guard=False, release=self._release)
        self._streams = dict(assigned.scopes)
        if self.rules.streams:
            self._deal(self.rules.streams)
        else:
            for start in self._streams:
                written = stream_of(start, release=self._release)
                if written is not None:
                    self._streams[start] = written

    def _deal(self, count: int) -> None:
        """Assign communication round-robin to `count` streams, ignoring the module's.

        The order is XLA's: post order, from the entry on.
        """
        communicating = [
            start
            for start, stream in self._streams.items()
            if stream.kind == "communication"
        ]
        for turn, start in enumerate(communicating):
            self._streams[start] = Stream("communication", turn % count)

    @property
    def device_count(self) -> int:
        """Devices that run the module."""
        if self._device_count == 0:
            self._device_count = device_count_of(self.module)
        return self._device_count

    def stream(self, start: Instruction) -> Stream:
        """The stream of an asynchronous start."""
        if is_on_sparse_core(start):
            return _SPARSE_CORE_QUEUE
        if self._is_dma(start):
            return _DMA_QUEUE
        way = _SLICE_QUEUES.get(work_of(start)) if self.is_tpu else None
        if way is not None and transfer_attributes.is_between_slices(start):
            return way
        known = self._streams.get(start)
        if known is not None and known.kind != "default":
            return known
        kind = scope_kind(start, self._release) or "communication"
        return Stream(kind, 0)

    def sent_to_slices(self, arrivals_us: Mapping[str, float]) -> tuple[float, ...]:
        """Of times by name, those of sends to other slices that the module has."""
        if not arrivals_us:
            return ()
        return tuple(
            arrivals_us[instruction.name]
            for computation in scheduled_computations(self.module)
            for instruction in computation.instructions
            if instruction.name in arrivals_us
            and transfer_attributes.is_between_slices(instruction)
        )

    def kind(self, start: Instruction) -> WorkKind:
        """What kind of work a start begins."""
        if is_transfer(start):
            return "transfer"
        if start.opcode == "copy-start" or self._is_dma(start):
            return "copy"
        return "collective" if _communicates(start) else "async"

    def _is_dma(self, start: Instruction) -> bool:
        return self.is_tpu and is_dma(start)

    def continuations(self, computation: Computation) -> Continuations:
        """Fusions of a computation that begin and end a collective of a TPU."""
        return continuations(computation) if self.is_tpu else _NO_CONTINUATIONS

    def opcode(self, start: Instruction) -> str:
        """The operation that a start begins or a kernel is, also on a SparseCore."""
        inside = _collective_inside(start)
        return work_of(start) if inside is None else work_of(inside)

    def body(self, start: Instruction) -> Computation | None:
        """The computation that an asynchronous call runs; None for one operation."""
        if work_of(start) != "call":
            return None
        return start.called_computations[0]

    def groups(self, instruction: Instruction) -> Groups | None:
        """Devices that work together; None when every device takes part.

        Where links are shared one device represents all, and all take part. Raises
        UsageError U027 for a device that does not exist, and UnsupportedHloError S014
        for more devices than are worth a clock each.
        """
        require_listable(instruction, self.device_count)
        found = self._written_groups(instruction)
        if found is None:
            return None
        whole = self._is_whole.get(found)
        if whole is None:
            devices = {d for group in found for d in group}
            if max(devices, default=0) >= self.device_count:
                raise UsageError(
                    f"%{instruction.name} is for device {max(devices)}, but the module "
                    f"for {self.device_count} devices",
                    code="U027",
                    hint="replica_count x num_partitions of the module's header",
                )
            whole = self._is_whole[found] = len(devices) >= self.device_count
        self.leaves_out = self.leaves_out or not whole
        return None if whole or self.rules.share_links else found

    def _written_groups(self, instruction: Instruction) -> Groups | None:
        if is_transfer(instruction):
            return _transfer_groups(instruction)
        if instruction.opcode in opcodes.SYNC_COLLECTIVES:
            return self._groups.of(instruction, instruction.opcode)
        kernel = kernel_collective(instruction)
        if kernel is not None:
            return self._groups.of(kernel, kernel.opcode)
        return self._groups.of_start(instruction)

    def link(self, instruction: Instruction) -> str:
        """What an operation shares with others in flight; '' for nothing."""
        return self.channel(instruction) if self.rules.share_links else ""

    def channel(self, instruction: Instruction) -> str:
        """The link that an operation uses, whether it is shared or not; '' for none."""
        if instruction.opcode == "copy-start":
            texts = (instruction.shape.text, instruction.operands[0].shape.text)
            return _HOST_LINK if any(_HOST_SPACE in t for t in texts) else ""
        if self._is_local(instruction):
            return ""
        groups = self._written_groups(instruction)
        size = max(1, self.topology.partition_size)
        fast = self.topology.fast_link
        if groups is None:
            return _NETWORK if self.device_count > size else fast
        crosses = self._crosses.get(groups)
        if crosses is None:
            crosses = any(len({d // size for d in group}) > 1 for group in groups)
            self._crosses[groups] = crosses
        return _NETWORK if crosses else fast

    def _is_local(self, instruction: Instruction) -> bool:
        is_collective = instruction.opcode in opcodes.SYNC_COLLECTIVES
        return not is_collective and not _communicates(instruction)

    def trip_count(self, loop: Instruction) -> int:
        """How often the loop runs; 1 where nothing says it, and it is noted."""
        return self._trip_counts.or_once(loop)

    @property
    def counted_once(self) -> tuple[str, ...]:
        """Loops whose count was asked for and is not known, in that order."""
        return self._trip_counts.unknown


def _communicates(start: Instruction) -> bool:
    return communicates(start) or _collective_inside(start) is not None


def _collective_inside(start: Instruction) -> Instruction | None:
    """The collective that is its kernel, or that a SparseCore runs for a start."""
    return offloaded_collective(start) or kernel_collective(start)


def _transfer_groups(instruction: Instruction) -> Groups | None:
    """Each sender or receiver as a group of its own; None if nothing says so."""
    text = instruction.frontend_attributes.get(transfer_attributes.PAIRS, "")
    if not text:
        return None
    try:
        pairs = parse_source_target_pairs(text).pairs
    except ParseError:  # other tools may write anything there
        return None
    side = 0 if instruction.opcode == "send" else 1
    return tuple((pair[side],) for pair in pairs)
