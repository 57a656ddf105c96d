"""Removes collectives that change nothing, or whose result is known without them.

Before:  %a = f32[8] all-reduce(%x), replica_groups={{0},{1}}, to_apply=%add
         %b = f32[8] all-reduce(%y), replica_groups={{0,1}}, to_apply=%add
                                                             %y is the same on both
After:   readers of %a read %x
         %c = s32[] constant(2)
         %m = f32[8] multiply(%y, broadcast(convert(%c)))    readers of %b
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.device_offsets import groups_of
from hlo_passes.analysis.effects import channels_carry_meaning, has_control_edges
from hlo_passes.analysis.post_order import post_order
from hlo_passes.analysis.replication import Replication
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.async_form import is_done, is_start
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import array_shape
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.reductions import reduction_of, reduction_opcode
from hlo_passes.xla_release import XlaRelease

#: What reduces equal values to the same value.
_IDEMPOTENT: Final = frozenset({"minimum", "maximum", "or", "and"})


@dataclass(frozen=True, slots=True)
class AllReduceSimplifier(Pass):
    """Remove collectives over single devices, and all-reduces of equal values.

    If the result of an all-gather or reduce-scatter has the shape of its operand, the
    pass replaces the collective with the operand. It also does this inside an
    asynchronous pair. The pass does the same with an all-reduce whose groups have one
    member each, unless its channel id ties it to other programs.

    If an all-reduce over replicas reduces a value that is the same on all of them, the
    result is that value (minimum, maximum, `and`, `or`) or a multiple of it (add).
    Readers then read that result; the all-reduce stays, without readers. Parameters are
    the same on all replicas if `parameter_replication` says so.

    Ensures: after dead code is removed, a second run changes nothing.
    Complexity: linear in instructions, times the depth of loops.
    Source: openxla/xla `xla/service/all_reduce_simplifier.cc`.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "all-reduce-simplifier"
    needs_collectives: ClassVar[bool] = True
    reorders_sums: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """First what keeps its shape, then the all-reduces."""
        version = module.version
        release = context.release_for(module, self.xla)
        graph = build_call_graph(module)
        candidates = [
            (all_reduce, size)
            for computation in module.computations
            if not graph.is_async_body(computation)
            for all_reduce in post_order(computation)
            if all_reduce.opcode == "all-reduce"
            and (size := _members_of_each_group(all_reduce, module, report))
        ]
        # Only groups of several members need to know what is the same on all replicas.
        known = Replication(module) if any(n > 1 for _, n in candidates) else None
        _remove_what_keeps_its_shape(module, release, report)
        changed: dict[Computation, None] = {}
        for all_reduce, size in candidates:
            operand = all_reduce.operands[0]
            if size == 1:
                if _remove(all_reduce, release):
                    report.count("all-reduces-removed")
                else:
                    _keep(all_reduce, "has control edges", report)
            elif known is not None and known.is_same(operand):
                if _compute_alone(all_reduce, size, report):
                    changed[all_reduce.computation] = None
            else:
                _keep(all_reduce, "reduces values that may differ", report)
        for computation in changed:
            restore_text_order(computation)
        return module.version != version


def _keep(collective: Instruction, why: str, report: Report) -> None:
    report.remark(f"not simplified: %{collective.name} {why}")


def _members_of_each_group(
    all_reduce: Instruction, module: Module, report: Report
) -> int:
    """Devices that reduce together; 0 if the all-reduce has to stay."""
    if not all_reduce.shape.is_array:
        _keep(all_reduce, "returns a tuple", report)
        return 0
    replicas, partitions = module.replica_count, module.num_partitions
    sizes = {len(group) for group in groups_of(all_reduce)}
    if len(sizes) > 1:
        _keep(all_reduce, "has groups of different sizes", report)
        return 0
    if all_reduce.channel_id is None:
        return sizes.pop() if sizes else replicas
    if not sizes:
        size = replicas * partitions
    else:
        size = sizes.pop() * (1 if all_reduce.use_global_device_ids else partitions)
    if size > 1 or channels_carry_meaning(module):
        _keep(all_reduce, "has a channel id and several members", report)
        return 0
    return size


def _remove(collective: Instruction, release: XlaRelease) -> bool:
    """Let readers of a collective read its operand; False if it has control edges."""
    if has_control_edges(collective):
        return False
    if not release.removals_hand_on_attributes:
        collective.set_attribute("frontend_attributes", None)
    return collective.computation.replace(collective, collective.operands[0])


def _remove_what_keeps_its_shape(
    module: Module, release: XlaRelease, report: Report
) -> None:
    """All-gathers and reduce-scatters of one device each, asynchronous ones too."""
    graph = build_call_graph(module)
    for computation in module.computations:
        if graph.is_async_body(computation):
            root = computation.root
            if _keeps_its_shape(root):
                _remove_pair(root, graph.callers_of(computation), report)
            continue
        for collective in post_order(computation):
            if not _keeps_its_shape(collective):
                continue
            if _remove(collective, release):
                report.count("collectives-of-one-device-removed")
            else:
                _keep(collective, "has control edges", report)


def _keeps_its_shape(collective: Instruction) -> bool:
    if collective.opcode not in ("all-gather", "reduce-scatter"):
        return False
    return collective.shape.compatible(collective.operands[0].shape)


def _remove_pair(
    wrapped: Instruction, callers: tuple[Instruction, ...], report: Report
) -> None:
    """Let readers of an asynchronous collective's result read its operand."""
    # A done names the computation, too.
    starts = [caller for caller in callers if is_start(caller)]
    users = starts[0].users if len(starts) == 1 else ()
    if len(users) != 1 or not is_done(users[0]):
        _keep(wrapped, "is not one start and one done", report)
        return
    start, done, computation = starts[0], users[0], starts[0].computation
    if has_control_edges(start) or has_control_edges(done):
        _keep(wrapped, "has control edges at its start or done", report)
        return
    operand, body = start.operands[0], wrapped.computation
    computation.replace(done, operand)
    if not start.removed:
        computation.remove_with_dead_operands(start)
    body.module.remove_computation(body)
    report.count("collectives-of-one-device-removed")


def _compute_alone(all_reduce: Instruction, size: int, report: Report) -> bool:
    """Give readers what every device can compute from its own operand.

    Returns whether it could; the order of the text is not restored.
    """
    computation, operand = all_reduce.computation, all_reduce.operands[0]
    opcode, shape = reduction_opcode(reduction_of(all_reduce)), all_reduce.shape
    if opcode in _IDEMPOTENT:
        result = operand
    elif opcode == "add":
        # The operand times the number of devices, in its own type and shape.
        factor = computation.new("constant", array_shape("s32"), literal=str(size))
        if shape.element_type != "s32":
            scalar = array_shape(shape.element_type)
            factor = computation.new("convert", scalar, (factor,))
        if shape.dimensions:
            none = {"dimensions": "{}"}
            factor = computation.new("broadcast", shape, (factor,), none)
        result = computation.new("multiply", shape, (operand, factor))
    else:
        _keep(all_reduce, "has a reduction other than add, min, max, and, or", report)
        return False
    computation.replace_uses(all_reduce, result)
    report.count("all-reduces-of-equal-values-replaced")
    return True
