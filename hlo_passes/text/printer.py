"""The writer: source bytes where nothing changed, XLA's form elsewhere.

prologue                 header and stack-frame tables
lead head                blanks, and `%body (p: f32[8]) -> f32[8] {`
  instruction ...        its own text, or printed anew
foot                     `}` and the execution thread
epilogue
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

#: Attributes that come after the control predecessors.
_BEHIND_CONTROL = (
    "statistics",
    "result_accuracy",
    "origin",
    "metadata",
    "backend_config",
)


def module_text(module: Module) -> str:
    """The module as text; see `Module.to_text`."""
    if module.source is not None and module.is_as_read:
        return module.source.text
    if module.single_instruction:
        return module.to_canonical_text()
    if module.header_touched:
        parts = [header_text(module), "", module.tables]
    else:
        parts = [module.source_prologue]
    for computation in module.computations:
        if computation.inline_owner is None:
            parts += _computation_parts(computation)
    parts.append("\n" if module.source is None else module.source_epilogue)
    # Text without a header begins with a computation; it must not touch a new one.
    if module.header_touched and not next(filter(None, parts[2:]), " ")[0].isspace():
        parts[1] = "\n\n"
    return "".join(parts)


def header_text(module: Module) -> str:
    """`HloModule name, attributes`; the tables follow."""
    attributes = "".join(f", {k}={v}" for k, v in module.attributes.items())
    return f"HloModule {module.name}{attributes}"


def _computation_parts(computation: Computation) -> list[str]:
    instructions = computation.instructions
    joiner = computation.source_joiner
    shown = None if computation.root_is_marked else computation.root
    if shown is instructions[-1]:
        shown = None
    # An instruction with empty text is spelled by its users.
    body = "".join(
        [
            f"\n{instruction_text(i)}"
            if i._text is None or i is shown
            else joiner + i._text
            for i in instructions
            if i._text != ""
        ]
    )
    foot = computation.source_foot
    if body and not foot[:1].isspace() and instructions[-1]._text is None:
        foot = "\n" + foot
    return [
        "\n\n" if computation.source_lead is None else computation.source_lead,
        computation.source_head or signature_text(computation),
        body,
        foot,
    ]


def signature_text(
    computation: Computation, parameters: Sequence[str] | None = None
) -> str:
    """`ENTRY %main (p: f32[8]) -> f32[8] {`.

    `parameters` are the texts between the parentheses by number, if they are known.
    """
    if parameters is None:
        parameters = [
            f"{p.name}: {p.shape.text_without_layout}" for p in computation.parameters
        ]
    entry = "ENTRY " if computation.is_entry else ""
    result = computation.root.shape.text_without_layout
    return f"{entry}%{computation.name} ({', '.join(parameters)}) -> {result} {{"


def instruction_text(instruction: Instruction) -> str:
    """One line, indented by two blanks, as XLA prints it by default."""
    computation = instruction.computation
    spelled = computation.spelled_elements
    root = "ROOT " if computation.root is instruction else ""
    return (
        f"  {root}%{instruction.name} = {instruction.shape.text} "
        f"{instruction.opcode}({operands_text(instruction, spelled)})"
        f"{attributes_text(instruction, instruction.attributes)}"
    )


def operands_text(instruction: Instruction, spelled: Mapping[Instruction, None]) -> str:
    """The text between the parentheses; for `spelled` see `Computation`."""
    if instruction.literal is not None:
        return instruction.literal
    names = [_operand_text(o, spelled) for o in instruction.operands]
    return ", ".join(numbered(names))


def numbered(names: list[str]) -> list[str]:
    """The names in place, every fifth one with its number: `/*index=5*/%a`."""
    for k in range(5, len(names), 5):
        names[k] = f"/*index={k}*/{names[k]}"
    return names


def _operand_text(operand: Instruction, spelled: Mapping[Instruction, None]) -> str:
    path = ""
    while operand in spelled:
        path = f"#{operand.attributes['index']}{path}"
        operand = operand.operands[0]
    return f"%{operand.name}{path}"


def attributes_text(instruction: Instruction, attributes: Mapping[str, str]) -> str:
    """`, name=value` of the attributes given, and the control predecessors."""
    parts = [f", {name}={text}" for name, text in attributes.items()]
    predecessors = instruction.control_predecessors
    if predecessors:
        names = ", ".join(f"%{p.name}" for p in predecessors)
        at = next(
            (k for k, name in enumerate(attributes) if name in _BEHIND_CONTROL),
            len(parts),
        )
        parts.insert(at, f", control-predecessors={{{names}}}")
    return "".join(parts)
