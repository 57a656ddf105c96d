"""The fast reader: one pass of string methods over the lines that XLA prints.

    %r = f32[8]{0} add(%a, %b), metadata={op_name="x"}
    |    `-- head --'  `operands` `------ tail ------'
    name     looked up once per distinct text

A line of any other form (no `%`, shapes before operands, comments, an instruction over
several lines, nested operands ...) sends its computation to the complete parser in
`text/parser.py`, which also finds the place of every error. Both readers make the same
module of what this one accepts; tests compare them. There are two on purpose: this one
is fast, the other knows the whole grammar and the place of every error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from hlo_passes.errors import ParseError
from hlo_passes.garbage import garbage_collection_paused
from hlo_passes.ir.attribute_text import read_attributes, skip_group
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.lexical import skip_trivia
from hlo_passes.ir.module import Module
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.shapes import PRIMITIVE_TYPES
from hlo_passes.source import LONE_RETURN, SourceText
from hlo_passes.text.derived_shapes import DERIVED_OPCODES, derived_shape
from hlo_passes.text.instruction_parser import CALLEE_LISTS
from hlo_passes.text.parser import ModuleParser, skip_signature
from hlo_passes.text.tuple_access import TupleAccess, name_unnamed

if TYPE_CHECKING:
    from hlo_passes.ir.shapes import Shape

_HEADER = re.compile(r"(ENTRY )?%([A-Za-z_][A-Za-z0-9_.-]*) (?:\(.*\) -> .*[^ ] )?\{")
#: A header whose signature holds arrays and flat tuples; others go to the parser.
_TYPE = "(?:" + "|".join(sorted(PRIMITIVE_TYPES, key=len, reverse=True)) + ")"
_ARRAY = rf"{_TYPE}\[(?:[0-9]{{1,18}}(?:,[0-9]{{1,18}})*)?\]"
_TUPLE = rf"\((?:{_ARRAY}(?:, (?:/\*index=[0-9]+\*/)?{_ARRAY})*)?\)"
_NAMED_SHAPE = rf"[A-Za-z_][A-Za-z0-9_.-]*: (?:{_ARRAY}|{_TUPLE})"
_PLAIN_SIGNATURE = re.compile(
    rf"\((?:{_NAMED_SHAPE}(?:, {_NAMED_SHAPE})*)?\) -> (?:{_ARRAY}|{_TUPLE}) \{{"
)
_FOOT = re.compile(r'\}(?:, execution_thread="([A-Za-z0-9_.-]*)")?')
_HEAD_END = re.compile(r"[)}\]] ([a-z][a-z0-9-]*)\(")
_OPCODE = re.compile(r"[a-z][a-z0-9-]*")
_INDEX_COMMENT = re.compile(r"/\*index=[0-9]{1,18}\*/")
_CALLEES = frozenset(CALLEE_ATTRIBUTES)
_CONTROL = re.compile(r"%([A-Za-z_][A-Za-z0-9_.-]*)")
#: The end of a line whose attribute continues on the next.
_OPEN_ENDS = frozenset(" \t\r,({[=<")
_NUMBER = re.compile(r"[0-9]{1,18}")
_PLAIN_LITERAL = re.compile(r"[A-Za-z0-9_.+, {}-]*")
#: `%name =`: another instruction on the line.
_GLUED_NAME = re.compile(r"%[A-Za-z0-9_.-]+[ \t\r\n]*=")
#: All names of a computation at once, each with a newline after it.
_NAMES = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_.-]*\n)*")


class _NotPlainError(Exception):
    """A computation has a line that the fast reader cannot read."""


class _Heads(dict[str, "tuple[Shape, str]"]):
    """Shape and opcode by the text before the operands.

    Attributes:
        derive: whether an opcode is among them whose shape XLA derives.
    """

    derive = False

    def __missing__(self, head: str) -> tuple[Shape, str]:
        shape_text, _, opcode = head.rpartition(" ")
        if not _OPCODE.fullmatch(opcode) or "//" in head:
            raise _NotPlainError
        try:
            shape = parse_shape(shape_text)
        except ParseError:
            raise _NotPlainError from None
        if opcode in DERIVED_OPCODES:
            self.derive = True
        value = self[head] = (shape, opcode)
        return value


def parse(text: str, *, filename: str = "<hlo>") -> Module:
    """Read HLO text.

    Args:
        text: a module, or one instruction.
        filename: shown in messages.

    Raises:
        ParseError: codes P001-P039, with the place. Attribute values are only
            delimited here; `hlo_passes.verify` reads them.
        TypeError: for bytes; read a serialized proto with `Module.from_proto`.
    """
    if not isinstance(text, str):
        msg = (
            f"parse() reads HLO text (str), not {type(text).__name__}; a serialized "
            "proto is read by Module.from_proto"
        )
        raise TypeError(msg)
    return _parse(SourceText(text, filename), _read_computations)


def parse_completely(text: str, *, filename: str = "<hlo>") -> Module:
    """Read HLO text with the complete parser alone; tests compare `parse` with it."""
    return _parse(SourceText(text, filename), _read_computations_completely)


def _parse(
    source: SourceText, read_computations: Callable[[ModuleParser, int], None]
) -> Module:
    with garbage_collection_paused():
        reader = ModuleParser(source)
        at = reader.read_prologue()
        if at is None:
            return reader.read_single_instruction()
        if "\r" in source.text and LONE_RETURN.search(source.text):
            read_computations = _read_computations_completely
        read_computations(reader, at)
        return reader.finish()


def _read_computations_completely(reader: ModuleParser, at: int) -> None:
    end: int | None = at
    while end is not None:
        end = reader.read_computation(end)


def _read_computations(reader: ModuleParser, at: int) -> None:
    """Read computations from offset `at`, where the header ends, to the end."""
    source = reader.source
    text = source.text
    heads = _Heads()
    lines = text[at:].split("\n")
    first_line = text.count("\n", 0, at) + 1
    count = len(lines)
    # Everything before the end of line `done` is read; `rest` is the text after the
    # last computation on that line.
    done, rest = (0, "") if not lines[0] else (-1, "")
    index = done + 1
    while index < count:
        line = lines[index]
        if not line and done >= 0:
            index += 1
            continue
        # Try the fast way: a header on a line of its own, and a plain body.
        header = _HEADER.fullmatch(line)
        if header is not None and done >= 0 and reader.is_free(header[2]):
            computation = Computation(header[2])
            try:
                _check_signature(line, header.end(2) + 1)
                end = _read_body(
                    computation, lines, index + 1, first_line + index + 1, heads
                )
            except (_NotPlainError, LookupError):
                pass
            else:
                computation.line = first_line + index
                computation.source_lead = rest + "\n" * (index - done)
                computation.source_head = line
                reader.add(computation, is_entry=header[1] is not None)
                done, rest = end, ""
                index = end + 1
                continue
        # Otherwise the complete parser reads one computation from the same place.
        start = at
        if done >= 0:
            start = source.offset_of_line(first_line + done) + len(lines[done])
            if done == 0:
                start = at + len(lines[0])
        start -= len(rest)
        end_offset = reader.read_computation(start)
        if end_offset is None:
            return
        # Go on after it; if more follows on its last line, that parser reads all the
        # rest.
        done = source.line_of_offset(end_offset) - first_line
        line_end = text.find("\n", end_offset)
        rest = text[end_offset : line_end if line_end >= 0 else len(text)]
        if rest.strip(" \t\r"):
            while end_offset is not None:
                end_offset = reader.read_computation(end_offset)
            return
        index = done + 1
    reader.module.source_epilogue = rest + "\n" * (count - 1 - done)


def _read_body(
    computation: Computation,
    lines: list[str],
    index: int,
    line_number: int,
    heads: _Heads,
) -> int:
    """Fill a computation from lines[index:]; returns the index of its closing line.

    It is written without calls for speed: it runs once per instruction.
    """
    new = Instruction.__new__
    by_name: dict[str, Instruction] = {}
    order: list[Instruction] = []
    append = order.append
    access = TupleAccess(computation, order)
    root = None
    while True:
        # Read the name, and whether it is the root. Any other line ends the body or is
        # for the complete parser.
        line = lines[index]
        start = line[:3]
        if start == "  %":
            name, equals, rest = line.partition(" = ")
            name = name[3:]
        elif line[:8] == "  ROOT %":
            name, equals, rest = line.partition(" = ")
            name = name[8:]
            if root is not None:
                raise _NotPlainError
            root = name
        elif start[:1] == "}":
            break
        else:
            raise _NotPlainError
        if not equals:
            raise _NotPlainError
        # The text before the parenthesis is the shape and the opcode. Instructions
        # often share it, so it is looked up as a whole.
        head, _, arguments = rest.partition("(")
        if head not in heads:
            match = _HEAD_END.search(rest)
            if match is None:
                raise _NotPlainError
            arguments = rest[match.end() :]
            head = rest[: match.end() - 1]
        # Fill the fields here, because calling the constructor is slower.
        node = new(Instruction)
        shape, opcode = heads[head]
        node.shape = shape
        node.opcode = opcode
        node.name = name
        node.line = line_number
        node.removed = False
        node.computation = computation
        node.literal = None
        node._text = line
        node._attributes = None
        node._users = []
        node._control_predecessors = ()
        node._control_successors = ()
        # Read what is between the parentheses: operands, nothing, or a value.
        inside, closed, tail = arguments.partition(")")
        if inside[:1] == "%":
            if "/" in inside:
                inside = _INDEX_COMMENT.sub("", inside)
            try:
                operands = tuple(
                    [by_name[operand] for operand in inside[1:].split(", %")]
                )
            except KeyError:
                operands = access.operands(
                    inside[1:].split(", %"), by_name, line_number
                )
            node.operands = operands
            # The operands learn their user, once each.
            for operand in operands:
                users: list[Instruction] = operand._users  # pyright: ignore
                if not users or users[-1] is not node:
                    users.append(node)
        elif not inside:
            node.operands = ()
            if opcode == "constant":
                node.literal = ""
        elif opcode == "constant":
            if not _PLAIN_LITERAL.fullmatch(inside) or (
                inside.count("{") != inside.count("}")
            ):
                inside, tail = _nested_literal(arguments)
            node.operands = ()
            node.literal = inside.strip()
        elif opcode == "parameter" and _NUMBER.fullmatch(inside):
            node.operands = ()
            node.literal = inside
        else:
            raise _NotPlainError
        # Keep the attributes as text, which is split when they are first read. Text
        # that may not end where it seems to is split now.
        node._tail = tail
        if tail:
            if tail[:2] != ", ":
                raise _NotPlainError
            if (
                "control-predecessors=" in tail
                or " =" in tail
                or "\\" in tail
                or tail.count('"') & 1
                or "/*" in tail
                or "//" in tail
                or tail[-1] in _OPEN_ENDS
                or tail.count("{") != tail.count("}")
                or ("%" in tail and _GLUED_NAME.search(tail))
            ):
                _split_now(node, by_name)
        elif not closed:
            raise _NotPlainError
        # Add the instruction under its name, and go to the next line.
        by_name[name] = node
        append(node)
        index += 1
        line_number += 1
    # Check the closing line, and that no two instructions share a name.
    foot = _FOOT.fullmatch(line)
    spelled = computation.spelled_elements
    if foot is None or not order or len(by_name) + len(spelled) != len(order):
        raise _NotPlainError
    # Check that all names are plain; one match over all of them is fastest.
    names = "\n".join(by_name) + "\n"
    if _NAMES.fullmatch(names) is None or not by_name.keys().isdisjoint(
        PRIMITIVE_TYPES
    ):
        raise _NotPlainError
    # Shapes that XLA derives must be the declared ones: elements may have been read.
    if heads.derive:
        _check_derived_shapes(order)
    # Name the elements that text spells as `%t#0`, and fill the computation.
    name_unnamed(list(spelled), by_name)
    computation.execution_thread = foot[1] or "main"
    computation.source_foot = "\n" + line
    computation._order = order
    computation.root_is_marked = root is not None
    computation.root = order[-1] if root is None else by_name[root]
    return index


def _check_signature(header: str, at: int) -> None:
    """Refuse a signature that the complete parser would refuse."""
    if header.startswith("{", at) or _PLAIN_SIGNATURE.fullmatch(header, at):
        return
    try:
        end = skip_signature(SourceText(header), at)
    except ParseError:
        raise _NotPlainError from None
    if header[end:] != " {":
        raise _NotPlainError


def _check_derived_shapes(order: list[Instruction]) -> None:
    """Refuse a computation that declares other shapes than XLA derives."""
    for node in order:
        if node.opcode in DERIVED_OPCODES and node.shape is not derived_shape(
            node.opcode, node.shape, node.operands, {}
        ):
            raise _NotPlainError


def _nested_literal(arguments: str) -> tuple[str, str]:
    """A literal with parentheses or comments in it, and what follows the operands."""
    try:
        end = skip_group(SourceText("(" + arguments), 0)
    except ParseError:
        raise _NotPlainError from None
    return arguments[: end - 2], arguments[end - 1 :]


def _split_now(node: Instruction, by_name: dict[str, Instruction]) -> None:
    """Split attributes now if they may hide an edge, a comment or an instruction."""
    tail = node._tail or ""
    source = SourceText(tail)
    found: dict[str, str] = {}
    try:
        end = read_attributes(source, 0, found)
    except ParseError:
        raise _NotPlainError from None
    if skip_trivia(tail, end) != len(tail):
        raise _NotPlainError
    for name in _CALLEES.intersection(found):
        if "{" in found[name][name in CALLEE_LISTS :]:
            raise _NotPlainError  # a body in place
    text = found.pop("control-predecessors", None)
    node._attributes = found
    node._tail = None
    if text is None:
        return
    names = _CONTROL.findall(text)
    if not names or text != "{" + ", ".join("%" + n for n in names) + "}":
        raise _NotPlainError
    for name in names:
        by_name[name].note_control_edge(node)
