"""`%t#1#0`: get-tuple-elements that exist only in the text of their users.

    %r = f32[8]{0} negate(%t#0)        %t_0 = get-tuple-element(%t), index=0
                                       %r = negate(%t_0)

jaxlib 0.12 prints tuples this way. The instruction is created when the path is first
read, once per path; its source text is empty, and its users keep spelling it until
somebody changes it (see `Computation.spelled_elements`).
"""

from __future__ import annotations

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction


class TupleAccess:
    """The spelled elements of one computation while it is read."""

    def __init__(self, computation: Computation, order: list[Instruction]) -> None:
        """`order` is the list of instructions that the reader fills."""
        self.computation = computation
        self.order = order
        self._elements: dict[tuple[Instruction, int], Instruction] = {}

    def element(self, operand: Instruction, index: int, line: int) -> Instruction:
        """The get-tuple-element for `operand#index`; IndexError if there is none."""
        known = self._elements.get((operand, index))
        if known is not None:
            return known
        if not operand.shape.is_tuple:
            raise IndexError(index)
        node = Instruction(
            f"{operand.name}_{index}",
            "get-tuple-element",
            operand.shape.elements[index],
            (operand,),
            {"index": str(index)},
        )
        node.computation = self.computation
        node.line = line
        node._text = ""
        operand.note_user(node)
        self._elements[operand, index] = node
        self.computation.spelled_elements[node] = None
        self.order.append(node)
        return node

    def operands(
        self, words: list[str], by_name: dict[str, Instruction], line: int
    ) -> tuple[Instruction, ...]:
        """Operands by name or path; KeyError, IndexError or ValueError if undefined."""
        found = []
        for word in words:
            name, *path = word.split("#")
            node = by_name[name]
            for index in path:
                if not (index.isascii() and index.isdecimal()):
                    raise KeyError(word)
                node = self.element(node, int(index), line)
            found.append(node)
        return tuple(found)


def name_unnamed(nodes: list[Instruction], by_name: dict[str, Instruction]) -> None:
    """Give unique names to instructions that the text does not name."""
    for node in nodes:
        stem = name = node.name
        number = 0
        while name in by_name:
            number += 1
            name = f"{stem}.{number}"
        node.name = name
        by_name[name] = node
