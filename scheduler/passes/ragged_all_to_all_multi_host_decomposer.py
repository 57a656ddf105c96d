"""Exchanges ragged rows inside hosts, and dense messages between two hosts.

Before:  %r = f32[64] ragged-all-to-all(%x, %y, ...), replica_groups={{0,1,2,3}}
After, with two devices to a host:
         %g = f32[32] all-gather(%x), replica_groups={{0,2},{1,3}}
         offsets and sizes of the other host by all-to-all
         %s = f32[64] ragged-all-to-all(%g, %y, ...), replica_groups={{0,1},{2,3}}
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.device_offsets import Groups, groups_of
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.passes.decomposing.ragged_all_to_all_decomposer import (
    require_wide_offsets,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.constants import scalar, spread, zeros
from hlo_passes.passes.rewriting.each_collective import rewrite_each
from hlo_passes.scheduler.hardware.machine import machine_of

#: The hosts over which XLA splits.
_HOSTS = 2


@dataclass(frozen=True, slots=True)
class RaggedAllToAllMultiHostDecomposer(Pass):
    """Split ragged all-to-alls over two hosts into parts between and inside hosts.

    If there is at least as much room for rows as there are rows (the dispatch of a
    mixture of experts), the pass first gathers the rows of both hosts, and then
    exchanges them inside each host. If there are more rows than room (the combination),
    the pass exchanges rows inside each host for both hosts, then between the hosts by
    an all-to-all, and puts them together.

    Groups must be listed, have equally many devices on both hosts, and order the hosts
    alike. Offsets must be s64 (`ragged-all-to-all-canonicalizer`). XLA takes the sizes
    of what is received between hosts from the wrong host. This is right only if the
    sizes are the same in both directions, or if the back end does not read them.
    Without XLA's quirks (`--no-xla-quirks`), all sizes are right.

    XLA splits over two hosts and leaves more hosts alone. With `any-hosts`, the pass
    splits over more hosts in the same way, and the all-gather or all-to-all of the rows
    then spans as many hosts.

    A host is what NVLink joins in the machine that the module is priced for, so a rack
    counts as one host. XLA 0.10.2 runs the pass only if
    `xla_gpu_unsupported_enable_ragged_all_to_all_multi_host_decomposer` is true.

    Ensures: nothing that spans hosts is ragged.
    Complexity: linear in instructions and members of groups.
    Source: openxla/xla
    `xla/backends/gpu/transforms/ragged_all_to_all_multi_host_decomposer.cc`.

    Attributes:
        slice_size: number of devices of a host; 0: the machine's number.
        only_by_default: change nothing if the release runs the pass only when it is
            told to.
        any_hosts: split over any number of hosts, from two on.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "ragged-all-to-all-multi-host-decomposer"
    needs_collectives: ClassVar[bool] = True

    slice_size: int = 0
    only_by_default: bool = False
    any_hosts: bool = False
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit ragged all-to-alls in post order."""
        release = context.release_for(module, self.xla)
        if self.only_by_default and not release.splits_ragged_between_hosts:
            report.remark(f"nothing split: XLA {release} does so only if told to")
            return False
        channels, replicas = count(next_channel_id(module)), module.replica_count
        size = functools.cache(
            lambda: (
                self.slice_size or machine_of(module, context.pricing).partition_size
            )
        )

        def split(ragged: Instruction) -> str:
            require_wide_offsets(ragged)
            plan = _plan(groups_of(ragged), size(), any_hosts=self.any_hosts)
            if isinstance(plan, str):
                return plan
            rows, room = (o.shape.dimensions[0] for o in ragged.operands[:2])
            if rows <= room and ragged.channel_id is not None and replicas > 1:
                # An all-gather of its metadata would name devices of all replicas.
                return "exchanges between partitions of several replicas"
            split_up = _Split(ragged, plan, channels, quirks=context.xla_quirks)
            ragged.computation.replace(
                ragged, split_up.combine() if rows > room else split_up.dispatch()
            )
            return ""

        return rewrite_each(module, "ragged-all-to-all", split, report, "split")


@dataclass(frozen=True, slots=True)
class _Plan:
    """The groups of the parts.

    Attributes:
        across: of one device of each host.
        inside: of the devices of one host, by group, then by host.
        order: of the devices of a group, so that those of a host follow one another.
        devices: in all groups.
        hosts: over which they are.
    """

    across: Groups
    inside: Groups
    order: tuple[int, ...]
    devices: int
    hosts: int


def _plan(groups: Groups, slice_size: int, *, any_hosts: bool) -> _Plan | str:
    """How to split groups, or why that is not done."""
    if not groups:
        return "does not list its groups"
    devices = sum(map(len, groups))
    hosts_of_all = -(-devices // slice_size)
    if hosts_of_all == 1 or not (any_hosts or hosts_of_all == _HOSTS):
        return f"is not over {_HOSTS} hosts"
    across: list[tuple[int, ...]] = []
    inside: list[tuple[int, ...]] = []
    orders: set[tuple[int, ...]] = set()
    for group in groups:
        hosts = [device // slice_size for device in group]
        if max(hosts) >= hosts_of_all:
            return f"is not over {hosts_of_all} hosts"
        orders.add(tuple(sorted(range(len(group)), key=hosts.__getitem__)))
        members = [
            tuple(d for d, host in zip(group, hosts, strict=True) if host == wanted)
            for wanted in range(hosts_of_all)
        ]
        if len(set(map(len, members))) != 1:
            return "has a group with more devices on one host than on the other"
        inside += members
        across += zip(*members, strict=True)
    if len(orders) != 1:
        return "has groups that order hosts differently"
    return _Plan(tuple(across), tuple(inside), orders.pop(), devices, hosts_of_all)


class _Split:
    """Writes one ragged all-to-all as several collectives."""

    def __init__(
        self,
        ragged: Instruction,
        plan: _Plan,
        channels: Iterator[int],
        *,
        quirks: bool,
    ) -> None:
        self.ragged = ragged
        self.quirks = quirks
        self.plan = plan
        self.channels = channels
        self.members = len(plan.order)
        self.hosts = plan.hosts
        #: Offsets and sizes: one number for each update.
        self.numbers = ragged.operands[2].shape
        updates = self.numbers.dimensions[0] // self.members
        per_host = self.members // self.hosts
        kind = self.numbers.element_type
        self.by_host = array_shape(kind, (self.hosts, per_host, updates))
        self.by_device = array_shape(kind, (per_host, self.hosts, updates))

    def dispatch(self) -> Instruction:
        """All rows to both hosts, then inside each host to where they belong."""
        source, output = self.ragged.operands[:2]
        rows, *others = source.shape.dimensions
        attributes = {"dimensions": "{0}"}
        if self.ragged.channel_id is not None:
            attributes["use_global_device_ids"] = "true"
        gathered = self._collective(
            "all-gather",
            source.shape.with_dimensions((self.hosts * rows, *others)),
            (source,),
            self.plan.across,
            attributes,
        )
        numbers = self._of_both_hosts()
        return self._ragged(
            self.ragged.shape, (gathered, output, *numbers), self.plan.inside
        )

    def _of_both_hosts(self) -> list[Instruction]:
        """Offsets and sizes of the devices with this place in their host."""
        ragged, (hosts, per_host, updates) = self.ragged, self.by_host.dimensions
        own = [
            self._new("reshape", self.by_host, (self._sorted(numbers),))
            for numbers in ragged.operands[2:]
        ]
        # A device knows from itself what it receives. XLA asks the other host.
        known = [] if self.quirks else own[3:]
        asked = own[: len(own) - len(known)]
        together = self.by_host.with_dimensions((hosts, per_host, len(asked) * updates))
        joined = self._new("concatenate", together, tuple(asked), {"dimensions": "{2}"})
        exchanged = self._between_hosts(joined)
        parts = [
            self._new(
                "slice",
                self.by_host,
                (exchanged,),
                {
                    "slice": f"{{[0:{hosts}], [0:{per_host}], "
                    f"[{k * updates}:{(k + 1) * updates}]}}"
                },
            )
            for k in range(len(asked))
        ] + known
        # The rows of the second host follow those of the first.
        parts[0] = self._behind_hosts(parts[0], ragged.operands[0])
        return [self._flat(self._by_device(part)) for part in parts]

    def combine(self) -> Instruction:
        """Inside each host for both, then between hosts, then in the right places."""
        ragged = self.ragged
        source, output, *numbers = ragged.operands
        rows, *others = ragged.shape.dimensions
        both = ragged.shape.with_dimensions((self.hosts * rows, *others))
        room = zeros(ragged.computation, both)
        inside = [self._for_host(each, k) for k, each in enumerate(numbers)]
        local = self._ragged(
            both, (source, room, *inside), self.plan.inside, self._channel()
        )
        received = self._between_hosts(local)
        # Where rows belong is known to their senders.
        square = array_shape(
            self.numbers.element_type,
            (self.members, self.numbers.dimensions[0] // self.members),
        )
        table = self._new("reshape", square, (numbers[2],))
        sent = self._collective(
            "all-to-all", square, (table,), groups_of(ragged), {"dimensions": "{0}"}
        )
        offsets = self._flat(sent)
        own = [self._sorted(each) for each in (offsets, numbers[3]) * 2]
        by_host = self._new("reshape", self.by_host, (own[0],))
        own[0] = self._flat(self._behind_hosts(by_host, output))
        alone = tuple((device,) for device in range(self.plan.devices))
        return self._ragged(ragged.shape, (received, output, *own), alone)

    def _for_host(self, numbers: Instruction, place: int) -> Instruction:
        """Offsets or sizes in order of the devices of a host, of both hosts each.

        `place`: 2 for the output offsets, 3 for the sizes of what is received. These
        are of rows for the other host, too, which knows them. XLA does not ask it.
        """
        by_host = self._new("reshape", self.by_host, (self._sorted(numbers),))
        if place == 2:
            by_host = self._behind_hosts(by_host, self.ragged.operands[1])
        if place == 3 and not self.quirks:
            by_host = self._between_hosts(by_host)
        return self._flat(self._by_device(by_host))

    def _between_hosts(self, values: Instruction) -> Instruction:
        """Part k of dimension 0 to the device with the same place on host k."""
        attributes = {"dimensions": "{0}"}
        return self._collective(
            "all-to-all", values.shape, (values,), self.plan.across, attributes
        )

    # -- pieces --------------------------------------------------------------------

    def _channel(self) -> int | None:
        """A new channel id, if the ragged all-to-all has one."""
        return None if self.ragged.channel_id is None else next(self.channels)

    def _new(
        self,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        attributes: Mapping[str, str] | None = None,
    ) -> Instruction:
        return self.ragged.computation.new(opcode, shape, operands, attributes)

    def _collective(
        self,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        groups: Groups,
        attributes: Mapping[str, str],
    ) -> Instruction:
        found = {**attributes, "replica_groups": lists_text(groups)}
        channel = self._channel()
        if channel is not None:
            found["channel_id"] = str(channel)
        return self._new(opcode, shape, operands, in_print_order(found, opcode))

    def _ragged(
        self,
        shape: Shape,
        operands: tuple[Instruction, ...],
        groups: Groups,
        channel: int | None = None,
    ) -> Instruction:
        found = {"replica_groups": lists_text(groups)}
        if channel is None:
            channel = self.ragged.channel_id
        if channel is not None:
            found = {"channel_id": str(channel), **found}
        return self._new("ragged-all-to-all", shape, operands, found)

    def _flat(self, numbers: Instruction) -> Instruction:
        return self._new("reshape", self.numbers, (numbers,))

    def _by_device(self, numbers: Instruction) -> Instruction:
        """[hosts, devices, updates] -> [devices, hosts, updates]."""
        order = {"dimensions": "{1,0,2}"}
        return self._new("transpose", self.by_device, (numbers,), order)

    def _behind_hosts(self, offsets: Instruction, rows: Instruction) -> Instruction:
        """Offsets into the rows of all hosts, one host after the other."""
        shape = self.by_host
        host = self._new("iota", shape, (), {"iota_dimension": "0"})
        length = scalar(self.ragged.computation, "s64", rows.shape.dimensions[0])
        first = self._new("multiply", shape, (host, spread(length, shape)))
        return self._new("add", shape, (offsets, first))

    def _sorted(self, numbers: Instruction) -> Instruction:
        """Numbers of the devices of one host, then of the other."""
        order = self.plan.order
        if order == tuple(sorted(order)):
            return numbers
        kind, (size,) = numbers.shape.element_type, numbers.shape.dimensions
        each = size // self.members
        flat = array_shape(kind, (size,))
        starts = ", ".join(f"{{{each * member}}}" for member in order)
        table = self.ragged.computation.new(
            "constant",
            array_shape("s64", (self.members, 1)),
            literal=f"{{ {starts} }}",
        )
        line = self._new("reshape", flat, (numbers,))
        picked = self._new(
            "gather",
            array_shape(kind, (self.members, each)),
            (line, table),
            {
                "offset_dims": "{1}",
                "collapsed_slice_dims": "{}",
                "start_index_map": "{0}",
                "index_vector_dim": "1",
                "slice_sizes": f"{{{each}}}",
            },
        )
        return self._new("reshape", flat, (picked,))
