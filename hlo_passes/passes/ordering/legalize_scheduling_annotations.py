"""Brings scheduling groups into the form that the latency-hiding scheduler accepts.

Before:  %s = ... all-gather-start(%x), ...{_scheduling_group_id="1"}
         %d = ... all-gather-done(%s), ...{_scheduling_group_id="1"}
         %g = ... custom-call(%y), custom_call_target="__cublas$gemm", ...{...="1"}
         %a = f32[8] add(%y, %y), frontend_attributes={_scheduling_group_id="1"}
After:   the same three; %a = f32[8] add(%y, %y)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from hlo_passes.analysis.call_graph import CallGraph, build_call_graph
from hlo_passes.analysis.scheduling_annotations import (
    GROUP_ID,
    NO_GROUP,
    Annotation,
    annotation_of,
    is_annotated,
    set_annotation,
)
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import start_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.gpu_config import fusion_kind
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.ordering.annotation_groups import (
    AnnotationGroups,
    check_cycles,
    check_dones,
    fill_simple_gaps,
    gaps,
    propagate,
    refuse,
)

_GEMM_CALL: Final = '"__cublas$gemm"'
_GEMM_FUSION: Final = "__triton_gemm"
_GENERIC: Final = ("async-start", "async-done")
#: Collectives that count as asynchronous before they are converted.
_SYNCHRONOUS: Final = frozenset(
    "all-gather all-reduce reduce-scatter ragged-all-to-all collective-permute".split()
)

Kept = Literal["gemms", "all", "none"]


@dataclass(frozen=True, slots=True)
class LegalizeSchedulingAnnotations(Pass):
    """Keep `_scheduling_group_id` only where the scheduler can use it.

    Annotations stay on starts and dones (except generic ones that only copy), on sends,
    recvs and their dones, and on the synchronous operations that `keep-sync-annotation`
    names. The pass removes all other annotations, and those that read `noop`. A kept
    fusion takes over the annotation inside it. The pass drops groups in which nothing
    is asynchronous. If a single path leads from one member of a group to another, the
    instructions on it join the group.

    The pass reports an error (E022) for a done whose start is annotated differently,
    for a fusion with two annotations inside, and for gaps. A gap is a path that leaves
    a group and enters it again.

    Ensures: a second run changes nothing, except in fusions that the first run
        annotated.
    Complexity: linear in instructions for every annotation.
    Source: openxla/xla `xla/service/legalize_scheduling_annotations.cc`; the defaults
    are those of its GPU compiler.

    Attributes:
        keep_sync_annotation: which synchronous operations keep their annotation:
            `gemms`: cuBLAS calls and Triton GEMM fusions; `all`; or `none`.
        keep_trivial_sync_annotation: the same choice for members that are alone in
            their computation.
        propagate_annotation: let everything between the members of a group join it,
            instead of reporting an error.
        check_start_done_annotation_consistency: refuse a done whose start is not in its
            group.
        remove_loop_iteration_annotation_only: drop the iteration from annotations, and
            do nothing else.
        run_verification: first refuse groups that wait for each other.
        keep_start_annotation: if false, remove annotations from `async-start`.
        deannotate_unsupported_groups: remove the annotations of groups with gaps,
            instead of reporting an error.
        check_gap_only: look for gaps, but change nothing.
        check_non_mitigatable_gap_only: with `propagate-annotation`, only check whether
            the pass could propagate.
        skip_opt_barriers: look for gaps element by element through tuples and
            optimization barriers.
    """

    name: ClassVar[str] = "legalize-scheduling-annotations"

    keep_sync_annotation: Kept = "gemms"
    keep_trivial_sync_annotation: Kept = "all"
    propagate_annotation: bool = False
    check_start_done_annotation_consistency: bool = True
    remove_loop_iteration_annotation_only: bool = False
    run_verification: bool = False
    keep_start_annotation: bool = True
    deannotate_unsupported_groups: bool = False
    check_gap_only: bool = False
    check_non_mitigatable_gap_only: bool = False
    skip_opt_barriers: bool = False

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all computations together, except fusion bodies."""
        before = _annotated(module)
        self._run(module, report)
        # What is removed and filled in again has not changed.
        return _annotated(module) != before

    def _run(self, module: Module, report: Report) -> None:
        graph = build_call_graph(module)
        computations = tuple(c for c in graph.post_order if not graph.is_fusion_body(c))
        if self.check_gap_only:
            self._treat_gaps(AnnotationGroups.of(computations), report)
            return
        if self.run_verification:
            self._verify(computations)
        if self.remove_loop_iteration_annotation_only:
            _drop_iterations(computations, report)
            return
        self._drop_unusable(computations, report)
        groups = AnnotationGroups.of(computations)
        self._lift_from_fusions(graph, groups, report)
        if groups.members:
            self._legalize(groups, report)

    def _legalize(self, groups: AnnotationGroups, report: Report) -> None:
        if self.check_start_done_annotation_consistency:
            check_dones(groups, _is_checked_done)
        self._drop_trivial(groups, report)
        filled = fill_simple_gaps(groups)
        if filled:
            report.count("annotations-filled", filled)
        if self.propagate_annotation:
            joined = propagate(groups, dry_run=self.check_non_mitigatable_gap_only)
            if joined and not self.check_non_mitigatable_gap_only:
                report.count("annotations-propagated", joined)
        else:
            self._treat_gaps(groups, report)

    def _verify(self, computations: tuple[Computation, ...]) -> None:
        """Raise E022 for groups that wait for each other."""
        groups = AnnotationGroups()
        for computation in computations:
            for instruction in computation.instructions:
                annotation = annotation_of(instruction)
                if annotation is not None and (
                    _is_asynchronous(instruction, starts=self.keep_start_annotation)
                    or instruction.opcode in _SYNCHRONOUS
                    or _is_kept(instruction, self.keep_sync_annotation)
                ):
                    groups.add(instruction, annotation)
        for computation in computations:
            check_cycles(computation, groups)

    def _drop_unusable(
        self, computations: tuple[Computation, ...], report: Report
    ) -> None:
        for computation in computations:
            for instruction in computation.instructions:
                if not is_annotated(instruction):
                    continue
                text = instruction.frontend_attributes[GROUP_ID]
                if text != NO_GROUP and (
                    _is_asynchronous(instruction, starts=self.keep_start_annotation)
                    or _is_kept(instruction, self.keep_sync_annotation)
                ):
                    continue
                set_annotation(instruction, None)
                report.count("annotations-dropped")
                if text != NO_GROUP:
                    report.remark(
                        f"not kept: group {text} of %{instruction.name}, "
                        f"{instruction.opcode} has no place in a group"
                    )

    def _lift_from_fusions(
        self, graph: CallGraph, groups: AnnotationGroups, report: Report
    ) -> None:
        """Annotate kept fusions like their bodies; the groups do not include that."""
        for body in graph.post_order:
            for fusion in graph.callers_of(body):
                if (
                    fusion.opcode != "fusion"
                    or fusion in groups.annotations
                    or not _is_kept(fusion, self.keep_sync_annotation)
                ):
                    continue
                inside = _annotation_inside(fusion, body)
                if inside is not None:
                    set_annotation(fusion, inside)
                    report.count("annotations-lifted")

    def _drop_trivial(self, groups: AnnotationGroups, report: Report) -> None:
        for group, of_group in groups.by_group().items():
            gone = {
                listed[0]
                for listed in of_group.values()
                if len(listed) == 1
                and not _is_kept(listed[0], self.keep_trivial_sync_annotation)
            }
            rest = [i for m in of_group.values() for i in m if i not in gone]
            if not any(
                _is_asynchronous(i, starts=True) or i.opcode in _SYNCHRONOUS
                for i in rest
            ):
                if rest:
                    report.remark(
                        f"not kept: group {group}, nothing in it is asynchronous"
                    )
                gone.update(rest)
            if gone:
                groups.drop(gone)
                report.count("annotations-dropped", len(gone))

    def _treat_gaps(self, groups: AnnotationGroups, report: Report) -> None:
        bad: dict[Annotation, None] = {}
        for annotation, entered in gaps(
            groups, skip_opt_barriers=self.skip_opt_barriers
        ):
            if not self.deannotate_unsupported_groups:
                refuse(
                    f"a path leaves scheduling group {annotation.to_text()} and enters "
                    f"it again at %{entered.name}",
                    entered,
                    "annotate what is between, or propagate-annotation=true, or "
                    "deannotate-unsupported-groups=true",
                )
            bad[annotation] = None
        for annotation in bad:
            members = [i for m in groups.members[annotation].values() for i in m]
            report.remark(
                f"not kept: group {annotation.to_text()}, paths leave it and enter it "
                "again"
            )
            for member in members:
                set_annotation(member, None)
            report.count("annotations-dropped", len(members))


def _annotated(module: Module) -> dict[Instruction, list[tuple[str, str]]]:
    """Attributes of all annotated instructions, as printed."""
    return {
        instruction: list(instruction.attributes.items())
        for computation in module.computations
        for instruction in computation.instructions
        if is_annotated(instruction)
    }


def _drop_iterations(computations: tuple[Computation, ...], report: Report) -> None:
    for computation in computations:
        for instruction in computation.instructions:
            annotation = annotation_of(instruction)
            if annotation is None or annotation.iteration is None:
                continue
            bare = None if annotation.group is None else Annotation(annotation.group)
            set_annotation(instruction, bare)
            report.count("iterations-dropped")


def _annotation_inside(fusion: Instruction, body: Computation) -> Annotation | None:
    """The one annotation in a fusion's body; E022 if there are two."""
    seen: Annotation | None = None
    for instruction in body.instructions:
        annotation = annotation_of(instruction)
        if annotation is None:
            continue
        if seen is not None and annotation != seen:
            refuse(
                f"fusion %{fusion.name} holds scheduling groups {seen.to_text()} and "
                f"{annotation.to_text()}",
                fusion,
            )
        seen = annotation
    return seen


def _is_checked_done(instruction: Instruction) -> bool:
    """Whether a done's start must be in the same group: not for send and recv."""
    row = opcodes.facts(instruction.opcode)
    return (
        row.half == "done" and row.spelling != "transfer" and not _is_copy(instruction)
    )


def _is_copy(instruction: Instruction) -> bool:
    return instruction.opcode in ("copy-start", "copy-done")


def _is_asynchronous(instruction: Instruction, *, starts: bool) -> bool:
    """Whether it is half of something asynchronous that may be in a group."""
    row = opcodes.facts(instruction.opcode)
    if row.half not in ("start", "done"):
        return False
    if row.spelling != "generic":
        return not _is_copy(instruction)
    if row.half == "start" and not starts:
        return False
    return not _only_copies(instruction)


def _only_copies(half: Instruction) -> bool:
    """Whether a generic pair only copies, at any depth of wrapping."""
    stack = [half]
    while stack:
        current = start_of(stack.pop())
        callees = current.called_computations
        if not callees:
            return False  # sugar: not a copy
        body = callees[0]
        inner = body.root.called_computations
        for instruction in (inner[0] if inner else body).instructions:
            if instruction.opcode in _GENERIC:
                stack.append(instruction)
            elif instruction.opcode not in ("copy", "parameter"):
                return False
    return True


def _is_kept(instruction: Instruction, kept: Kept) -> bool:
    if kept != "gemms":
        return kept == "all"
    if instruction.opcode == "custom-call":
        return instruction.attributes.get("custom_call_target") == _GEMM_CALL
    return fusion_kind(instruction) == _GEMM_FUSION
