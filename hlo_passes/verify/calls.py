"""Called computations: they come before their callers and fit in shape and thread.

    V010 callee missing or after caller   V603 wrapped computation called twice
    V011 signature against root          V604 execution threads differ
    V601 fusion against its body         V605 wrapped computation is not one operation
    V602 body of two fusions             V606 dead or misplaced value in a fusion
    V607 output_to_operand_aliasing      V608 custom-call against its constraints
    V609 composite call without a name

Source: openxla/xla `hlo_verifier.cc`, `xla/hlo/parser/hlo_parser.cc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hlo_passes.analysis.effects import acts_itself
from hlo_passes.errors import HloError
from hlo_passes.ir.header_values import parse_output_aliasing
from hlo_passes.ir.metadata import parse_frontend_attributes
from hlo_passes.ir.shape_inference import Signature, compatible
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.shapes import Shape, array_shape
from hlo_passes.ir.small_values import parse_small

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.verify.finding import Report

#: Opcodes whose callees run on the caller's thread.
_SAME_THREAD: Final = frozenset({"fusion", "while", "conditional"})

_GROUP_MARK: Final = "_collectives_group"
_UNCHECKED_ALIAS: Final = "xla_skip_custom_call_alias_shape_check"
_FREE_LAYOUT_TARGETS: Final = ('"LayoutConstraint"', '"control_dep"')
_RNG_SEED: Final = array_shape("u64")


def check_signature(computation: Computation, report: Report) -> None:
    """Check that the result shape in a computation's head is the root's."""
    head = computation.source_head
    if not head or "->" not in head:
        return
    text = head[head.rindex("->") + 2 :].rstrip().removesuffix("{").strip()
    if text == computation.root.shape.text_without_layout:
        return
    try:
        shape = parse_shape(text)
    except HloError:
        return  # comments in between: the parser has checked it
    root = computation.root.shape
    if not compatible(shape, root):
        report.add(
            computation.root, "V011",
            f"%{computation.name} says -> {shape}, but its root is "
            f"{root.text_without_layout}",
        )  # fmt: skip


def check_threads(
    instruction: Instruction,
    callees: tuple[Computation, ...],
    report: Report,
) -> None:
    """Check that callees run on their caller's thread."""
    opcode = instruction.opcode
    if opcode not in _SAME_THREAD:
        return  # a start has its computation's thread: XLA's reader ensures it
    thread = instruction.computation.execution_thread
    for callee in callees:
        if callee.execution_thread != thread:
            report.add(
                instruction, "V604",
                f"{opcode} is on thread {thread}, %{callee.name} on "
                f"{callee.execution_thread}",
            )  # fmt: skip


def check_fusion(
    instruction: Instruction, outside: Signature, signature: Signature, report: Report
) -> None:
    """Check a fusion's operands and result against its body's parameters and root.

    `outside` holds operands and result, `signature` is the body's.
    """
    operands = outside.parameters
    if not compatible(outside.result, signature.result):
        report.add(
            instruction, "V601",
            f"the fusion is {outside.result}, but its body returns {signature.result}",
        )  # fmt: skip
    if len(signature.parameters) > len(operands):
        report.add(
            instruction, "V601",
            f"the body takes {len(signature.parameters)} parameters, but the fusion "
            "has "
            f"{len(operands)} operands",
        )  # fmt: skip
        return
    for k, parameter in enumerate(signature.parameters):
        if not compatible(operands[k], parameter):
            report.add(
                instruction, "V601",
                f"operand {k} is {operands[k]}, but the body takes {parameter}",
            )  # fmt: skip


def check_fused_body(body: Computation, report: Report) -> None:
    """Check that every value of a fusion's body is used, except the root."""
    root = body.root
    if root.user_count:
        report.add(root, "V606", f"the root of fusion body %{body.name} is used in it")
    for instruction in body.instructions:
        if (
            instruction is not root
            and not instruction._users
            and not acts_itself(instruction)
        ):
            report.add(
                instruction, "V606",
                f"nothing in fusion body %{body.name} uses %{instruction.name}",
            )  # fmt: skip


def check_wrapped_body(start: Instruction, body: Computation, report: Report) -> None:
    """Check that a wrapped computation on the main thread is one operation."""
    if start.attributes.get("async_execution_thread", '"main"') != '"main"':
        return
    marks = parse_frontend_attributes(start.attributes.get("frontend_attributes", "{}"))
    if _GROUP_MARK in marks:
        return
    root = body.root
    others = [
        i
        for i in body.instructions
        if i is not root and i.opcode not in ("parameter", "get-tuple-element")
    ]
    if others:
        report.add(
            start, "V605",
            f"wrapped computation %{body.name} holds more than one operation: "
            f"%{others[0].name}",
            f"a collectives group carries frontend attribute {_GROUP_MARK}",
        )  # fmt: skip


def check_aliasing(
    instruction: Instruction,
    attributes: Mapping[str, str],
    operands: tuple[Shape, ...],
    result: Shape,
    report: Report,
) -> None:
    """Check that output_to_operand_aliasing names existing parts of equal shape."""
    text = attributes.get("output_to_operand_aliasing")
    if text is None:
        return
    for output, number, path in parse_output_aliasing(text).aliases:
        if not 0 <= number < len(operands):
            report.add(instruction, "V607", f"operand {number} of an alias is missing")
            continue
        try:
            mine, theirs = result.at(output), operands[number].at(path)
        except IndexError as problem:
            report.add(
                instruction, "V607", f"alias of a part that does not exist: {problem}"
            )
            continue
        marks = attributes.get("frontend_attributes", "")
        if _UNCHECKED_ALIAS in marks or "buffer" in (
            mine.element_type,
            theirs.element_type,
        ):
            continue
        if not compatible(mine, theirs):
            report.add(
                instruction, "V607",
                f"output {mine} cannot be operand {number}, which is {theirs}",
            )  # fmt: skip


def check_composite(
    instruction: Instruction, attributes: Mapping[str, str], report: Report
) -> None:
    """Check that a composite call names itself in its frontend attributes."""
    if attributes.get("is_composite") != "true":
        return
    marks = parse_frontend_attributes(attributes.get("frontend_attributes", "{}"))
    version = marks.get("composite.version", "0")
    if not marks.get("composite.name"):
        report.add(
            instruction, "V609",
            "a composite call needs frontend attribute composite.name",
        )  # fmt: skip
    if marks.get("composite.attributes", "{}") == "":
        report.add(instruction, "V609", "composite.attributes is empty")
    if not version.isdecimal():
        report.add(
            instruction,
            "V609",
            f"composite.version {version} is not a number of 0 or more",
        )


def check_custom_call(
    instruction: Instruction, attributes: Mapping[str, str], report: Report
) -> None:
    """Check layout constraints, one per operand; GetRngSeed is u64[]."""
    target = attributes.get("custom_call_target", "")
    if target == '"GetRngSeed"' and (
        instruction.operands or not compatible(instruction.shape, _RNG_SEED)
    ):
        report.add(instruction, "V608", "GetRngSeed takes nothing and returns u64[]")
    text = attributes.get("operand_layout_constraints")
    if text is None or target in _FREE_LAYOUT_TARGETS:
        return
    shapes = parse_small("shape_list", text)
    if len(shapes) != len(instruction.operands):
        report.add(
            instruction, "V608",
            f"{len(shapes)} operand_layout_constraints for "
            f"{len(instruction.operands)} operands",
        )  # fmt: skip
        return
    for k, (shape, operand) in enumerate(
        zip(shapes, instruction.operands, strict=True)
    ):
        if not compatible(shape, operand.shape):
            report.add(
                instruction, "V608", f"operand {k} is {operand.shape}, not {shape}"
            )
