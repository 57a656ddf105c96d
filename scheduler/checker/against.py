"""Is it the same program in another order?

    C002 an instruction or computation is missing or new     C003 one was changed

It compares everything except the order: opcode, shape, operands and control
predecessors by name, attributes, root.
"""

from __future__ import annotations

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.verify.finding import Finding, Report


def compare_with(before: Module, module: Module) -> list[Finding]:
    """Report every difference that is more than another order."""
    found: list[Finding] = []
    report = Report()
    for old in before.computations:
        if module.computation(old.name) is None:
            report.add(None, "C002", f"computation %{old.name} went")
    for computation in module.computations:
        if before.computation(computation.name) is None:
            report.add(None, "C002", f"computation %{computation.name} is new")
    found += report.findings(module)
    for computation in module.computations:
        old = before.computation(computation.name)
        if old is not None:
            inner = Report(computation)
            _compare(old, computation, inner)
            found += inner.findings(module)
    return found


def _compare(old: Computation, computation: Computation, report: Report) -> None:
    earlier = {i.name: i for i in old.instructions}
    here = {i.name for i in computation.instructions}
    for name in earlier:
        if name not in here:
            report.add(None, "C002", f"%{name} went from %{computation.name}")
    for instruction in computation.instructions:
        other = earlier.get(instruction.name)
        if other is None:
            report.add(instruction, "C002", "did not exist before scheduling")
            continue
        differs = _difference(other, instruction)
        if differs:
            report.add(
                instruction, "C003", f"scheduling changed {differs}, not only its place"
            )
    if old.root.name != computation.root.name:
        report.add(
            computation.root, "C003",
            f"the root was %{old.root.name} before scheduling",
        )  # fmt: skip


def _difference(one: Instruction, other: Instruction) -> str:
    """What differs in an instruction; '' if nothing does."""
    if one.is_spelled_like(other):
        return ""
    if one.opcode != other.opcode:
        return "its opcode"
    if one.shape.text != other.shape.text:
        return "its shape"
    if [o.name for o in one.operands] != [o.name for o in other.operands]:
        return "its operands"
    mine, theirs = (
        sorted(p.name for p in i.control_predecessors) for i in (one, other)
    )
    if mine != theirs:
        return "its control predecessors"
    if one.literal != other.literal or one.attribute_text() != other.attribute_text():
        return "its attributes"
    return ""
