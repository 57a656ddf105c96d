"""Which collectives XLA can run as one kernel over NVLink, and how it is launched.

    all-reduce(f32[64,8]) over 8 GPUs of one H100 host     one-shot, tiles of 64x8
    all-reduce(f32[512,512])                               two-shot
    all-reduce(f32[4096,4096]), or over two hosts          no kernel: NCCL

In one shot every device reads the whole buffers of the others. In two shots each
reduces its part and then reads the results of the others.

Source: openxla/xla `xla/backends/gpu/runtime/all_reduce.cc`, `all_gather.cc`,
`xla/backends/gpu/codegen/triton/collective_emitter.cc`. Types, reductions and bytes are
rows of `data/collective_backends.csv` (`latency/backend_rows.py`); what the releases of
`xla_release` do differently is read from their compilers' results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.rewriting.reductions import reduction_kind, reduction_of
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.hardware.machine import machine_of
from hlo_passes.scheduler.hardware.target import Target, target
from hlo_passes.scheduler.hardware.topology import Topology
from hlo_passes.scheduler.latency.backend_rows import BackendRow, backend_row
from hlo_passes.scheduler.passes.device_groups import DeviceGroups
from hlo_passes.xla_release import XlaRelease

_DEVICES_OF_A_HOST: Final = 8
#: An aligned gather sends whole transactions of so many bytes.
_TRANSACTION_BYTES: Final = 16
#: Rows of all-gathers, by `gathers_by_kernel`.
_GATHERS: Final = {"aligned": "aligned-gather", "tiled": "tiled-gather"}
#: Rows of all-reduces, in one shot and in two, of numbers and of bits.
_ONE_SHOT: Final = ("one-shot", "one-shot-of-bits")
_TWO_SHOTS: Final = ("two-shots", "two-shots-of-bits")
_HOPPER: Final = 9

# -- how a kernel is launched --------------------------------------------------

_ELEMENTS_OF_A_THREAD: Final = 4
_THREADS_OF_A_WARP: Final = 32
_MOST_THREADS: Final = 512
_MOST_BLOCKS: Final = 32
#: Of gathers, by `gathers_by_kernel`.
_MOST_GATHER_BLOCKS: Final = {"aligned": 32, "tiled": 64}


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is launched: warps of a block, and the tile of the result."""

    warps: int
    tile: tuple[int, ...]


@dataclass(slots=True)
class KernelChoice:
    """Says of the collectives of one module whether they have a kernel.

    Attributes:
        part: the GPU.
        machine: how the GPUs are joined.
        release: the release of XLA to follow.
        groups: the devices of the module's collectives.
        graph: who calls whom in the module.
    """

    part: Target
    machine: Topology
    release: XlaRelease
    groups: DeviceGroups
    graph: CallGraph

    @staticmethod
    def of(module: Module, pricing: Pricing, release: XlaRelease) -> KernelChoice:
        """For a module on the machine that it is priced for."""
        return KernelChoice(
            target(pricing.target),
            machine_of(module, pricing),
            release,
            DeviceGroups(module),
            build_call_graph(module),
        )

    def reason_against_all(self) -> str:
        """Why no collective of the machine has a kernel; '' if some may."""
        if self.part.capability[0] < _HOPPER:
            return f"{self.part.spec} is older than Hopper"
        if self.part.nvlink_links <= 0:
            return f"{self.part.spec} has no NVLink"
        return ""

    def reason_against(self, collective: Instruction) -> str:
        """Why an all-reduce or all-gather has no kernel; '' if it has one.

        An all-reduce may be the start of a pair.
        """
        if self.graph.is_async_body(collective.computation):
            return "is asynchronous already"
        if len(collective.operands) != 1:
            return "has several operands"
        operand = collective.operands[0].shape
        if not operand.is_array:
            return "sends what is not an array"
        return self._reason_of_groups(collective) or (
            self._reason_against_reduction(collective, operand)
            if is_all_reduce(collective)
            else self._reason_against_gather(collective, operand)
        )

    def _reason_of_groups(self, collective: Instruction) -> str:
        written = collective.replica_groups
        if written is None or not written.groups:
            return "names no replica groups"
        sizes = {len(group) for group in written.groups}
        if len(sizes) > 1 and not self.release.kernel_groups_differ:
            return "has groups of different size"
        devices = group_size(collective)
        if devices & (devices - 1) or not devices:
            return f"has groups of {devices}, which is not a power of two"
        most = self.release.most_kernel_devices
        if devices > most:
            return f"has groups of more than {most}"
        return "" if self._is_near(collective) else self._not_near()

    def _reach(self) -> int:
        """How many devices, by number, a kernel reaches; 0 for all."""
        lie = self.release.kernel_groups_lie
        if lie == "anywhere":
            return 0
        machine = self.machine
        return machine.devices_per_host if lie == "host" else machine.partition_size

    def _is_near(self, collective: Instruction) -> bool:
        reach = self._reach()
        if not reach:
            return True
        groups = self.groups.of(collective, collective.opcode)
        return groups is not None and all(
            len({device // reach for device in group}) == 1 for group in groups
        )

    def _not_near(self) -> str:
        in_host = self.release.kernel_groups_lie == "host"
        return f"has groups beyond one {'host' if in_host else 'NVLink domain'}"

    def _reason_against_gather(self, gather: Instruction, operand: Shape) -> str:
        rule = self.release.gathers_by_kernel
        if rule not in _GATHERS:
            return f"is an all-gather, for which XLA {self.release} has no kernel"
        row = backend_row(_GATHERS[rule])
        if operand.element_type not in row.types:
            return f"gathers {operand.element_type}"
        if rule == "aligned":
            if operand.byte_size % _TRANSACTION_BYTES:
                return f"sends no multiple of {_TRANSACTION_BYTES} bytes"
            large = operand.byte_size > row.most_bytes
            return f"sends more than {row.most_bytes >> 10} KiB" if large else ""
        length = operand.dimensions[gather_dimension(gather)]
        if length & (length - 1) or not length:
            return f"gathers parts of {length}, which is not a power of two"
        large = gather.shape.byte_size > row.most_bytes
        return f"gathers more than {row.most_bytes >> 20} MiB" if large else ""

    def _reason_against_reduction(self, reduction: Instruction, operand: Shape) -> str:
        kind = reduction_kind(reduction_of(reduction))
        if not kind:
            return "reduces by a computation that is not known"
        row = _reduced_by(_TWO_SHOTS, operand.element_type)
        if row is None or kind not in row.reductions:
            return f"has no kernel for the {kind} of {operand.element_type}"
        most = self._limit(row.most_bytes, reduction)
        return f"has more than {most} bytes" if operand.byte_size > most else ""

    def row(self, collective: Instruction) -> BackendRow:
        """The row of a collective that has a kernel."""
        if collective.opcode == "all-gather":
            return backend_row(_GATHERS[self.release.gathers_by_kernel])
        rows = _TWO_SHOTS if self.takes_two_shots(collective) else _ONE_SHOT
        row = _reduced_by(rows, collective.operands[0].shape.element_type)
        assert row is not None, "it has a kernel"
        return row

    def takes_two_shots(self, collective: Instruction) -> bool:
        """Whether an all-reduce is too large for one shot; a gather never is."""
        if not is_all_reduce(collective):
            return False
        operand = collective.operands[0].shape
        once = _reduced_by(_ONE_SHOT, operand.element_type) or backend_row(_ONE_SHOT[0])
        return operand.byte_size > self._limit(once.most_bytes, collective)

    def _limit(self, limit: int, reduction: Instruction) -> int:
        """The bytes that a kernel reduces in the groups of an all-reduce."""
        if not self.release.kernel_bytes_by_devices:
            return limit
        return limit * _DEVICES_OF_A_HOST // group_size(reduction)

    def launch(self, collective: Instruction) -> Launch:
        """The launch of the kernel of a collective that has elements.

        The shape may have been flattened; a gather's must not. An all-reduce in two
        shots is launched for the part that a device reduces.
        """
        shape, gathers = collective.shape, collective.opcode == "all-gather"
        elements, most = shape.element_count, _MOST_BLOCKS
        if gathers:
            most = _MOST_GATHER_BLOCKS[self.release.gathers_by_kernel]
        elif self.takes_two_shots(collective):
            elements //= group_size(collective)
        # Whole warps; a block has a power of two of threads.
        warps = -(-elements // (_ELEMENTS_OF_A_THREAD * _THREADS_OF_A_WARP))
        threads = warps * _THREADS_OF_A_WARP
        in_block = min(_MOST_THREADS, _power_above(threads))
        tile = list(_tile(shape, min(most, -(-threads // in_block))))
        if gathers:
            # A tile lies in the part of one device.
            along = gather_dimension(collective)
            part = collective.operands[0].shape.dimensions[along]
            tile[along] = min(tile[along], _power_below(part))
        return Launch(in_block // _THREADS_OF_A_WARP, tuple(tile))


def _reduced_by(names: tuple[str, ...], element_type: str) -> BackendRow | None:
    """The row that reduces a type; None where none does."""
    found = (backend_row(name) for name in names)
    return next((row for row in found if element_type in row.types), None)


def is_all_reduce(collective: Instruction) -> bool:
    """Whether it is an all-reduce, or the start of one."""
    return collective.opcode in ("all-reduce", "all-reduce-start")


def group_size(collective: Instruction) -> int:
    """The number of devices of its first group, 0 without groups."""
    groups = collective.replica_groups
    return len(groups.groups[0]) if groups is not None and groups.groups else 0


def gather_dimension(gather: Instruction) -> int:
    """The dimension along which an all-gather joins its parts."""
    return gather.integers("dimensions")[0]


def _tile(shape: Shape, blocks: int) -> tuple[int, ...]:
    """Tiles with powers of two for sides, about as many as blocks.

    The most major dimensions are cut first, so that a tile is contiguous.
    """
    sides = [0] * shape.rank
    for dimension in reversed(minor_to_major(shape)):
        size = shape.dimensions[dimension]
        cuts = max(1, _power_below(min(blocks, size)))
        sides[dimension] = _power_above(-(-size // cuts))
        blocks //= -(-size // sides[dimension])
    return tuple(sides)


def minor_to_major(shape: Shape) -> tuple[int, ...]:
    """The order of a shape's dimensions in memory, the fastest first."""
    if shape.layout is not None:
        return shape.layout.minor_to_major
    return tuple(reversed(range(shape.rank)))


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1) if number > 0 else 0


def _power_above(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
