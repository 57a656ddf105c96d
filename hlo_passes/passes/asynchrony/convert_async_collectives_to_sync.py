"""Makes asynchronous collectives synchronous again if no work runs beside them.

    Before:  %s = (f32[8], f32[16]) all-gather-start(%x), dimensions={0}
             %d = f32[16] all-gather-done(%s)
    After:   %d = f32[16] all-gather(%x), dimensions={0},
                    frontend_attributes={async_collective_name="s"}

The GPU's pass keeps both halves. It marks the start and puts it right before the done:

             %s = ... all-gather-start(%x), backend_config={..."is_sync":true...}
             %d = ... all-gather-done(%s)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.channels import suits_all_reduce
from hlo_passes.ir.async_form import half, is_collective, work_of
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import has_gpu_config, is_marked_sync
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import FrontendAttributes
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.gpu_backend_config import set_collective_fields

#: Opcodes that the GPU's pass does not count as work beside a collective.
_IDLE_ON_GPU: Final = frozenset(
    ["parameter", "constant", "bitcast", "get-tuple-element"]
)
#: Attributes of a start that its synchronous form does not have.
_OF_START: Final = (
    "async_execution_thread", "output_to_operand_aliasing", "calls", "origin",
    "frontend_attributes", "metadata", "backend_config", "statistics",
)  # fmt: skip

Pair = tuple[Instruction, Instruction]


@dataclass(frozen=True, slots=True)
class ConvertAsyncCollectivesToSync(Pass):
    """Replace a start and its done with the plain collective if no work lies between.

    Starts and dones of other collectives do not count as work; every other instruction
    does. The plain collective takes the done's place. It keeps the metadata, control
    predecessors and backend config of the start, and the frontend attributes and
    control successors of the done. The pass leaves modules without a schedule alone.

    Requires: a scheduled module; otherwise nothing happens.
    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/hlo/transforms/collectives/convert_async_collectives_to_sync.cc`.
    """

    name: ClassVar[str] = "convert-async-collectives-to-sync"
    needs_collectives: ClassVar[bool] = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each scheduled computation."""
        version = module.version
        for computation in _scheduled_computations(module, report):
            for start, done in unoverlapped_pairs(computation, frozenset(), report):
                if has_sync_form(start, report):
                    named = done.frontend_attributes.with_value(
                        "async_collective_name", start.name
                    )
                    replace_by_sync(start, done, named)
                    report.count("pairs-converted")
        return module.version != version


@dataclass(frozen=True, slots=True)
class GpuConvertAsyncCollectivesToSync(Pass):
    """Mark a start with `is_sync` if no work lies between the start and its done.

    Starts and dones of other collectives, parameters, constants, bitcasts and
    get-tuple-elements do not count as work. A marked start moves right before its done.

    From 0.11 on, XLA then also puts the plain collective in the done's place, and marks
    the plain collective too. XLA does the same with a start that was already marked (a
    collective that must not be asynchronous), no matter what work lies between the
    start and its done.

    Requires: a scheduled module; otherwise nothing happens.
    Ensures: a second run changes nothing.
    Complexity: linear in instructions.
    Source: openxla/xla
    `xla/backends/gpu/transforms/collectives/convert_async_collectives_to_sync.cc`; the
    behavior from 0.11 on is what the compilers of jax 0.11 and 0.12 show.

    Attributes:
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    name: ClassVar[str] = "gpu-convert-async-collectives-to-sync"
    needs_collectives: ClassVar[bool] = True

    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each scheduled computation."""
        release = context.release_for(module, self.xla)
        version = module.version
        for computation in _scheduled_computations(module, report):
            replaces = release.sync_pairs_are_replaced
            moved: dict[Instruction, Instruction] = {}
            for start, done in unoverlapped_pairs(
                computation, _IDLE_ON_GPU, report, marked_too=replaces
            ):
                if not has_gpu_config(start):
                    report.remark(
                        f"not marked: the backend config of %{start.name} is not JSON"
                    )
                    continue
                if replaces and not has_sync_form(start, report):
                    continue
                set_collective_fields(start, release, is_sync=True)
                report.count("pairs-marked")
                if replaces:
                    replace_by_sync(start, done, done.frontend_attributes)
                else:
                    moved[done] = start
            if moved:
                _put_starts_before_dones(computation, moved)
        return module.version != version


def _scheduled_computations(module: Module, report: Report) -> tuple[Computation, ...]:
    if not module.is_scheduled:
        report.remark("not converted: the module is not scheduled")
        return ()
    return computations_post_order(module, fusions=False)


def unoverlapped_pairs(
    computation: Computation,
    idle: frozenset[str],
    report: Report,
    *,
    marked_too: bool = False,
) -> list[Pair]:
    """Pairs of collectives with no work between the halves, in order of their dones.

    Work is every instruction that is neither the start nor the done of a collective and
    whose opcode is not in `idle`. With `marked_too`, no work counts between a start
    that is marked `is_sync` and its done.
    """
    marked: dict[Instruction, None] = {}
    flying: dict[Instruction, None] = {}
    overlapped: dict[Instruction, Instruction] = {}
    pairs: list[Pair] = []
    for instruction in computation.instructions:
        role = half(instruction)
        concerned = role in ("start", "done") and is_collective(instruction)
        if concerned and role == "start":
            is_marked = marked_too and is_marked_sync(instruction)
            (marked if is_marked else flying)[instruction] = None
        elif concerned:
            start = instruction.operands[0]
            if start in flying or start in marked:
                flying.pop(start, None)
                marked.pop(start, None)
                pairs.append((start, instruction))
            elif start in overlapped:
                report.remark(
                    f"not converted: %{overlapped[start].name} "
                    f"is between %{start.name} and %{instruction.name}"
                )
        elif flying and instruction.opcode not in idle:
            overlapped |= dict.fromkeys(flying, instruction)
            flying.clear()
    return pairs


def has_sync_form(
    start: Instruction, report: Report, *, besides: Collection[Instruction] = ()
) -> bool:
    """Whether the plain collective can replace a start; if not, a remark says why.

    Readers of the start that are in `besides` do not count.
    """
    unknown = unknown_attribute(start)
    if unknown:
        report.remark(
            f"not converted: %{start.name} has the unknown attribute {unknown}"
        )
        return False
    if start.opcode == "all-reduce-start" and not suits_all_reduce(start.channel_id):
        # XLA's verifier refuses channel 0 on an all-reduce but accepts it on a start.
        report.remark(f"not converted: %{start.name} has channel {start.channel_id}")
        return False
    if sum(user not in besides for user in start.users) != 1:
        report.remark(f"not converted: %{start.name} has users other than its done")
        return False
    if start.opcode == "async-start" and not _is_plain_wrapper(start):
        report.remark(f"not converted: %{start.name} wraps more than one instruction")
        return False
    return True


def _is_plain_wrapper(start: Instruction) -> bool:
    """Whether the wrapped computation has parameters, in order, and one root."""
    (body,) = start.called_computations
    return (
        all(i.opcode == "parameter" or i.is_root for i in body.instructions)
        and body.root.operands == body.parameters
    )


def replace_by_sync(
    start: Instruction, done: Instruction, frontend: FrontendAttributes
) -> Instruction:
    """Put the plain collective in the done's place and remove the pair.

    Control edges from the start to its successors, and from the done's predecessors to
    the done, are removed too.
    """
    computation = done.computation
    opcode = work_of(start)
    if start.opcode == "async-start":
        (body,) = start.called_computations
        described = body.root
    else:
        described = start
    attributes = {
        name: text
        for name, text in described.attributes.items()
        if name not in _OF_START and (described is not start or name != "sharding")
    }
    for name in ("metadata", "backend_config"):
        if name in start.attributes:
            attributes[name] = start.attributes[name]
    if frontend:
        attributes["frontend_attributes"] = frontend.to_text()
    plain = computation.new(
        opcode,
        done.shape,
        start.operands,
        in_print_order(attributes, opcode),
        before=done,
    )
    computation.replace_uses(done, plain)
    for predecessor in start.control_predecessors:
        computation.add_control_edge(predecessor, plain)
    for successor in done.control_successors:
        computation.add_control_edge(plain, successor)
    computation.remove(done)
    computation.remove(start)
    return plain


def _put_starts_before_dones(
    computation: Computation, moved: dict[Instruction, Instruction]
) -> None:
    """`moved`: start by done. Computations on one line keep their text."""
    starts = set(moved.values())
    order: list[Instruction] = []
    for instruction in computation.instructions:
        if instruction in moved:
            order += (moved[instruction], instruction)
        elif instruction not in starts:
            order.append(instruction)
    computation.set_order(order)
