"""What each way to carry a collective would cost, or why it is none for it.

    offers = Offers(module, trials, choice, lines, backends, quirks)
    offer = offers.of(%r)
    offer.nccl_us, offer.fair_us      39.7, 26.2
    offer.ways                        (Way(one-shot, 3.8),)
    offer.reasons                     {"symmetric": "has groups beyond one host"}

NCCL and kernels have the prices of the estimator; every other way has a line that a
user measured, and the copies of arguments, constants and results that XLA makes for
registered memory. All is asked of a copy of the module, so that nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_passes.ir.gpu_config import collective_config, has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.rewriting.constants import zeros
from hlo_passes.passes.rewriting.copies import copy_of
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields
from hlo_passes.scheduler.latency.backend_rows import (
    BY_RELEASE,
    BackendRow,
    backend_rows,
)
from hlo_passes.scheduler.latency.collective_time import NVLINK_KERNEL
from hlo_passes.scheduler.latency.collectives import describe
from hlo_passes.scheduler.latency.measured_lines import MeasuredLine, bytes_sent
from hlo_passes.scheduler.memory.buffer_colors import Wish, color, planned_copies
from hlo_passes.scheduler.memory.buffers import Buffers, build_buffers
from hlo_passes.scheduler.passes.collective_kernel_strategy_annotator import (
    reason_without_kernel,
)
from hlo_passes.scheduler.passes.collective_kernels import KernelChoice
from hlo_passes.scheduler.passes.gpu_memory_space_assignment import (
    GpuMemorySpaceAssignment,
    array_positions,
)
from hlo_passes.scheduler.passes.priced_chains import (
    ChainTrials,
    Key,
    collectives_by_key,
    key_of,
)
from hlo_passes.scheduler.sums import sequential_sum

#: What a field of `collective_backend_config` says where nothing was chosen.
DEFAULTS: Final = {
    "kernel_strategy": "KERNEL_STRATEGY_DEFAULT",
    "collectives_mode": "COLLECTIVES_MODE_INVALID",
}
_SYMMETRIC: Final = "symmetric"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to carry a collective, with its price.

    Attributes:
        row: of the table.
        us: what it costs, us, copies included.
        copies_us: the part of the copies.
        copied: what is copied, as in 'argument %x'.
    """

    row: BackendRow
    us: float
    copies_us: float = 0.0
    copied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """All ways of one collective.

    Attributes:
        nccl_us: what NCCL costs by the estimator.
        fair_us: the same without the table's noise: what no larger message undercuts.
        ways: the others, in the table's order.
        reasons: by backend, why it is no way.
        now: a row whose value the collective carries; None for NCCL.
    """

    nccl_us: float
    fair_us: float
    ways: tuple[Way, ...]
    reasons: Mapping[str, str]
    now: BackendRow | None

    @property
    def way_now(self) -> Way | None:
        """The way that the collective carries, where it is one that has a price."""
        if self.now is None:
            return None
        told = (self.now.spelling, self.now.value)
        return next(
            (w for w in self.ways if (w.row.spelling, w.row.value) == told), None
        )


@dataclass(slots=True)
class Offers:
    """Prices the ways of a module's collectives.

    Attributes:
        module: whose collectives are asked about; it does not change meanwhile.
        trials: that know the estimator.
        choice: that knows the kernels, the machine and the release.
        lines: measured, by row.
        backends: that may be chosen.
        quirks: whether XLA's quirks are followed.
        missing: rows that would take a collective if somebody had measured them.
        against_kernels: why no collective has a kernel with a price; '' if some may.
    """

    module: Module
    trials: ChainTrials
    choice: KernelChoice
    lines: Mapping[str, MeasuredLine]
    backends: tuple[str, ...]
    quirks: bool
    missing: dict[str, int] = field(default_factory=dict)
    against_kernels: str = field(init=False)
    _copy: Module = field(init=False)
    _priced: dict[Key, Instruction] = field(init=False)
    _buffers: Buffers | None = None
    _wishes: list[Wish] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make the copy that is priced."""
        self._copy = self.module.clone()
        self._priced = collectives_by_key(self._copy)
        self.against_kernels = self.choice.reason_against_all()
        release = self.choice.release
        if not release.prices_kernel_strategies:
            self.against_kernels = f"XLA {release} prices none"

    def of(self, collective: Instruction) -> Offer:
        """The ways of a collective of the module."""
        priced = self._priced[key_of(collective)]
        rows = [row for row in backend_rows() if row.kind == collective.opcode]
        config = collective_config(collective)
        now = next((r for r in rows if r.value == config.get(r.spelling)), None)
        if has_gpu_config(priced):
            # Only the field that was there: another config than XLA's is not touched.
            kept = {n: DEFAULTS[n] for n in DEFAULTS if n in config}
            if kept:
                set_collective_fields(priced, self.choice.release, **kept)
        nccl = self.trials.price(priced).us
        fair = self.trials.least_us(priced)
        ways: list[Way] = []
        reasons: dict[str, str] = {}
        for row in rows:
            found = self._way(row, collective, priced)
            if isinstance(found, Way):
                ways.append(found)
            elif found:
                reasons.setdefault(row.backend, found)
        for way in ways:
            reasons.pop(way.row.backend, None)
        return Offer(nccl, fair, tuple(ways), reasons, now)

    def _way(
        self, row: BackendRow, collective: Instruction, priced: Instruction
    ) -> Way | str:
        """The price of a row, why it is none, or '' where another row says."""
        if row.backend not in self.backends:
            return ""
        if not has_gpu_config(collective) and row.spelling:
            return "has a backend config of another back end"
        if row.price == "kernel":
            return self._kernel(row, collective, priced)
        reason = self._reason_against(row, collective)
        line = self.lines.get(row.name)
        if line is None:
            if not reason:
                self.missing[row.name] = self.missing.get(row.name, 0) + 1
            return ""
        if reason:
            return reason
        us = line.us(self.sent_bytes(priced))
        if row.backend != _SYMMETRIC:
            return Way(row, us)
        return self._registered(row, us, priced)

    def _kernel(
        self, row: BackendRow, collective: Instruction, priced: Instruction
    ) -> Way | str:
        if self.against_kernels:
            return ""
        reason = reason_without_kernel(collective, self.choice, quirks=self.quirks)
        if reason:
            return reason
        if self.choice.row(collective) is not row:
            return ""
        kept = collective_config(priced).get(row.spelling, DEFAULTS[row.spelling])
        set_collective_fields(priced, self.choice.release, **{row.spelling: row.value})
        price = self.trials.price(priced)
        set_collective_fields(priced, self.choice.release, **{row.spelling: kept})
        if not price.model.endswith(NVLINK_KERNEL):
            release = self.choice.release
            return (
                f"has no price as a kernel: {price.model} of XLA {release} knows none"
            )
        return Way(row, price.us)

    def _reason_against(self, row: BackendRow, collective: Instruction) -> str:
        """Why a row does not take a collective; '' if it does."""
        sizes = [operand.shape for operand in collective.operands]
        if any(row.types and s.element_type not in row.types for s in sizes):
            return f"moves {sizes[0].element_type}"
        groups = self.choice.groups.of(collective, collective.opcode)
        machine = self.choice.machine
        # Without groups all devices are one.
        most = machine.device_count
        if groups is not None:
            most = max(map(len, groups), default=0)
        if collective.opcode != "collective-permute" and most < 2:
            return "has groups of one device"
        if row.most_devices and most > row.most_devices:
            return f"has groups of more than {row.most_devices}"
        described = describe(collective)
        size = 0 if described is None else described.transferred_bytes
        if row.most_bytes and size > row.most_bytes:
            return f"has more than {row.most_bytes} bytes"
        reach = {
            "host": (machine.devices_per_host, "host"),
            "domain": (machine.partition_size, "NVLink domain"),
        }
        if row.reach in reach:
            devices, name = reach[row.reach]
            if groups is None:
                is_far = most > devices
            else:
                is_far = any(len({d // devices for d in g}) > 1 for g in groups)
            if is_far:
                return f"has {_members(collective)} beyond one {name}"
        assert row.reach != BY_RELEASE, "only kernels are as the release says"
        return ""

    @staticmethod
    def sent_bytes(collective: Instruction) -> float:
        """What each device sends of a collective at least."""
        described = describe(collective)
        assert described is not None, f"%{collective.name} is a collective"
        size, devices = described.transferred_bytes, 1
        if collective.opcode != "collective-permute":
            _, devices = described.count_and_size()
        return bytes_sent(collective.opcode, size, devices)

    # -- registered memory ---------------------------------------------------

    def _registered(self, row: BackendRow, us: float, priced: Instruction) -> Way | str:
        """The way with the copies that registered memory needs."""
        buffers, space = self._colored()
        if priced not in buffers.flow.reached.number:
            return "never runs"
        own = [
            Wish(b, space, priced)
            for one in dict.fromkeys((priced, *priced.operands))
            for position in array_positions(buffers, one)
            for b in buffers.at(position)
        ]
        wanted = {wish.buffer for wish in own}
        others = [wish for wish in self._wishes if wish.buffer in wanted]
        for conflict in color(buffers, [*others, *own]).conflicts:
            return f"has a buffer that two memories are asked for: {conflict.text}"
        copies = planned_copies(buffers, wanted)
        costs = [self._copy_us(priced, s) for copy in copies for s in copy.shapes]
        copies_us = sequential_sum(costs)
        copied = tuple(f"{copy.role} %{copy.instruction.name}" for copy in copies)
        return Way(row, us + copies_us, copies_us, copied)

    def _colored(self) -> tuple[Buffers, int]:
        release = self.choice.release
        space = release.collective_memory_space
        if self._buffers is None:
            self._buffers = build_buffers(self._copy)
            barrier = release.ragged_barrier_is_by_nccl
            assignment = GpuMemorySpaceAssignment(
                ragged_all_to_all_use_barrier_with_nccl=barrier
            )
            self._wishes = list(assignment.wishes(self._buffers, space))
        return self._buffers, space

    def _copy_us(self, beside: Instruction, shape: Shape) -> float:
        """The roofline of a kernel that copies an array."""
        computation = beside.computation
        made = computation.new("copy", shape, (zeros(computation, shape),))
        us = self.trials.compute_us(made)
        computation.remove_with_dead_operands(made)
        return us

    # -- other sizes ---------------------------------------------------------

    def exchange_us(self, collective: Instruction, sizes: Iterator[int]) -> list[float]:
        """Fair prices of an all-to-all by NCCL for other sizes of its message, us."""
        priced = self._priced[key_of(collective)]
        element = priced.operands[0].shape
        width = max(1, element.byte_size // max(1, element.element_count))
        computation, found = priced.computation, []
        for size in sizes:
            count = len(priced.operands)
            part = _of_elements(element, max(1, size // width // count))
            parts = [zeros(computation, part) for _ in range(count)]
            shape = priced.shape
            shape = _all_of(shape, part) if shape.is_tuple else part
            other = copy_of(priced, parts, shape)
            found.append(self.trials.least_us(other))
            computation.remove_with_dead_operands(other)
        return found


def _members(collective: Instruction) -> str:
    return "pairs" if collective.opcode == "collective-permute" else "groups"


def _of_elements(shape: Shape, elements: int) -> Shape:
    """The shape with so many elements, all in its first dimension."""
    rest = (1,) * max(0, shape.rank - 1)
    return shape.with_dimensions((elements, *rest))


def _all_of(whole: Shape, part: Shape) -> Shape:
    return tuple_shape([part for _ in whole.elements])
