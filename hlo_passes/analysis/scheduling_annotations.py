"""Groups of instructions that the user wants scheduled together.

    frontend_attributes={_scheduling_group_id="3"}       group 3
    frontend_attributes={_scheduling_group_id="3:-1"}    group 3, iteration -1
    frontend_attributes={_scheduling_group_id=":1"}      no group, iteration 1
    frontend_attributes={_scheduling_group_id="noop"}    as if it were not there

Source: openxla/xla `xla/service/scheduling_annotations_util.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hlo_passes.errors import PassError
from hlo_passes.whole_numbers import integer_of

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

GROUP_ID: Final = "_scheduling_group_id"
NO_GROUP: Final = "noop"
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, order=True)
class Annotation:
    """The group, and in a pipelined loop the iteration; None where not given."""

    group: int | None = None
    iteration: int | None = None

    def to_text(self) -> str:
        """As the attribute spells it."""
        group = "" if self.group is None else str(self.group)
        return group if self.iteration is None else f"{group}:{self.iteration}"


def is_annotated(instruction: Instruction) -> bool:
    """Whether the attribute is there at all, 'noop' included."""
    written = instruction.attributes.get("frontend_attributes", "")
    return GROUP_ID in written and GROUP_ID in instruction.frontend_attributes


def annotation_of(instruction: Instruction) -> Annotation | None:
    """The annotation; None without one, and for 'noop'.

    Raises PassError E021 for text that is not an annotation.
    """
    if not is_annotated(instruction):
        return None
    text = instruction.frontend_attributes[GROUP_ID]
    if text == NO_GROUP:
        return None
    fields = text.split(":")
    numbers = [integer_of(field) for field in fields]
    unread = [field for field in fields if field and integer_of(field) is None]
    if (
        len(fields) > 2
        or unread
        or (numbers[0] or 0) < 0
        or any(abs(number or 0) > _LARGEST for number in numbers)
    ):
        raise PassError(
            f"%{instruction.name}: {GROUP_ID}={text!r} is not a scheduling annotation",
            code="E021",
            location=instruction.location,
            hint=f"GROUP, GROUP:ITERATION, :ITERATION or {NO_GROUP}, with GROUP >= 0",
        )
    return Annotation(numbers[0], numbers[1] if len(numbers) == 2 else None)


def set_annotation(instruction: Instruction, annotation: Annotation | None) -> None:
    """Replace the annotation; None removes it."""
    attributes = instruction.frontend_attributes
    instruction.frontend_attributes = (
        attributes.without(GROUP_ID)
        if annotation is None
        else attributes.with_value(GROUP_ID, annotation.to_text())
    )


def next_group(module: Module) -> int:
    """One more than the largest number of a scheduling group."""
    largest = 0
    for computation in module.computations:
        for instruction in computation.instructions:
            annotation = annotation_of(instruction)
            if annotation is not None and annotation.group is not None:
                largest = max(largest, annotation.group)
    return largest + 1
