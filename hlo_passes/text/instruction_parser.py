"""One instruction, in every form the grammar allows.

%r = f32[8] add(f32[8] %a, %b), metadata={...}
r = add(a, b)                          shape inferred, names without %
s = (...) send(a, token[] after-all())  nested anonymous operand
u = f32[8] negate(%t#1#0)              compact tuple access
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from hlo_passes.errors import HloError
from hlo_passes.ir.attribute_text import read_value, skip_group
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.lexical import GAP, NAME, RESERVED_WORDS, WORD, error, skip_trivia
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES
from hlo_passes.ir.shape_parser import read_shape
from hlo_passes.ir.shapes import PRIMITIVE_TYPES, Shape
from hlo_passes.text.derived_shapes import DERIVED_OPCODES, derived_shape
from hlo_passes.text.tuple_access import TupleAccess, name_unnamed

if TYPE_CHECKING:
    from hlo_passes.ir.module import Module
    from hlo_passes.source import SourceText

_OPCODE = re.compile(r"[a-z][a-z0-9-]*")
_SHAPE_START = re.compile(rf"\(|b{GAP}\(|[a-z][a-z0-9]*{GAP}\[")
_ATTRIBUTE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=")
_INDEX = re.compile(r"[ \t\r\n]*#[ \t\r\n]*([0-9]{1,18})")
#: Comments after an instruction, on its line, belong to it.
_REST_OF_LINE = re.compile(r"(?:[ \t]*(?:/\*[^\r\n\0]*?\*/|//[^\r\n\0]*))*")
_NUMBER = re.compile(r"[0-9]{1,18}")
_CONTROL = re.compile(
    r"\{[ \t\r\n]*(%?[A-Za-z0-9_.-]+(?:[ \t\r\n]*,[ \t\r\n]*%?[A-Za-z0-9_.-]+)*)"
    r"[ \t\r\n]*\}"
)
#: Attributes that list computations; the others that call have one.
CALLEE_LISTS = frozenset(("branch_computations", "called_computations"))
_SINGLE_CALLEES = frozenset(CALLEE_ATTRIBUTES) - CALLEE_LISTS

#: An element of a tuple that has no line of its own, and what to do if XLA needs it.
_ELEMENT = re.compile(r"%[A-Za-z0-9_.-]+#[0-9]")
_LEFT_OUT = (
    "this dump leaves out get-tuple-elements that XLA refers to by name: make it with "
    "XLA_FLAGS=--xla_dump_compact_gte=false, or read the dumped proto (.pb)"
)

#: Message and hint for text that does not resemble HLO.
NO_HLO = (
    "this is not HLO",
    "a module begins with  HloModule name  or with a computation",
)

#: Operands nested in operands, or bodies in attributes, deeper than this are refused.
MAXIMUM_NESTING = 100


class Surroundings(Protocol):
    """What reads the computations: the `ModuleParser` of `text/parser.py`."""

    source: SourceText
    module: Module

    def add(self, computation: Computation, *, is_entry: bool) -> None:
        """Take a computation that was read whole."""

    def read_body(self, computation: Computation, opened: int, *, depth: int) -> int:
        """Read the instructions between braces; the offset after the closing one."""
        ...

    def nearest(self, name: str, known: dict[str, Instruction]) -> str:
        """A hint with the most similar name, '' when nothing is near."""
        ...


class InstructionParser:
    """Reads the instructions of one computation, in order."""

    def __init__(
        self,
        module_parser: Surroundings,
        computation: Computation,
        *,
        single: bool = False,
        depth: int = 0,
    ) -> None:
        """`single`: operands with shapes become parameters."""
        self.module_parser = module_parser
        self.source = module_parser.source
        self.text = module_parser.source.text
        self.computation = computation
        self.order: list[Instruction] = []
        self.by_name: dict[str, Instruction] = {}
        self.root: Instruction | None = None
        self.single = single
        self.depth = depth
        self._anonymous: list[Instruction] = []
        self._unnamed: list[Instruction] = []
        self._access = TupleAccess(computation, self.order)

    # -- one instruction ----------------------------------------------------

    def read(self, lead_start: int) -> int:
        """Read the next instruction; returns the offset after it.

        `lead_start` is where the instruction before it ends: blanks and comments
        between belong to this one's text.
        """
        source, text = self.source, self.text
        at = start = skip_trivia(text, lead_start)
        word = WORD.match(text, at)
        is_root = word is not None and word[0] == "ROOT"
        if is_root and word is not None:
            at = skip_trivia(text, word.end())
        name, shape_at = self._read_name(at, alone=self.single and not is_root)
        shape, opcode, opened = self._read_head(shape_at)
        self._anonymous = []
        operands, literal, end = self._read_operands(opcode, opened)
        attributes, control, inline, end = self._read_attributes(end)
        end = _REST_OF_LINE.match(text, end).end()  # type: ignore[union-attr]
        if shape is None:
            shape = self._infer(opcode, operands, attributes, shape_at)
        elif opcode in DERIVED_OPCODES:
            shape = derived_shape(opcode, shape, operands, attributes)
        node = self._make(name, opcode, shape, operands, literal, start)
        node._attributes = attributes
        node._text = text[lead_start:end]
        for predecessor in control:
            predecessor.note_control_edge(node)
        for computation in inline:
            self.module_parser.module.keep_inline(computation, node)
        for anonymous in self._anonymous:
            self.computation.embed(anonymous, node)
        if is_root:
            if self.root is not None:
                raise error(
                    source, start, "P028", "a second ROOT",
                    f"the first is %{self.root.name}",
                )  # fmt: skip
            self.root = node
        return end

    def _make(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...],
        literal: str | None,
        at: int,
        *,
        named: bool = True,
    ) -> Instruction:
        node = Instruction(name, opcode, shape, operands, literal=literal)
        node.computation = self.computation
        node.line = self.source.line_of_offset(at)
        for operand in operands:
            operand.note_user(node)
        if not named:
            self._unnamed.append(node)
        elif name in self.by_name:
            raise error(
                self.source, at, "P027", f"instruction %{name} is defined already",
                f"the first is in line {self.by_name[name].line}",
            )  # fmt: skip
        else:
            self.by_name[name] = node
        self.order.append(node)
        return node

    def name_unnamed(self) -> None:
        """Name what the text does not name; called when all names are known."""
        spelled = list(self.computation.spelled_elements)
        name_unnamed(spelled, self.by_name)
        name_unnamed(self._unnamed, self.by_name)

    def _read_name(self, at: int, *, alone: bool) -> tuple[str, int]:
        """The name before `=`, and the offset of the right-hand side.

        `alone`: the whole text is one instruction, which may begin with its shape.
        """
        source, text = self.source, self.text
        match = NAME.match(text, at)
        if match:
            prefixed = text[at] == "%"
            equals = skip_trivia(text, match.end())
            if text.startswith("=", equals):
                name = match[1]
                if name in PRIMITIVE_TYPES:
                    raise error(
                        source, at, "P027",
                        f"{name} is an element type and cannot be a name",
                        f"write {name}_",
                    )  # fmt: skip
                if not prefixed and (name in RESERVED_WORDS or equals == match.end()):
                    raise error(
                        source, at, "P027",
                        f"{name} is read as an attribute or a keyword here",
                        f"write %{name}, or put a blank before '='",
                    )  # fmt: skip
                return name, equals + 1
        if alone:
            if _SHAPE_START.match(text, at):
                return "_", at
            if match is None or not text.startswith(
                "(", skip_trivia(text, match.end())
            ):
                raise error(source, at, "P001", *NO_HLO)
        raise error(
            source, at, "P035", "expected an instruction",
            "an instruction reads like  %r = f32[8] add(%a, %b)",
        )  # fmt: skip

    def _read_head(self, at: int) -> tuple[Shape | None, str, int]:
        """Shape (None if omitted), opcode, and the offset after the `(`."""
        source, text = self.source, self.text
        at = skip_trivia(text, at)
        shape = None
        if _SHAPE_START.match(text, at):
            shape, at = read_shape(source, at)
            at = skip_trivia(text, at)
        opcode = _OPCODE.match(text, at)
        if not opcode:
            if shape is None:
                read_shape(source, at)
            raise error(source, at, "P036", "expected an opcode after the shape")
        opened = skip_trivia(text, opcode.end())
        if not text.startswith("(", opened):
            if shape is None:
                raise error(
                    source,
                    at,
                    "P010",
                    f"expected a shape after '=', found '{opcode[0]}'",
                )
            raise error(source, opened, "P037", f"expected '(' after {opcode[0]}")
        return shape, opcode[0], opened + 1

    def _infer(
        self,
        opcode: str,
        operands: tuple[Instruction, ...],
        attributes: dict[str, str],
        at: int,
    ) -> Shape:
        from hlo_passes.ir.shape_inference import infer_shape

        callees = []
        for name in CALLEE_ATTRIBUTES:
            for callee in re.findall(r"[A-Za-z0-9_.-]+", attributes.get(name, "")):
                found = self.module_parser.module.computation(callee)
                if found is not None:
                    callees.append(found)
        try:
            return infer_shape(opcode, [o.shape for o in operands], attributes, callees)
        except HloError as problem:
            raise error(
                self.source, skip_trivia(self.text, at), "P038",
                f"the shape of {opcode} must be given: {problem.message}",
            ) from None  # fmt: skip

    # -- operands -----------------------------------------------------------

    def _read_operands(
        self, opcode: str, at: int
    ) -> tuple[tuple[Instruction, ...], str | None, int]:
        """Operands, literal, and the offset after the `)`."""
        source, text = self.source, self.text
        if opcode == "constant":
            end = skip_group(source, at - 1)
            return (), text[at : end - 1].strip(), end
        start = at = skip_trivia(text, at)
        if opcode == "parameter":
            number = _NUMBER.match(text, at)
            close = skip_trivia(text, number.end()) if number else at
            if not number or not text.startswith(")", close):
                raise error(source, at, "P039", "expected the parameter's number")
            return (), number[0], close + 1
        operands: list[Instruction] = []
        while not text.startswith(")", at):
            operand, at = self._read_operand(at)
            operands.append(operand)
            at = skip_trivia(text, at)
            if text.startswith(",", at):
                at = skip_trivia(text, at + 1)
                if text.startswith(")", at):
                    raise error(source, at, "P037", "expected an operand after ','")
            elif not text.startswith(")", at):
                place = source.location(start)
                raise error(
                    source, at, "P037", "expected ',' or ')' after an operand",
                    f"the operands begin at line {place.line}, column {place.column}",
                )  # fmt: skip
        return tuple(operands), None, at + 1

    def _read_operand(self, at: int) -> tuple[Instruction, int]:
        source, text = self.source, self.text
        # A shape may come before the name.
        shape = None
        if _SHAPE_START.match(text, at):
            shape, at = read_shape(source, at)
            at = skip_trivia(text, at)
        # Read the name. Without `%` it may be the opcode of a nested instruction.
        name = NAME.match(text, at)
        if not name or name[0] in RESERVED_WORDS:
            if shape is not None and self.single:
                return self._single_parameter(None, shape, at), at
            raise error(source, at, "P004", "expected an operand, as in %a", "")
        following = skip_trivia(text, name.end())
        if text[at] != "%" and text.startswith("(", following):
            if self.single and shape is not None and name[1] not in self.by_name:
                # XLA takes the opcode for the name of an operand first, and keeps the
                # parameter that it makes for it.
                self._single_parameter(name[1], shape, at)
            return self._read_nested(shape, name[1], at, following + 1)
        # Look the name up.
        operand = self.by_name.get(name[1])
        if operand is None:
            if shape is not None and self.single:
                return self._single_parameter(name[1], shape, at), name.end()
            raise error(
                source, at, "P004", f"%{name[1]} is not defined",
                self.module_parser.nearest(name[1], self.by_name)
                or "an operand is defined before it is used, in the same computation",
            )  # fmt: skip
        # Follow indices, as in `%t#0`.
        at = name.end()
        while index := _INDEX.match(text, at):
            try:
                operand = self._access.element(
                    operand, int(index[1]), source.line_of_offset(at)
                )
            except IndexError:
                raise error(
                    source, at, "P006",
                    f"%{operand.name} of shape {operand.shape} has no element "
                    f"{index[1]}",
                ) from None  # fmt: skip
            at = index.end()
        # A shape that is spelled must be the operand's.
        if shape is not None and not shape.compatible(operand.shape):
            raise error(
                source, name.start(), "P005",
                f"%{operand.name} has shape {operand.shape}, not {shape}",
            )  # fmt: skip
        return operand, at

    def _embed(self, node: Instruction) -> Instruction:
        node._text = ""
        self._anonymous.append(node)
        return node

    def _single_parameter(self, name: str | None, shape: Shape, at: int) -> Instruction:
        number = sum(i.opcode == "parameter" for i in self.order)
        name = name or f"_{number}"
        node = self._make(
            name,
            "parameter",
            shape,
            (),
            str(number),
            at,
            named=name not in self.by_name,
        )
        return self._embed(node)

    def _read_nested(
        self, shape: Shape | None, opcode: str, at: int, opened: int
    ) -> tuple[Instruction, int]:
        """Read `token[] after-all()` as an operand: it becomes an instruction."""
        self.depth += 1
        if self.depth > MAXIMUM_NESTING:
            raise error(
                self.source, at, "P011",
                f"operands nested deeper than {MAXIMUM_NESTING}",
            )  # fmt: skip
        operands, literal, end = self._read_operands(opcode, opened)
        self.depth -= 1
        if shape is None:
            shape = self._infer(opcode, operands, {}, at)
        elif opcode in DERIVED_OPCODES:
            shape = derived_shape(opcode, shape, operands, {})
        node = self._make(
            f"{opcode}.anon", opcode, shape, operands, literal, at, named=False
        )
        return self._embed(node), end

    # -- attributes ---------------------------------------------------------

    def _read_attributes(
        self, at: int
    ) -> tuple[dict[str, str], list[Instruction], list[Computation], int]:
        """Attributes, control predecessors, inline bodies, and where they end."""
        source, text = self.source, self.text
        attributes: dict[str, str] = {}
        control: list[Instruction] = []
        inline: list[Computation] = []
        while True:
            comma = skip_trivia(text, at)
            if not text.startswith(",", comma):
                return attributes, control, inline, at
            name_at = skip_trivia(text, comma + 1)
            match = _ATTRIBUTE.match(text, name_at)
            if not match:
                raise error(
                    source, name_at, "P030", "expected an attribute, as in a=1",
                    "'=' must follow the name directly",
                )  # fmt: skip
            name = match[1]
            if name in attributes or (name == "control-predecessors" and control):
                raise error(source, name_at, "P031", f"attribute {name} is repeated")
            start = skip_trivia(text, match.end())
            if name in _SINGLE_CALLEES and text.startswith("{", start):
                body, at = self._read_inline(start)
                inline.append(body)
                attributes[name] = f"%{body.name}"
            elif name in CALLEE_LISTS and text.startswith("{", start):
                attributes[name], bodies, at = self._read_callees(start, name)
                inline += bodies
            elif name == "control-predecessors":
                control, at = self._read_control(start)
            else:
                at = read_value(source, start, name)
                attributes[name] = text[start:at]

    def _read_callees(
        self, start: int, attribute: str
    ) -> tuple[str, list[Computation], int]:
        """Read `{%a, { ... }}`: as names alone, the bodies, where it ends."""
        source, text = self.source, self.text
        names: list[str] = []
        bodies: list[Computation] = []
        at = skip_trivia(text, start + 1)
        while True:
            if text.startswith("{", at):
                body, at = self._read_inline(at)
                bodies.append(body)
                names.append(f"%{body.name}")
            elif name := NAME.match(text, at):
                names.append(f"%{name[1]}")
                at = name.end()
            elif bodies:
                raise error(source, at, "P034", "expected a computation, as in %a or {")
            else:
                break
            at = skip_trivia(text, at)
            if not text.startswith(",", at):
                break
            at = skip_trivia(text, at + 1)
        if not bodies:
            # Text without bodies is kept as it is, whether it can be read or not.
            end = read_value(source, start, attribute)
            return text[start:end], [], end
        if not text.startswith("}", at):
            raise error(source, at, "P034", "expected ',' or '}' after a computation")
        return f"{{{', '.join(names)}}}", bodies, at + 1

    def _read_inline(self, opened: int) -> tuple[Computation, int]:
        """Read `to_apply={ ... }`: a computation named `_`."""
        if self.depth >= MAXIMUM_NESTING:
            raise error(
                self.source, opened, "P011",
                f"bodies nested deeper than {MAXIMUM_NESTING}",
            )  # fmt: skip
        parser = self.module_parser
        body = Computation(parser.module.fresh_computation_name("_"))
        body.line = self.source.line_of_offset(opened)
        body.source_head = None
        # Reserve the name: bodies nested in this one take the next.
        parser.module._computations[body.name] = body
        end = parser.read_body(body, opened, depth=self.depth + 1)
        del parser.module._computations[body.name]
        body.source_foot = "\n}"
        parser.add(body, is_entry=False)
        return body, end

    def _read_control(self, start: int) -> tuple[list[Instruction], int]:
        match = _CONTROL.match(self.text, start)
        if not match:
            raise error(self.source, start, "P034", "expected names, as in {%a, %b}")
        found = []
        for word in match[1].split(","):
            name = word.strip().removeprefix("%")
            if name not in self.by_name:
                raise error(
                    self.source, start, "P004",
                    f"control predecessor %{name} is not defined",
                    _LEFT_OUT if _ELEMENT.search(self.text)
                    else self.module_parser.nearest(name, self.by_name),
                )  # fmt: skip
            found.append(self.by_name[name])
        return found, match.end()
