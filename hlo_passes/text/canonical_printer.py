"""The writer from the IR alone: no source bytes, every value read and written.

    module.to_canonical_text()

What many instructions share is read and written once per printing: attributes whose
outline is that of others which are printed as they are read (see `ir/outlines.py`), the
values of all others by name and text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.attribute_tables import filled_attributes
from hlo_passes.ir.attribute_values import (
    canonical_attributes,
    canonical_header,
    canonical_text,
)
from hlo_passes.ir.computation import NUMBERS, foot_text
from hlo_passes.ir.outlines import outline_of_values, outlines
from hlo_passes.text.printer import attributes_text, numbered, signature_text

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module

#: Operands are numbered where there are more: `/*index=5*/`.
_UNNUMBERED: Final = 5
#: The outlines that most instructions have.
_COMMON: Final = frozenset(outlines(["", ', metadata={op_name="a"}']))
#: Outlines are made of about as many texts at once.
_AT_ONCE: Final = 500


def canonical_module_text(module: Module) -> str:
    """The module printed from the IR alone; see `Module.to_canonical_text`."""
    header = "".join(
        f", {k}={v}" for k, v in canonical_header(module.attributes).items()
    )
    tables = f"\n\n{module.tables.strip()}" if module.tables.strip() else ""
    parts = [f"HloModule {module.name}{header}{tables}\n"]
    with garbage_collection_paused():
        attributes = _Attributes()
        forms = chain.from_iterable(_outlines_of(module.computations))
        parts += [_computation_text(c, forms, attributes) for c in module.computations]
        parts.append("")
        return "\n".join(parts)


def _outlines_of(computations: Iterable[Computation]) -> Iterator[list[str]]:
    """The outlines of the attributes of all instructions, in order, in lists."""
    tails: list[str] = []
    for computation in computations:
        tails += [
            tail if (tail := i._tail) is not None else i._written_tail()
            for i in computation.instructions
        ]
        if len(tails) >= _AT_ONCE:
            yield outlines(tails)
            tails = []
    yield outlines(tails)


def _computation_text(
    computation: Computation, forms: Iterator[str], attributes: _Attributes
) -> str:
    """The signature, a line per instruction, the foot and an empty line.

    `forms` are the outlines of the attributes of its instructions, and more. It is
    written for speed: most calls are left out, and the usual operands are written along
    with the line.
    """
    root = computation.root
    numbers: list[str] = []
    parameters: list[str] = []
    lines = [""]
    append = lines.append
    # `zip` asks the instructions first, so that it takes no outline too many.
    for i, form in zip(computation.instructions, forms, strict=False):
        opcode, shape = i.opcode, i.shape
        # Take the attributes as they are, or write them.
        if form in attributes[opcode] and not i._control_predecessors:
            text = i._tail
        else:
            text = attributes.text(i, form)
        # Write the line with the operands, or the value of a constant or parameter.
        value = i.literal
        if value is not None:
            line = f"  %{i.name} = {shape.text} {opcode}({value}){text}"
            if opcode == "parameter":
                numbers.append(value)
                bare = shape._without_layout or shape.text_without_layout
                parameters.append(f"{i.name}: {bare}")
        else:
            operands = i.operands
            count = len(operands)
            if count == 1:
                (a,) = operands
                line = f"  %{i.name} = {shape.text} {opcode}(%{a.name}){text}"
            elif count == 2:
                a, b = operands
                line = (
                    f"  %{i.name} = {shape.text} {opcode}(%{a.name}, %{b.name}){text}"
                )
            else:
                names = [f"%{o.name}" for o in operands]
                if count > _UNNUMBERED:
                    names = numbered(names)
                line = f"  %{i.name} = {shape.text} {opcode}({', '.join(names)}){text}"
        append(line if i is not root else f"  ROOT{line[1:]}")
    ordered = numbers == NUMBERS[: len(numbers)]
    lines[0] = signature_text(computation, parameters if ordered else None)
    append(f"{foot_text(computation.execution_thread)}\n")
    return "\n".join(lines)


class _Attributes(dict[str, set[str]]):
    """By opcode, the outlines of attributes that are printed as they are read.

    It is kept while one module is printed.
    """

    def __init__(self) -> None:
        self._text_of = cache(canonical_text)
        #: Of instructions that are not tuples: the spelling of a tuple's sharding
        #: depends on the shape.
        self._of_shardings: dict[str, set[str]] = {}
        #: By opcode and attributes, where other text is printed.
        self._texts: dict[tuple[str, str], str] = {}

    def __missing__(self, opcode: str) -> set[str]:
        """An opcode of which no instruction was printed before."""
        self._of_shardings[opcode] = set()
        # Nothing at all and metadata alone are printed as they are, unless XLA prints
        # an attribute without being asked.
        found = self[opcode] = set() if filled_attributes(opcode) else set(_COMMON)
        return found

    def text(self, instruction: Instruction, form: str) -> str:
        """The text of the attributes, control predecessors included."""
        opcode, tail = instruction.opcode, instruction._written_tail()
        if instruction._control_predecessors:
            return self._text_of_each(instruction)
        # Look for the outline, then for the text.
        if "sharding" in form:
            if instruction.shape.is_tuple:
                return self._text_of_each(instruction)
            if form in self._of_shardings[opcode]:
                return tail
        text = self._texts.get((opcode, tail))
        if text is not None:
            return text
        # Write it, and note what can be said of others.
        text = self._text_of_each(instruction)
        if text != tail or outline_of_values(instruction.attributes, opcode) != form:
            if "sharding" not in form:
                self._texts[opcode, tail] = text
        elif "sharding" in form:
            self._of_shardings[opcode].add(form)
        else:
            self[opcode].add(form)
        return text

    def _text_of_each(self, instruction: Instruction) -> str:
        written = canonical_attributes(
            instruction.attributes, instruction.opcode, instruction.shape, self._text_of
        )
        return attributes_text(instruction, written)
