"""The common part of the GPU's all-gather, all-reduce and reduce-scatter combiners.

    %a = f32[16] all-gather(%x), dimensions={0}    %b = bf16[4,8] all-gather(%y), ...{1}
        ->   %z = bf16[8,2] bitcast(%y)
             %c = (f32[16], bf16[8,4]) all-gather(%x, %z), dimensions={0}
             %g = f32[16] get-tuple-element(%c), index=0
             %h = bf16[4,8] bitcast(get-tuple-element(%c), index=1)

If a member has another dimension than the usual one, bitcasts turn the member. Bitcasts
move no data.

Source: openxla/xla `xla/backends/gpu/transforms/collectives/*_combiner.cc`,
`gpu_collective_combiner_utils.cc`, `xla/service/collective_combiner_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple

from hlo_passes.analysis.call_graph import computations_post_order
from hlo_passes.analysis.effects import has_control_edges
from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import collective_config, has_gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import parse_frontend_attributes
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape, tuple_shape
from hlo_passes.passes.combining.combining import (
    DEFAULT_THRESHOLD_BYTES,
    DEFAULT_THRESHOLD_COUNT,
    Anchor,
    Limits,
    combine_by_key,
)
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.elements import elements_for
from hlo_passes.passes.rewriting.eligibility import unknown_attribute
from hlo_passes.passes.rewriting.gpu_backend_config import (
    is_spmd_generated,
    set_collective_fields,
)
from hlo_passes.passes.rewriting.merging import merged_attributes
from hlo_passes.whole_numbers import integer_of
from hlo_passes.xla_release import xla_release

#: Frontend attributes of the module and of collectives that control the heuristic.
#: Source: openxla/xla `collective_combiner_annotator.cc`, `xla/side_effect_util.h`.
SUGGESTED_THRESHOLD: Final = "suggested_combiner_threshold"
SYNC_COLLECTIVE: Final = "sync_collective"
#: What a combined collective takes from its first member.
_FROM_FIRST: Final = (
    "channel_id", "replica_groups", "use_global_device_ids", "to_apply",
)  # fmt: skip


class CollectiveKey(NamedTuple):
    """Collectives with equal keys may be combined; the fields are named as in HLO."""

    dimensions: int | None
    channel_id: bool
    use_global_device_ids: bool
    element_type: str
    replica_groups: tuple[tuple[int, ...], ...]
    to_apply: str
    is_pipelined: bool
    sync_collective: bool
    combiner_key: str | None
    collective_group_key: str


@dataclass(frozen=True, slots=True)
class GpuCombiner(Pass):
    """Combine independent collectives of one kind; see the passes built on it.

    The pass skips collectives with control edges or unknown attributes. If a module
    suggests a threshold, the pass first combines the module's pipelined collectives,
    and those marked as synchronous, up to that threshold. The pass leaves the whole
    module alone if any collective of its kind constrains layouts.

    Attributes:
        threshold_bytes: the most bytes that the results of a combined collective may
            have; 0 or less turns the pass off. The default is XLA's, 30 MiB and 7
            bytes. The pass uses the threshold that a module suggests only if this
            option has its default.
        threshold_count: the most operands that a combined collective may have; 0 or
            less turns the pass off. The default is XLA's.
        xla: the release of XLA to follow; none: the release that the run follows.
    """

    opcode: ClassVar[str] = ""

    threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    threshold_count: int = DEFAULT_THRESHOLD_COUNT
    xla: str = ""

    def base_key(self, collective: Instruction) -> CollectiveKey | str:
        """The key without the GPU's fields, or why it cannot be combined."""
        raise NotImplementedError

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit each computation except fusion bodies."""
        if self.threshold_bytes <= 0 or self.threshold_count <= 0:
            report.remark(
                "not combined: a threshold of 0 or less switches the pass off"
            )
            return False
        if _is_layout_constrained(module, self.opcode):
            report.remark(
                f"not combined: the module has an {self.opcode} with constrain_layout"
            )
            return False
        changed = False
        settled = replace(self, xla=context.release_for(module, self.xla).name)
        suggested = _suggested_threshold(module)
        if suggested is not None and self.threshold_bytes == DEFAULT_THRESHOLD_BYTES:
            first = replace(settled, threshold_bytes=suggested)
            changed = suggested > 0 and first.run_once(module, report, special=True)
        return settled.run_once(module, report, special=False) or changed

    def run_once(self, module: Module, report: Report, *, special: bool) -> bool:
        """One sweep with `xla` set; `special`: pipelined and synchronous ones alone."""
        limits = Limits(self.threshold_bytes, self.threshold_count)
        changed = False
        for computation in computations_post_order(module, fusions=False):
            keys = self._keys(computation, report, special=special)
            changed |= combine_by_key(computation, keys, self.build, limits, report)
        return changed

    def _keys(
        self, computation: Computation, report: Report, *, special: bool
    ) -> dict[Instruction, Hashable]:
        keys: dict[Instruction, Hashable] = {}
        found = [i for i in computation.instructions if i.opcode == self.opcode]
        if found and any(i.opcode == "domain" for i in computation.instructions):
            report.remark(f"not combined: %{computation.name} has domains")
            return keys
        for collective in found:
            key = _reason_to_leave(collective) or self.base_key(collective)
            if isinstance(key, str):
                report.remark(f"not combined: %{collective.name} {key}")
                continue
            full = _with_gpu_fields(collective, key, special=special)
            if full is not None:
                keys[collective] = full
        return keys

    def build(self, batch: Sequence[Instruction], anchor: Anchor) -> list[Instruction]:
        """Make the combined collective, see `combine_by_key`."""
        first = batch[0]
        # Turn operands that are gathered along another dimension.
        dimension = _common_dimension(batch)
        turns = [_turn(member, dimension) for member in batch]
        operands = [member.operands[0] for member in batch]
        made: list[Instruction] = []
        for index, turn in enumerate(turns):
            if turn:
                shape = permuted(operands[index].shape, turn)
                operands[index] = _bitcast(operands[index], shape, anchor)
                made.append(operands[index])
        # Collect the attributes of the combined collective.
        attributes = {
            name: first.attributes[name]
            for name in _FROM_FIRST
            if name in first.attributes
        } | merged_attributes(batch)
        if dimension is not None:
            attributes["dimensions"] = f"{{{dimension}}}"
        sharding = self.tuple_sharding(batch)
        if sharding:
            attributes["sharding"] = sharding
        # Make it, and turn its elements back.
        combined = first.computation.new(
            self.opcode,
            tuple_shape(
                [
                    permuted(member.shape, turn) if turn else member.shape
                    for member, turn in zip(batch, turns, strict=True)
                ]
            ),
            operands,
            in_print_order(attributes, self.opcode),
            before=anchor.before,
            after=anchor.after,
        )
        self._write_config(combined, batch)
        if not made:
            return [combined, *elements_for(batch, combined, anchor)]
        return [*made, combined, *_turned_elements(batch, turns, combined, anchor)]

    def tuple_sharding(self, batch: Sequence[Instruction]) -> str:
        """One sharding per member; '' if no member has any."""
        texts = [member.attributes.get("sharding") for member in batch]
        if not any(texts):
            return ""
        return f"{{{', '.join(text or '{replicated}' for text in texts)}}}"

    def _write_config(
        self, combined: Instruction, batch: Sequence[Instruction]
    ) -> None:
        pipelined = any(collective_config(m).get("is_pipelined") for m in batch)
        release = xla_release(self.xla)
        if release.combiners_say_spmd:
            generated = any(is_spmd_generated(m) for m in batch)
            set_collective_fields(
                combined,
                release,
                is_pipelined=pipelined,
                is_spmd_generated=generated,
            )
        elif pipelined:
            set_collective_fields(combined, release, is_pipelined=True)
        else:
            set_collective_fields(combined, release)


def dimension_of(collective: Instruction) -> int | None:
    """The gather or scatter dimension; None if there is none."""
    return next(iter(collective.integers("dimensions")), None)


def permuted(shape: Shape, permutation: Sequence[int]) -> Shape:
    """Dimensions in another order, with the same bytes in memory."""
    result = shape.with_dimensions(tuple(shape.dimensions[k] for k in permutation))
    if shape.layout is None:
        return result
    place = {old: new for new, old in enumerate(permutation)}
    order = tuple(place[k] for k in shape.layout.minor_to_major)
    return result.with_layout(replace(shape.layout, minor_to_major=order))


def _common_dimension(batch: Sequence[Instruction]) -> int | None:
    """The most frequent dimension, the smaller of equals; 0 if some rank is too low."""
    dimensions = [dimension_of(member) for member in batch]
    known = [d for d in dimensions if d is not None]
    if not known:
        return None
    frequent = max(sorted(set(known)), key=known.count)
    return frequent if frequent < min(m.shape.rank for m in batch) else 0


def _turn(member: Instruction, dimension: int | None) -> list[int]:
    """The permutation that turns a member to the common dimension; [] if none."""
    own = dimension_of(member)
    if own is None or dimension is None or own == dimension:
        return []
    order = list(range(member.shape.rank))
    order[own], order[dimension] = order[dimension], order[own]
    return order


def _bitcast(operand: Instruction, shape: Shape, anchor: Anchor) -> Instruction:
    return operand.computation.new(
        "bitcast", shape, (operand,), before=anchor.before, after=anchor.after
    )


def _turned_elements(
    batch: Sequence[Instruction],
    turns: Sequence[Sequence[int]],
    combined: Instruction,
    anchor: Anchor,
) -> list[Instruction]:
    """Replace members by elements, turned back where their operands were turned."""
    computation = combined.computation
    made: list[Instruction] = []
    for index, (member, turn) in enumerate(zip(batch, turns, strict=True)):
        element = computation.new(
            "get-tuple-element",
            combined.shape.elements[index],
            (combined,),
            {"index": str(index)},
            before=anchor.before,
            after=anchor.after,
        )
        made.append(element)
        if turn:
            element = _bitcast(element, member.shape, anchor)
            made.append(element)
        computation.replace(member, element)
    return made


def _is_layout_constrained(module: Module, opcode: str) -> bool:
    return any(
        i.opcode in (opcode, f"{opcode}-start")
        and i.attributes.get("constrain_layout") == "true"
        for c in module.computations
        for i in c.instructions
    )


def _suggested_threshold(module: Module) -> int | None:
    text = module.attributes.get("frontend_attributes")
    if text is None:
        return None
    return integer_of(parse_frontend_attributes(text).get(SUGGESTED_THRESHOLD, ""))


def _reason_to_leave(collective: Instruction) -> str:
    if unknown := unknown_attribute(collective):
        return f"has the unknown attribute {unknown}"
    if has_control_edges(collective):
        return "has control edges"
    if not has_gpu_config(collective):
        return "has a backend config that is not JSON"
    return ""


def _with_gpu_fields(
    collective: Instruction, key: CollectiveKey, *, special: bool
) -> CollectiveKey | None:
    """The key with the GPU's fields; None if the sweep does not include it."""
    frontend = (
        collective.frontend_attributes
        if "frontend_attributes" in collective.attributes
        else {}
    )
    pipelined = bool(collective_config(collective).get("is_pipelined"))
    sync = special and not pipelined and frontend.get(SYNC_COLLECTIVE) == "true"
    if special and not pipelined and not sync:
        return None
    return key._replace(
        is_pipelined=pipelined,
        sync_collective=sync,
        combiner_key=frontend.get("combiner_key"),
        collective_group_key=frontend.get("collective_group_key", ""),
    )


def collective_key(
    collective: Instruction,
    *,
    dimensions: int | None = None,
    element_type: str = "",
    to_apply: str = "",
) -> CollectiveKey:
    """The fields that all three kinds have in common."""
    groups = collective.replica_groups
    return CollectiveKey(
        dimensions,
        "channel_id" in collective.attributes,
        collective.use_global_device_ids,
        element_type,
        () if groups is None else groups.groups,
        to_apply,
        is_pipelined=False,
        sync_collective=False,
        combiner_key=None,
        collective_group_key="",
    )


def simple_reduction(collective: Instruction) -> Instruction | None:
    """The root of a reduction with two parameters and nothing else; otherwise None."""
    (reduction,) = collective.called_computations
    if len(reduction.instructions) != 3 or len(reduction.parameters) != 2:
        return None
    return reduction.root
