"""The writer from the IR alone: no source bytes, every value read and written.

    module.to_canonical_text()

What many instructions share is read and written once per printing: attributes by their
form (see `ir/attribute_forms.py`), the values of all others by name and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
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
#: As many attributes are remembered as callees and metadata.
_REMEMBERED_KINDS: Final = 1 << 10
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
            _add_computation(computation, attributes, lines)
            lines.append(f"{foot_text(computation.execution_thread)}\n")
        lines.append("")
        return "\n".join(lines)


def _add_computation(
    computation: Computation, attributes: _Attributes, lines: list[str]
) -> None:
    """Add the signature, and a line per instruction.

    It is written for speed: most calls are left out.
    """
    root = computation.root
    parameters: list[Instruction] = []
    at = len(lines)
    lines.append("")
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
        elif i.opcode == "parameter":
            parameters.append(i)
        # Write the attributes: as for an equal text, or by their form.
        opcode = i.opcode
        tail = i._tail
        if tail is None or i._control_predecessors:
            text = attributes.text_one_by_one(i)
        else:
            try:
                known = texts[opcode]
            except KeyError:
                known = attributes.texts_of(opcode)
            text = known.get(tail)
            if text is None:
                text = attributes.text_by_form(i, tail, known)
        if i is root:
            append(f"  ROOT %{i.name} = {i.shape.text} {opcode}({inside}){text}")
        else:
            append(f"  %{i.name} = {i.shape.text} {opcode}({inside}){text}")
    lines[at] = signature_text(computation, parameters)


class _Attributes:
    """Canonical text of attributes, remembered while one module is printed."""

    def __init__(self) -> None:
        self.texts: dict[str, dict[str, str]] = {}
        self._templates: dict[str, dict[Form, _Template]] = {}
        self._text_of = cache(canonical_text)

    def texts_of(self, opcode: str) -> dict[str, str]:
        """By attribute text, what XLA prints: some attributes without being asked."""
        filled = [f", {k}={v}" for k, v in filled_attributes(opcode).items()]
        known = self.texts[opcode] = {"": "".join(filled)}
        self._templates[opcode] = {}
        return known

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
        templates = self._templates[instruction.opcode]
        template = templates.get(form, _UNKNOWN)
        if template is _UNKNOWN:
            template = self._template(instruction, form, callee, metadata)
            templates[form] = template
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
        for name, text in known.items():
            if attributes.get(name) != text or not _is_kept(name, opcode):
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


@lru_cache(maxsize=_REMEMBERED_KINDS)
def _is_kept(name: str, opcode: str) -> bool:
    """Whether the text of a callee or of metadata is printed as it is read."""
    return attribute_kind(name, opcode) in ("computation", "metadata")


def _canonical(instruction: Instruction, text_of: CanonicalText) -> Mapping[str, str]:
    return canonical_attributes(
        instruction.attributes, instruction.opcode, instruction.shape, text_of
    )
