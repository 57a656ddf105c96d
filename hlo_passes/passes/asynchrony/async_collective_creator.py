"""Splits synchronous collectives into two halves, so that work can run between them.

    Before:  %r = f32[8] all-reduce(%x), to_apply=%add
             %s = f32[4] reduce-scatter(%x), dimensions={0}, to_apply=%add
    After:   %a = f32[8] all-reduce-start(%x), to_apply=%add
             %r = f32[8] all-reduce-done(%a)
             %b = ((f32[8]), f32[4]) async-start(%x), calls=%async_computation
             %s = f32[4] async-done(%b)

All-reduce, all-gather and collective-permute have start opcodes of their own. The pass
wraps the other collectives in a computation. From jax 0.11 on, XLA wraps all of them,
and also fusions around a collective:

    Before:  %f = f32[8] fusion(%x), kind=kCustom, calls=%fused_all_reduce
    After:   %a = ((f32[8]), f32[8]) async-start(%x), calls=%async_computation
             %f = f32[8] async-done(%a)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.call_graph import build_call_graph
from hlo_passes.analysis.frontend_flags import is_flag_set
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.gpu_config import is_collective_fusion
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import ROWS, SYNC_COLLECTIVES
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.asynchrony.async_wrapping import (
    COMPUTE_TYPE,
    DESCRIPTION,
    async_pair,
    replace_by_pair,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.xla_release import XlaRelease

#: Attributes that both halves of a native pair copy from the collective.
_NATIVE_DESCRIPTION = (*DESCRIPTION, "statistics")
#: Attributes that belong to an instruction rather than to its operation.
_OF_INSTRUCTION = (
    *_NATIVE_DESCRIPTION, "sharding", "frontend_attributes", "origin",
)  # fmt: skip
#: Frontend flag of in-place permutes whose reads and writes do not touch.
_DISJOINT_REGIONS = "disjoint_read_write_regions"


@dataclass(frozen=True, slots=True)
class AsyncCollectiveCreator(Pass):
    """Split each synchronous collective into a start and a done, next to each other.

    The done directly follows its start; a scheduler can later move work between the
    two. Control predecessors of the collective move to the start, and control
    successors move to the done. The pass skips collectives that are already wrapped in
    an asynchronous computation.

    XLA wraps a copy of a fusion and leaves the fusion's own body in the module without
    a caller. With `xla_quirks`, which is the default, this pass does the same.

    Ensures: a second run changes nothing, except in the bodies left in the module.
    Complexity: linear in instructions.
    Source: openxla/xla `xla/hlo/transforms/collectives/async_collective_creator.cc`;
    the defaults are those of XLA's GPU compiler.

    Attributes:
        convert_all_reduce: convert all-reduces; the next six options do the same for
            other kinds.
        all_reduce_min_threshold_in_bytes: all-reduces with smaller results stay
            synchronous; 0 or less: none do. The next two options do the same for their
            kinds.
        use_generic_async_start_done: wrap collectives of every kind in a computation.
        xla: the release of XLA to follow; none: the release that the run follows. From
            0.11 on, the pass wraps every kind, and also fusions of kind
            `__triton_collective`.
    """

    name: ClassVar[str] = "async-collective-creator"
    needs_collectives: ClassVar[bool] = True

    convert_all_reduce: bool = True
    convert_all_gather: bool = True
    convert_collective_broadcast: bool = True
    convert_collective_permute: bool = True
    convert_all_to_all: bool = True
    convert_reduce_scatter: bool = True
    convert_ragged_all_to_all: bool = True
    all_reduce_min_threshold_in_bytes: int = 0
    all_gather_min_threshold_in_bytes: int = 0
    reduce_scatter_min_threshold_in_bytes: int = 0
    use_generic_async_start_done: bool = False
    xla: str = ""

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation except fusion and async bodies."""
        version = module.version
        release = context.release_for(module, self.xla)
        graph = build_call_graph(module)
        for computation in graph.post_order:
            if graph.is_fusion_body(computation) or graph.is_async_body(computation):
                continue
            for instruction in computation.instructions:
                if self._wanted(instruction, release, report):
                    self._convert(instruction, release, context)
                    report.count(f"{instruction.opcode}-converted")
        return module.version != version

    def _wanted(
        self, collective: Instruction, release: XlaRelease, report: Report
    ) -> bool:
        if collective.opcode not in SYNC_COLLECTIVES and not (
            release.starts_collective_fusions and is_collective_fusion(collective)
        ):
            return False
        kind = collective.opcode.replace("-", "_")
        if not getattr(self, f"convert_{kind}", True):  # fusions have no option
            report.remark(
                f"not converted: %{collective.name}, "
                f"convert-{collective.opcode} is false"
            )
            return False
        minimum = getattr(self, f"{kind}_min_threshold_in_bytes", 0)
        if collective.shape.byte_size < minimum:
            report.remark(
                f"not converted: %{collective.name} has "
                f"{collective.shape.byte_size} bytes, but the minimum is {minimum}"
            )
            return False
        if unknown := unknown_attribute(collective):
            report.remark(
                f"not converted: %{collective.name} has the unknown attribute {unknown}"
            )
            return False
        return True

    def _convert(
        self, collective: Instruction, release: XlaRelease, context: PassContext
    ) -> None:
        generic = self.use_generic_async_start_done or release.wraps_every_collective
        if f"{collective.opcode}-start" in ROWS and not generic:
            start, done = _native_pair(collective)
        else:
            start, done = async_pair(
                collective,
                described=(*DESCRIPTION, "frontend_attributes"),
                aliasing=_aliasing(collective),
                copying=context.xla_quirks,
            )
        replace_by_pair(collective, start, done)


def _texts(collective: Instruction, names: tuple[str, ...]) -> dict[str, str]:
    return {n: collective.attributes[n] for n in names if n in collective.attributes}


def _native_pair(collective: Instruction) -> tuple[Instruction, Instruction]:
    attributes = {
        name: text
        for name, text in collective.attributes.items()
        if name not in _OF_INSTRUCTION
    }
    opcode = f"{collective.opcode}-start"
    described = _texts(collective, _NATIVE_DESCRIPTION)
    frontend = collective.frontend_attributes.without(COMPUTE_TYPE)
    if frontend:
        described["frontend_attributes"] = frontend.to_text()
    attributes |= described
    if opcode == "all-reduce-start":  # only its shape still fits the sharding
        attributes |= _texts(collective, ("sharding",))
    if "slice_sizes" in attributes and is_flag_set(collective, _DISJOINT_REGIONS):
        frontend = frontend.with_value(f"xla_{_DISJOINT_REGIONS}", "true")
        attributes["frontend_attributes"] = frontend.to_text()
    computation = collective.computation
    start = computation.new(
        opcode,
        _native_start_shape(collective),
        collective.operands,
        in_print_order(attributes, opcode),
        before=collective,
    )
    done = computation.new(
        f"{collective.opcode}-done",
        collective.shape,
        (start,),
        in_print_order(described, f"{collective.opcode}-done"),
        before=collective,
    )
    return start, done


def _native_start_shape(collective: Instruction) -> Shape:
    """The shape of an all-reduce is its result; of others, (operands, results)."""
    if collective.opcode == "all-reduce":
        return collective.shape
    if "slice_sizes" in collective.attributes:  # in place: input and output come first
        return tuple_shape([o.shape for o in collective.operands[:2]])
    operands = [o.shape for o in collective.operands]
    given = operands[0] if len(operands) == 1 else tuple_shape(operands)
    result = given if collective.opcode == "collective-permute" else collective.shape
    return tuple_shape([given, result])


def _aliasing(collective: Instruction) -> str:
    """The results that are written over operands."""
    if collective.opcode == "all-reduce":
        if collective.shape.is_tuple:
            pairs = [
                f"{{1,{k}}}: ({k}, {{}})" for k in range(len(collective.shape.elements))
            ]
            return f"{{{', '.join(pairs)}}}"
        return "{{1}: (0, {})}"
    if "slice_sizes" in collective.attributes:
        return "{{1}: (1, {})}"
    return ""
