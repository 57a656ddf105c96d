"""Tables of the user's measurements, in XLA's text form.

    entries { key: "sm_90" value { entries {
      instruction { opcode: "all-gather" shape { element_type: F32 dimensions: 1024 }
        iota_collective_device_list { num_replica_groups: 2 num_devices_per_group: 4
          iota_reshape_dims: 8 } }
      network_throughput_bytes_per_sec: 14185281385 } } }

The files of `--xla_gpu_experimental_collective_perf_table_path` and
`--xla_gpu_experimental_matmul_perf_table_path`. As in XLA the nearest row by plain
Euclidean distance is used, the first of equals: size outweighs everything else.

Source: openxla/xla `collective_interpolator.cc`, `matmul_interpolator.cc`,
`hlo_op_profile.proto` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from hlo_passes.errors import UsageError
from hlo_passes.files import read_text
from hlo_passes.ir.replica_groups import ReplicaGroups
from hlo_passes.ir.shapes import BITS
from hlo_passes.scheduler.hardware.target import Target
from hlo_passes.scheduler.hardware.text_proto import (
    Message,
    integer,
    integers,
    parse_text_proto,
    string,
    submessage,
    submessages,
)
from hlo_passes.scheduler.latency.collective_table import TableRow
from hlo_passes.scheduler.latency.collectives import Collective
from hlo_passes.scheduler.latency.communication import communication_type
from hlo_passes.scheduler.latency.durations import ticks_of_s
from hlo_passes.scheduler.latency.matmul_table import Gemm
from hlo_passes.scheduler.latency.network import NotEstimated

#: Sides of products beyond this are mistakes; their squares would leave 64 bits.
_LARGEST_SIDE: Final = 1 << 30
#: More devices than any machine has; groups are listed one by one.
_MOST_DEVICES: Final = 1 << 20
_REDUCING: Final = ("all-reduce", "reduce-scatter")


@dataclass(frozen=True, slots=True)
class NearestCollectiveTable:
    """Measured collectives; the nearest row is used."""

    rows: tuple[TableRow, ...]

    def ticks(self, collective: Collective, gpus_per_node: int) -> int:
        """Time inside one partition. NotEstimated without a row of the kind."""
        kind, sent = collective.kind, collective.transferred_bytes
        if kind == "collective-permute":
            raise NotEstimated("XLA cannot find permutes in a user's table")
        exact = self._exact(collective)
        if exact:
            best = min(exact, key=lambda row: (_int32(row.size_bytes) - sent) ** 2)
            return _row_ticks(best, sent)
        wanted = communication_type(
            collective.listed_groups, gpus_per_node, collective.replica_count
        )
        _, members = collective.count_and_size()
        alike = [
            row
            for row in self.rows
            if row.kind == kind
            and communication_type(row.groups.groups, gpus_per_node, 1) is wanted
        ]
        if not alike:
            raise NotEstimated(f"no measured {kind} of class {wanted.value}")
        best = min(
            alike,
            key=lambda row: (
                (_int32(row.size_bytes) - sent) ** 2
                + ((row.groups.size or 0) - members) ** 2
            ),
        )
        return _row_ticks(best, sent)

    def _exact(self, collective: Collective) -> list[TableRow]:
        """Rows of the same groups and type, which only reductions find."""
        if collective.kind not in _REDUCING or collective.form == "start":
            return []
        return [
            row
            for row in self.rows
            if row.kind == collective.kind
            and row.element_type == collective.element_type
            and row.groups.groups == collective.listed_groups
        ]


def _int32(value: int) -> int:
    """Wrap to 32 bits, as XLA does with a row's size."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _row_ticks(row: TableRow, sent_bytes: int) -> int:
    if row.bytes_per_s <= 0:
        raise NotEstimated("the nearest row of the table has no value")
    return ticks_of_s(sent_bytes / row.bytes_per_s)


@dataclass(frozen=True, slots=True)
class NearestMatmulTable:
    """Measured products, sides in bytes of a result element; the nearest is used."""

    points: np.ndarray  # (rows, 4): b, m, k, n
    flops_per_s: tuple[int, ...]

    def ticks(self, gemm: Gemm) -> int:
        """Time of a product at the rate of the nearest row."""
        width = max(1, (BITS[gemm.out] + 7) // 8)
        sides = (gemm.batch, gemm.m * width, gemm.k * width, gemm.n * width)
        distance = ((self.points - np.asarray(sides)) ** 2).sum(axis=1)
        rate = self.flops_per_s[int(distance.argmin())]
        return ticks_of_s(2.0 * prod(sides) / rate)

    def times_its_share(self, gemm: Gemm) -> int:
        """Once: its rows count bytes, too; a measured product costs its time."""
        return 1


# -- reading -------------------------------------------------------------------


def read_collective_table(path: str, target: Target) -> NearestCollectiveTable:
    """Rows of a target. Raises UsageError U001, U213, ParseError P400."""
    rows = tuple(
        row for entry in _entries(path, target) if (row := _collective_row(entry, path))
    )
    if not rows:
        raise _refuse(path, "no collective")
    return NearestCollectiveTable(rows)


def read_matmul_table(path: str, target: Target) -> NearestMatmulTable:
    """Rows of a target. Raises UsageError U001, U213, ParseError P400."""
    points, rates = [], []
    for entry in _entries(path, target):
        sides = _matmul_sides(entry, path)
        cycles = integer(entry, "clock_cycles")
        nanoseconds = int(cycles / target.clock_ghz)
        if nanoseconds < 1:
            raise _refuse(path, "a product without clock_cycles")
        rate = int(2 * prod(sides) * 1e9 // nanoseconds)
        if not rate:
            raise _refuse(path, "a product that computes nothing in clock_cycles")
        points.append(sides)
        rates.append(rate)
    if not points:
        raise _refuse(path, "no product")
    return NearestMatmulTable(np.asarray(points, dtype=np.int64), tuple(rates))


def _refuse(path: str, what: str) -> UsageError:
    return UsageError(
        f"{path}: {what}",
        code="U213",
        hint="give a DeviceHloInstructionProfiles in text form",
    )


def _entries(path: str, target: Target) -> list[Message]:
    text = read_text(path)
    devices = submessages(parse_text_proto(text, path), "entries")
    for device in devices:
        if string(device, "key") == target.table_key:
            return submessages(submessage(device, "value"), "entries")
    keys = ", ".join(string(device, "key") for device in devices) or "none"
    raise _refuse(
        path, f"no entry {target.table_key} for {target.spec} (it has {keys})"
    )


def _dimensions(shape: Message) -> tuple[int, ...]:
    return integers(shape, "dimensions")


def _element_type(shape: Message, path: str) -> str:
    word = string(shape, "element_type").lower()
    if word not in BITS:
        raise _refuse(path, f"element type {word or 'missing'}")
    return word


def _collective_row(entry: Message, path: str) -> TableRow | None:
    instruction = submessage(entry, "instruction")
    kind = string(instruction, "opcode")
    shape = submessage(instruction, "shape")
    listed = submessage(instruction, "iota_collective_device_list")
    if not listed:
        return None
    dtype = _element_type(shape, path)
    bytes_of_shape = prod(_dimensions(shape)) * ((BITS[dtype] + 7) // 8)
    groups = _groups(listed, path)
    factor = groups.size or 1 if kind == "reduce-scatter" else 1
    return TableRow(
        kind,
        dtype,
        groups,
        "",
        bytes_of_shape * factor,
        integer(entry, "network_throughput_bytes_per_sec"),
    )


def _groups(listed: Message, path: str) -> ReplicaGroups:
    count = integer(listed, "num_replica_groups")
    size = integer(listed, "num_devices_per_group")
    if count * size > _MOST_DEVICES:
        raise _refuse(path, f"groups of more than {_MOST_DEVICES} devices")
    try:
        return ReplicaGroups.of_iota(
            count,
            size,
            integers(listed, "iota_reshape_dims") or None,
            integers(listed, "iota_transpose_perm") or None,
        )
    except ValueError as problem:
        raise _refuse(path, str(problem)) from problem


def _matmul_sides(entry: Message, path: str) -> tuple[int, int, int, int]:
    operands = [submessage(o, "shape") for o in submessages(entry, "operands")]
    instruction = submessage(entry, "instruction")
    if len(operands) != 2 or string(instruction, "opcode") != "dot":
        raise _refuse(path, "a row that is not a product of two operands")
    dimensions = submessage(instruction, "dot_dimension_numbers")
    width = (BITS[_element_type(submessage(instruction, "shape"), path)] + 7) // 8
    lhs, rhs = map(_dimensions, operands)

    batch = integers(dimensions, "lhs_batch_dimensions")
    contracted = integers(dimensions, "lhs_contracting_dimensions")
    rhs_taken = (
        *integers(dimensions, "rhs_batch_dimensions"),
        *integers(dimensions, "rhs_contracting_dimensions"),
    )
    lhs_taken = (*batch, *contracted)
    if not (
        set(lhs_taken) <= set(range(len(lhs)))
        and set(rhs_taken) <= set(range(len(rhs)))
    ):
        raise _refuse(path, "a product of a dimension that its operand does not have")
    lhs_free = [d for d in range(len(lhs)) if d not in lhs_taken]
    rhs_free = [d for d in range(len(rhs)) if d not in rhs_taken]
    sides = (
        prod(lhs[d] for d in batch),
        width * prod(lhs[d] for d in lhs_free),
        width * prod(lhs[d] for d in contracted),
        width * prod(rhs[d] for d in rhs_free),
    )
    if not 0 < min(sides) <= max(sides) <= _LARGEST_SIDE:
        raise _refuse(path, "a product with a side that is 0, negative or too large")
    return sides
