"""The complete parser: it reads all of HLO text and gives the place of every error.

    file        = module | one instruction
    module      = [ "HloModule" name { "," attribute } ] [ tables ] { computation }
    computation = [ "ENTRY" ] name [ "(" params ")" "->" shape ] "{" instruction+ "}"
    instruction = [ "ROOT" ] name "=" [ shape ] opcode "(" operands ")" { "," attr }

It always reads the header; it reads computations only if `text/reader.py` finds a line
in a form that XLA itself would not print.
"""

from __future__ import annotations

import re

from hlo_passes.errors import ParseError, nearest
from hlo_passes.ir.attribute_text import read_attributes, skip_group, skip_string
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.lexical import NAME, RESERVED_WORDS, WORD, error, skip_trivia
from hlo_passes.ir.module import Module
from hlo_passes.ir.shape_parser import read_shape
from hlo_passes.ir.shapes import PRIMITIVE_TYPES
from hlo_passes.source import SourceText
from hlo_passes.text.instruction_parser import NO_HLO, InstructionParser

_TABLES = re.compile(r"(FileNames|FunctionNames|FileLocations|StackFrames)\b")
_ROW_NUMBER = re.compile(r"[0-9]{1,18}")
_PARAMETER = re.compile(r"%?[A-Za-z_][A-Za-z0-9_.-]*(?:[ \t\r\n]*:|(?=[ \t\r\n]))")
_SINGLE = re.compile(r"[A-Za-z_%(]")


class ModuleParser:
    """Reads one module from one source; used once."""

    def __init__(self, source: SourceText) -> None:
        """Start with nothing read."""
        self.source = source
        self.module = Module("", source)
        self._last: Computation | None = None

    # -- the module ---------------------------------------------------------

    def read_prologue(self) -> int | None:
        """Read header and tables; returns the offset after them.

        None when the text is a single instruction.
        """
        source, text = self.source, self.source.text
        at = skip_trivia(text, 0)
        if at == len(text):
            raise error(source, at, "P001", "this text has no module")
        word = WORD.match(text, at)
        if not word or word[0] != "HloModule":
            if not self._opens_computation(at):
                return None
            self.module.source_prologue = ""
            return 0
        name_at = skip_trivia(text, word.end())
        name = NAME.match(text, name_at)
        if not name or name[0] in RESERVED_WORDS:
            raise error(source, name_at, "P002", "expected the module's name")
        self.module.name = name[1]
        attributes: dict[str, str] = {}
        # XLA's lexer takes a ':' directly after a name as part of the name.
        end = name.end() + text.startswith(":", name.end())
        end = read_attributes(source, end, attributes)
        self.module._attributes = attributes
        header_end = end
        while table := _TABLES.match(text, skip_trivia(text, end)):
            end = self._skip_table(table.end())
        self.module.tables = text[header_end:end]
        self.module.source_prologue = text[:end]
        return end

    def _opens_computation(self, at: int) -> bool:
        """Whether header-less text is a module: ENTRY, or a name directly before {."""
        text = self.source.text
        word = WORD.match(text, at)
        if word and word[0] == "ENTRY":
            return True
        name = NAME.match(text, at)
        if not name:
            return False
        following = skip_trivia(text, name.end())
        if text.startswith("{", following):
            return True
        # XLA takes `f (x: f32[]) -> f32[] {` for an instruction and fails; it can only
        # be a computation, so reading it as one is safe.
        if text.startswith("(", following):
            close = skip_group(self.source, following)
            return text.startswith("->", skip_trivia(text, close))
        return False

    def _skip_table(self, at: int) -> int:
        source, text = self.source, self.source.text
        end = at
        while True:
            at = skip_trivia(text, end)
            number = _ROW_NUMBER.match(text, at)
            if not number:
                return end
            at = skip_trivia(text, number.end())
            if text.startswith('"', at):
                end = skip_string(source, at)
            elif text.startswith("{", at):
                end = skip_group(source, at)
            else:
                raise error(source, at, "P003", "expected a row of the table")

    def is_free(self, name: str) -> bool:
        """Whether no computation of that name has been read yet."""
        return name not in self.module._computations

    def add(self, computation: Computation, *, is_entry: bool) -> None:
        """Add a computation that was read completely."""
        module = self.module
        computation.module = module
        computation.touched = False
        module._computations[computation.name] = computation
        if is_entry:
            if module.entry is not None:
                raise ParseError(
                    "a second ENTRY computation",
                    code="P020",
                    location=self.source.location_in_line(computation.line, 1),
                    hint=f"the first is %{module.entry.name}",
                )
            module.entry = computation
        self._last = computation

    def finish(self) -> Module:
        """The module with its entry set."""
        module = self.module
        if self._last is None:
            raise error(
                self.source, len(self.source.text), "P001", "the module is empty"
            )
        if module.entry is None:
            module.entry = self._last
        if not module.name:
            module.name = f"module_{module.entry.name}"
        module.version = 0
        return module

    # -- computations -------------------------------------------------------

    def read_computation(self, lead_start: int) -> int | None:
        """Read the computation that follows offset `lead_start`; returns where it ends.

        None if no computation follows; the module's epilogue is then set.
        """
        source, text = self.source, self.source.text
        start = skip_trivia(text, lead_start)
        if start == len(text):
            self.module.source_epilogue = text[lead_start:]
            return None
        at = start
        # Read `ENTRY` and the name.
        is_entry = False
        word = WORD.match(text, at)
        if word and word[0] == "ENTRY":
            is_entry = True
            at = skip_trivia(text, word.end())
        name = NAME.match(text, at)
        if not name or name[0] in RESERVED_WORDS:
            hint = "a computation reads like  %name (p: f32[8]) -> f32[8] { ... }"
            if name and name[0] in PRIMITIVE_TYPES:
                hint = f"{name[0]} is an element type: write %{name[0]}"
            raise error(source, at, "P021", "expected a computation", hint)
        if not self.is_free(name[1]):
            raise error(
                source, at, "P022", f"computation %{name[1]} is defined already"
            )
        # Skip the signature: parameters and root repeat it.
        opened = skip_trivia(
            text, skip_signature(source, skip_trivia(text, name.end()))
        )
        if not text.startswith("{", opened):
            raise error(source, opened, "P023", "expected '{' to open the computation")
        # Read the instructions, then the attributes after the closing brace.
        computation = Computation(name[1])
        computation.line = source.line_of_offset(at)
        end = self.read_body(computation, opened)
        thread: dict[str, str] = {}
        foot_start = end - 1
        end = read_attributes(source, end, thread)
        for attribute in thread:
            if attribute != "execution_thread":
                raise error(
                    source, foot_start, "P024",
                    f"a computation cannot have an attribute {attribute}",
                )  # fmt: skip
        computation.execution_thread = thread.get("execution_thread", '"main"')[1:-1]
        # Keep the text around them, which printing repeats.
        computation.source_lead = text[lead_start:start]
        computation.source_head = text[start : opened + 1]
        computation.source_foot += text[foot_start:end]
        self.add(computation, is_entry=is_entry)
        return end

    def read_body(
        self, computation: Computation, opened: int, *, depth: int = 0
    ) -> int:
        """Read the instructions between braces; returns the offset after them.

        Empty bodies, two roots and repeated names are refused (P026-P028).
        """
        source, text = self.source, self.source.text
        computation.module = self.module
        computation.source_joiner = ""
        parser = InstructionParser(self, computation, depth=depth)
        at = opened + 1
        while True:
            start = skip_trivia(text, at)
            if text.startswith("}", start):
                break
            if start == len(text):
                place = source.location(opened)
                raise error(
                    source, start, "P023", "the computation is not closed",
                    f"it begins at line {place.line}, column {place.column}",
                )  # fmt: skip
            at = parser.read(at)
        if not parser.order:
            raise error(source, opened, "P026", "the computation is empty")
        parser.name_unnamed()
        computation._order = parser.order
        computation.root_is_marked = parser.root is not None
        computation.root = parser.root or parser.order[-1]
        computation.source_foot = text[at:start]
        return start + 1

    def nearest(self, name: str, known: dict[str, Instruction]) -> str:
        """A hint with the most similar name; '' if no name is similar."""
        if len(known) > 20_000:
            return ""
        return nearest(name, known, "%")

    # -- the single-instruction form ----------------------------------------

    def read_single_instruction(self) -> Module:
        """Read text that is one instruction; operands with shapes are parameters."""
        source, text = self.source, self.source.text
        at = skip_trivia(text, 0)
        if not _SINGLE.match(text, at):
            raise error(source, at, "P001", *NO_HLO)
        module = self.module
        module.name = "_"
        module._attributes = {"is_scheduled": "true"}
        module.single_instruction = True
        computation = Computation("_")
        computation.module = module
        computation.line = source.line_of_offset(at)
        computation.source_head = ""
        computation.source_joiner = ""
        computation.source_foot = ""
        # Reserve the name: bodies in the text take others.
        module._computations[computation.name] = computation
        parser = InstructionParser(self, computation, single=True)
        end = parser.read(0)
        del module._computations[computation.name]
        parser.name_unnamed()
        rest = skip_trivia(text, end)
        if rest != len(text):
            raise error(source, rest, "P029", "unexpected text after the instruction")
        computation._order = parser.order
        computation.root = parser.order[-1]
        module.source_epilogue = text[end:]
        self.add(computation, is_entry=True)
        return self.finish()


def skip_signature(source: SourceText, at: int) -> int:
    """The offset after an optional `(p: f32[8], ...) -> shape`; P025 if broken."""
    text = source.text
    if not text.startswith("(", at):
        return at
    at = skip_trivia(text, at + 1)
    while not text.startswith(")", at):
        name = _PARAMETER.match(text, at)
        if not name:
            raise error(source, at, "P025", "expected a parameter, as in p: f32[8]")
        _, at = read_shape(source, name.end())
        at = skip_trivia(text, at)
        if text.startswith(",", at):
            at = skip_trivia(text, at + 1)
        elif not text.startswith(")", at):
            raise error(source, at, "P025", "expected ',' or ')' in the signature")
    at = skip_trivia(text, at + 1)
    if not text.startswith("->", at):
        raise error(source, at, "P025", "expected '->' and the result's shape")
    _, at = read_shape(source, at + 2)
    return at
