"""The header: attributes, entry layout, aliasing, donors; and the module as a whole.

    V105 unknown header attribute      V701 entry_computation_layout
    V106 value cannot be read          V702 input_output_alias
    V009 entry or computations         V703 buffer_donor
    V309 constrain_layout mixed        V509 host transfers on one channel differ

Source: openxla/xla `hlo_verifier.cc`, `xla/hlo/ir/hlo_input_output_alias_config.cc`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hlo_passes.errors import HloError
from hlo_passes.ir.attribute_values import HEADER_ORDER, parse_header_value
from hlo_passes.ir.header_values import BufferDonors, EntryLayout, InputOutputAlias
from hlo_passes.ir.metadata import parse_frontend_attributes
from hlo_passes.ir.shape_inference import Signature, compatible
from hlo_passes.ir.shapes import Shape
from hlo_passes.verify.finding import Report

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

_LEAST_COUNT: Final = 1


def check_header(module: Module, entry: Signature | None, report: Report) -> None:
    """Report what is wrong with the header; `entry` is the entry's signature."""
    unreadable: set[str] = set()
    values: dict[str, Any] = {}
    for name, text in module.attributes.items():
        if name not in HEADER_ORDER:
            report.add(
                None,
                "V105",
                f"XLA does not know a header attribute {name}",
                severity="unknown",
            )
            continue
        try:
            value = values[name] = parse_header_value(name, text)
        except HloError as problem:
            report.add(None, "V106", f"{name}: {problem.message}", problem.hint)
            unreadable.add(name)
            continue
        if name in ("replica_count", "num_partitions") and value < _LEAST_COUNT:
            report.add(None, "V106", f"{name} must be at least 1, but it is {value}")
    if entry is None:
        report.add(None, "V009", "the module has no entry computation")
        return
    if "entry_computation_layout" not in unreadable:
        _check_layout(values.get("entry_computation_layout"), entry, report)
    if "input_output_alias" not in unreadable:
        aliased = _check_aliases(values.get("input_output_alias"), entry, report)
        if "buffer_donor" not in unreadable:
            _check_donors(values.get("buffer_donor"), entry, aliased, report)


def _check_layout(layout: EntryLayout | None, entry: Signature, report: Report) -> None:
    """Check that the shapes of entry_computation_layout are the entry's."""
    if layout is None:
        return
    if not compatible(layout.result, entry.result):
        report.add(
            None, "V701",
            f"entry_computation_layout returns {layout.result}, the entry "
            f"{entry.result}",
        )  # fmt: skip
    if len(layout.parameters) != len(entry.parameters):
        report.add(
            None, "V701",
            f"entry_computation_layout has {len(layout.parameters)} parameters, the "
            f"entry {len(entry.parameters)}",
        )  # fmt: skip
        return
    for k, (mine, theirs) in enumerate(
        zip(layout.parameters, entry.parameters, strict=True)
    ):
        if not compatible(mine, theirs):
            report.add(
                None, "V701",
                f"entry_computation_layout has {mine} for parameter {k}, which is "
                f"{theirs}",
            )  # fmt: skip


def _part(shapes: Iterable[Shape], number: int, path: tuple[int, ...]) -> Shape | None:
    """A part of one of the shapes; None if there is no such part."""
    listed = tuple(shapes)
    if not 0 <= number < len(listed):
        return None
    try:
        return listed[number].at(path)
    except IndexError:
        return None


def _check_aliases(
    given: InputOutputAlias | None, entry: Signature, report: Report
) -> set[tuple[int, tuple[int, ...]]]:
    """Check input_output_alias; returns the parameter parts that it names."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for alias in () if given is None else given.aliases:
        spelled = alias.to_text()
        theirs = _part(entry.parameters, alias.parameter, alias.path)
        mine = _part((entry.result,), 0, alias.output)
        if theirs is None or mine is None:
            what = "parameter" if theirs is None else "output"
            report.add(None, "V702", f"alias {spelled}: no such {what}")
            continue
        if not mine.is_array or not theirs.is_array:
            report.add(None, "V702", f"alias {spelled}: only arrays can be aliased")
        elif alias.must and not compatible(mine, theirs):
            report.add(
                None, "V702", f"alias {spelled}: output {mine}, parameter {theirs}"
            )
        key = (alias.parameter, alias.path)
        if key in seen:
            report.add(None, "V702", f"alias {spelled}: the parameter is aliased twice")
        seen.add(key)
    return seen


def _check_donors(
    given: BufferDonors | None,
    entry: Signature,
    aliased: set[tuple[int, tuple[int, ...]]],
    report: Report,
) -> None:
    for number, path in () if given is None else given.donors:
        shape = _part(entry.parameters, number, path)
        if shape is None:
            report.add(None, "V703", f"donor ({number}, {path}): no such parameter")
        elif not shape.is_array:
            report.add(None, "V703", f"donor ({number}, {path}): not an array")
        elif (number, path) in aliased:
            report.add(None, "V703", f"donor ({number}, {path}) is aliased already")


def check_mixed_layout(reduces: list[Instruction]) -> list[Instruction]:
    """All-reduces that differ from the first in constrain_layout."""
    constrained = [i.attributes.get("constrain_layout") == "true" for i in reduces]
    return [
        i
        for i, flag in zip(reduces, constrained, strict=True)
        if flag != constrained[0]
    ]


def check_host_transfers(transfers: list[Instruction]) -> list[Instruction]:
    """Host sends and receives that differ from the first one on their channel."""
    first: dict[str, tuple[object, ...]] = {}
    different = []
    for instruction in transfers:
        attributes = instruction.attributes
        same = (
            instruction.opcode,
            instruction.shape.text_without_layout,
            tuple(o.shape for o in instruction.operands),
            parse_frontend_attributes(attributes.get("frontend_attributes", "{}")),
        )
        if first.setdefault(attributes["channel_id"], same) != same:
            different.append(instruction)
    return different
