"""Reduces inside hosts first, so that hosts send each other only what is left.

Before:  %a = f32[8] all-reduce(%x), replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
After, with four devices to a host:
         %s = f32[2] reduce-scatter(bitcast(%x)), replica_groups={{0,1,2,3},{4,5,6,7}}
         %r = f32[2] all-reduce(%s), replica_groups={{0,4},{1,5},{2,6},{3,7}}
         %g = f32[8] all-gather(%r), replica_groups={{0,1,2,3},{4,5,6,7}}
         bitcast(%g)                                        readers of %a
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.device_offsets import Groups, groups_of
from hlo_passes.analysis.devices import group_mode
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.device_tiles import MAXIMUM_DEVICES
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.replica_groups import lists_text
from hlo_passes.ir.shapes import Shape, array_shape, tuple_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.reductions import constrains_layouts
from hlo_passes.passes.rewriting.replacement import relay_control

_KEPT = ("channel_id", "use_global_device_ids")


@dataclass(frozen=True, slots=True)
class AllReduceBlueconnect(Pass):
    """Split all-reduces into reduce-scatter, all-reduce and all-gather, host by host.

    The devices of a group that share a host run the reduce-scatter and the all-gather
    among themselves. If each device of a group has a host of its own, pairs of devices
    do. The smaller all-reduce that is left is split again, as far as possible.

    Each group must have the same number of devices on each of its hosts, and the
    elements must divide evenly among the devices of a reduce-scatter. The pass assumes
    that device k of the program runs on device k of the machine. It leaves a module
    alone if any all-reduce in it constrains layouts. XLA runs the pass if
    `xla_gpu_all_reduce_blueconnect_num_devices_per_host` is above 0.

    All three collectives have the channel id of the original. In 0.10.2, only the
    all-reduce keeps it, and the other two have new ones. The rewrite adds
    floating-point values in another order.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, and n log n in members of groups.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/all_reduce_blueconnect.cc`.

    Attributes:
        devices_per_host: the number of devices on each host; 0: change nothing.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-reduce-blueconnect"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    devices_per_host: int = 0
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Find all all-reduces first, then split them."""
        version = module.version
        if self.devices_per_host < 1:
            report.remark("nothing split: hosts have no devices")
            return False
        if constrains_layouts(module, "all-reduce"):
            report.remark("nothing split: an all-reduce constrains layouts")
            return False
        channels = None
        if not context.release_for(module, self.xla).rewrites_keep_channels:
            channels = count(next_channel_id(module))
        graph = build_call_graph(module)
        found = [
            instruction
            for computation in module.computations
            if not graph.is_async_body(computation)
            and not graph.is_fusion_body(computation)
            for instruction in computation.instructions
            if instruction.opcode == "all-reduce"
        ]
        for all_reduce in found:
            rest, name = all_reduce, all_reduce.name
            while True:
                split = _scattered_groups(rest, module, self.devices_per_host)
                if isinstance(split, str):
                    break
                rest = _split(rest, *split, channels)
                report.count("all-reduces-split")
            if rest is all_reduce:
                report.remark(f"not split: %{name} {split}")
        for computation in dict.fromkeys(i.computation for i in found):
            restore_text_order(computation)
        return module.version != version


def _scattered_groups(
    all_reduce: Instruction, module: Module, per_host: int
) -> tuple[Groups, Groups] | str:
    """Groups that scatter and gather, groups that reduce; or why there are none."""
    if unknown := unknown_attribute(all_reduce):
        return f"has the unknown attribute {unknown}"
    if "sharding" in all_reduce.attributes:
        return "has a sharding"
    mode = group_mode(all_reduce, "all-reduce")
    if mode == "cross-replica":
        if module.num_partitions != 1:
            return "has replicas that are several devices each"
    elif mode != "flattened":
        return "has ids that are no devices"
    if module.replica_count > MAXIMUM_DEVICES:
        return f"is in a module for more than {MAXIMUM_DEVICES} devices"
    groups = groups_of(all_reduce) or (tuple(range(module.replica_count)),)
    scattering: list[tuple[int, ...]] = []
    reducing: list[tuple[int, ...]] = []
    for group in groups:
        # The devices of one host follow one another.
        hosts: dict[int, list[int]] = {}
        for device in group:
            hosts.setdefault(device // per_host, []).append(device)
        by_host = [hosts[host] for host in sorted(hosts)]
        if len(set(map(len, by_host))) != 1:
            return "has more devices on one host than on another"
        size = max(len(by_host[0]), 2)
        if len(group) % size or len(group) // size < 2:
            return "has a group on one host, or an odd number of hosts"
        if scattering and len(scattering[0]) != size:
            return "has groups with different numbers of devices on a host"
        if any(o.shape.element_count % size for o in all_reduce.operands):
            return f"has an operand that does not divide by {size}"
        ordered = [device for devices in by_host for device in devices]
        scattering += [
            tuple(ordered[k : k + size]) for k in range(0, len(ordered), size)
        ]
        reducing += [tuple(ordered[k::size]) for k in range(size)]
    return tuple(scattering), tuple(reducing)


def _split(
    all_reduce: Instruction,
    scattering: Groups,
    reducing: Groups,
    channels: Iterator[int] | None,
) -> Instruction:
    """Replace an all-reduce; returns the new, smaller one.

    `channels`: new ones for what scatters and gathers, if it has none of its own.
    """
    computation, size = all_reduce.computation, len(scattering[0])
    flat = [
        array_shape(o.shape.element_type, (o.shape.element_count,))
        for o in all_reduce.operands
    ]
    parts = [shape.with_dimensions((shape.dimensions[0] // size,)) for shape in flat]
    bitcasts = [
        computation.new("bitcast", shape, (operand,))
        for shape, operand in zip(flat, all_reduce.operands, strict=True)
    ]

    def collective(
        opcode: str,
        shapes: list[Shape],
        operands: list[Instruction],
        groups: Groups,
        *names: str,
    ) -> Instruction:
        attributes = {
            n: t for n, t in all_reduce.attributes.items() if n in (*_KEPT, *names)
        }
        attributes["replica_groups"] = lists_text(groups)
        if opcode != "all-reduce":
            attributes["dimensions"] = "{0}"
            if channels is not None and "channel_id" in attributes:
                attributes["channel_id"] = str(next(channels))
        shape = shapes[0] if len(shapes) == 1 else tuple_shape(shapes)
        return computation.new(
            opcode, shape, operands, in_print_order(attributes, opcode)
        )

    scattered = collective("reduce-scatter", parts, bitcasts, scattering, "to_apply")
    reduced = collective("all-reduce", parts, _results(scattered), reducing, "to_apply")
    gathered = collective("all-gather", flat, _results(reduced), scattering)
    results = [
        computation.new("bitcast", operand.shape, (result,))
        for operand, result in zip(all_reduce.operands, _results(gathered), strict=True)
    ]
    result = results[0]
    if len(results) > 1:
        result = computation.new("tuple", all_reduce.shape, results)
    relay_control(all_reduce, scattered, result)
    computation.drop_control_edges(all_reduce)
    computation.replace(all_reduce, result)
    return reduced


def _results(collective: Instruction) -> list[Instruction]:
    """The collective, or the elements of what it returns."""
    if not collective.shape.is_tuple:
        return [collective]
    return [
        collective.computation.new(
            "get-tuple-element", shape, (collective,), {"index": str(k)}
        )
        for k, shape in enumerate(collective.shape.elements)
    ]
