"""The writer from the IR alone: no source bytes, every value read and written.

    module.to_canonical_text()

What many instructions share is read and written once per printing: attributes by their
form (see `ir/attribute_forms.py`), the values of all others by name and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.attribute_forms import Form, named_values, split_form
from hlo_passes.ir.attribute_tables import attribute_kind, filled_attributes
from hlo_passes.ir.attribute_values import (
    CanonicalText,
    canonical_attributes,
    canonical_header,
    canonical_text,
)
from hlo_passes.ir.computation import foot_text
from hlo_passes.text.printer import attributes_text, numbered, signature_text

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

#: The canonical text before, between and after the callee and the metadata of a form;
#: None where the text depends on more than the form.
_Template = tuple[str, str, str] | None

#: Operands are numbered where there are more: `/*index=5*/`.
_UNNUMBERED: Final = 5
#: It stands for a callee or metadata while a template is made.
_MARK: Final = "\0"
#: It stands for the template of a form that was not met before.
_UNKNOWN: Final = ("", "", "")


def canonical_module_text(module: Module) -> str:
    """The module printed from the IR alone; see `Module.to_canonical_text`."""
    header = "".join(
        f", {k}={v}" for k, v in canonical_header(module.attributes).items()
    )
    tables = f"\n\n{module.tables.strip()}" if module.tables.strip() else ""
    lines = [f"HloModule {module.name}{header}{tables}\n"]
    with garbage_collection_paused():
        attributes = _Attributes()
        for computation in module.computations:
            lines.append(signature_text(computation))
            _add_body(computation, attributes, lines)
            lines.append(f"{foot_text(computation.execution_thread)}\n")
        lines.append("")
        return "\n".join(lines)


def _add_body(
    computation: Computation, attributes: _Attributes, lines: list[str]
) -> None:
    """Add a line per instruction. It is written for speed: most calls are left out."""
    root = computation.root
    texts, append = attributes.texts, lines.append
    for i in computation.instructions:
        # Write the operands, or the value of a constant or parameter.
        inside = i.literal
        if inside is None:
            operands = i.operands
            count = len(operands)
            if count == 1:
                inside = f"%{operands[0].name}"
            elif count == 2:
                inside = f"%{operands[0].name}, %{operands[1].name}"
            else:
                names = [f"%{o.name}" for o in operands]
                if count > _UNNUMBERED:
                    names = numbered(names)
                inside = ", ".join(names)
        # Write the attributes: as for an equal text, or by their form.
        opcode = i.opcode
        tail = i._tail
        if tail is None or i._control_predecessors:
            text = attributes.text_one_by_one(i)
        else:
            known = texts[opcode]
            text = known.get(tail)
            if text is None:
                text = attributes.text_by_form(i, tail, known)
        if i is root:
            append(f"  ROOT %{i.name} = {i.shape.text} {opcode}({inside}){text}")
        else:
            append(f"  %{i.name} = {i.shape.text} {opcode}({inside}){text}")


class _Texts(dict[str, dict[str, str]]):
    """By opcode and attribute text, what XLA prints for it."""

    def __missing__(self, opcode: str) -> dict[str, str]:
        """XLA prints some attributes although the text has none."""
        filled = [f", {k}={v}" for k, v in filled_attributes(opcode).items()]
        known = self[opcode] = {"": "".join(filled)}
        return known


class _Attributes:
    """Canonical text of attributes, remembered while one module is printed."""

    def __init__(self) -> None:
        self.texts = _Texts()
        self._templates: dict[tuple[str, Form], _Template] = {}
        self._text_of = cache(canonical_text)

    def text_one_by_one(self, instruction: Instruction) -> str:
        """The text of any instruction, control predecessors included."""
        return attributes_text(instruction, _canonical(instruction, self._text_of))

    def text_by_form(
        self, instruction: Instruction, tail: str, known: dict[str, str]
    ) -> str:
        """The text of an instruction without control predecessors.

        `known` holds the texts of its opcode.
        """
        form, callee, metadata = split_form(tail)
        key = (instruction.opcode, form)
        template = self._templates.get(key, _UNKNOWN)
        if template is _UNKNOWN:
            template = self._template(instruction, form, callee, metadata)
            self._templates[key] = template
        if template is None:
            return self.text_one_by_one(instruction)
        before, between, after = template
        text = known[tail] = f"{before}{callee}{between}{metadata}{after}"
        return text

    def _template(
        self, instruction: Instruction, form: Form, callee: str, metadata: str
    ) -> _Template:
        """The template of a form, from the first instruction that has it."""
        attributes, opcode = instruction.attributes, instruction.opcode
        # Callee and metadata must be attributes whose text is printed as it is read.
        known = named_values(form, callee, metadata)
        if not known.items() <= attributes.items() or any(
            attribute_kind(name, opcode) not in ("computation", "metadata")
            for name in known
        ):
            return None
        # The spelling of the sharding of a tuple depends on the shape.
        if "sharding" in attributes:
            return None

        def marked(name: str, text: str, opcode: str) -> str | None:
            if name not in known:
                return self._text_of(name, text, opcode)
            return _MARK if name == "metadata" else f"%{_MARK}"

        written = _canonical(instruction, marked)
        parts = "".join([f", {k}={v}" for k, v in written.items()]).split(_MARK)
        if len(parts) != len(known) + 1:
            return None
        if not callee:
            parts.insert(0, "")
        before, between, after = parts if metadata else [*parts, ""]
        return before, between, after


def _canonical(instruction: Instruction, text_of: CanonicalText) -> Mapping[str, str]:
    return canonical_attributes(
        instruction.attributes, instruction.opcode, instruction.shape, text_of
    )
