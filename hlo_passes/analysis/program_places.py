"""Where in the user's program an operation comes from: name, line, parameter.

    places = program_places(module)
    place = places.of(all_gather)
    place.op_name            'jit(step)/layers_3/mlp/dot_general'
    place.file, place.line   'model.py', 41
    place.parameter          "params['layers_3']['mlp']['up']"
    place.members            of a combined collective: a place for each operand

The line is the innermost one that is not in an installed package. The parameter is the
one whose shards are gathered, or to which a reduced gradient belongs
(`parameter_paths`). XLA joins names and places of what it combines:
`op_name="jit(f)/(a:b)"`, `source_file="m.py:3,m.py:7"`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hlo_passes.analysis.parameter_paths import ParameterPaths
from hlo_passes.errors import ParseError
from hlo_passes.ir.async_form import done_of, half, work_of, wrapped_instruction
from hlo_passes.ir.stack_frames import StackFrames, parse_stack_frames
from hlo_passes.whole_numbers import whole_number

if TYPE_CHECKING:
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.metadata import Metadata
    from hlo_passes.ir.module import Module

_T = TypeVar("_T")
#: What reduces: a gradient, when it becomes part of a parameter's new value.
_REDUCTIONS: Final = frozenset(("all-reduce", "reduce-scatter"))
#: Folders of installed packages, in whose files nobody looks first.
_INSTALLED: Final = re.compile(r"[/\\](site|dist)-packages[/\\]")
_FILE_AND_LINE: Final = re.compile(r"(.+):([0-9]+)\Z")


@dataclass(frozen=True, slots=True)
class ProgramPlace:
    """Where an operation comes from; what is not known is '' and 0.

    Attributes:
        op_name: the name that the user's framework gave.
        file: source file.
        line: in it, from 1.
        parameter: name of the parameter of the program that is gathered or updated;
            that of its instruction, '%param.3', if it has no op_name.
        members: of a combined operation, the place of each operand; else ().
    """

    op_name: str = ""
    file: str = ""
    line: int = 0
    parameter: str = ""
    members: tuple[ProgramPlace, ...] = ()

    @property
    def label(self) -> str:
        """The shortest name a user knows it by: its parameter, else its op_name."""
        if not self.members:
            return self.parameter or self.op_name
        first = next((m.label for m in self.members if m.label), self.op_name)
        return f"{first} and {len(self.members) - 1} more" if first else ""

    @property
    def source(self) -> str:
        """'model.py:41', '' if nobody knows it."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file

    def to_json(self) -> dict[str, Any]:
        """`op_name`, `source`, `parameter`, `members`."""
        return {
            **self._own_json(),
            "members": [member._own_json() for member in self.members],
        }

    def _own_json(self) -> dict[str, Any]:
        source = {"file": self.file, "line": self.line} if self.file else None
        return {"op_name": self.op_name, "source": source, "parameter": self.parameter}


#: Of what nobody knows where it comes from.
NOWHERE: Final = ProgramPlace()


def program_places(module: Module) -> ProgramPlaces:
    """Places of a module as it is now; asking again costs nothing until it changes."""
    kept: ProgramPlaces | None = module.kept.get(ProgramPlaces)
    if kept is None or kept.version != module.version:
        kept = module.kept[ProgramPlaces] = ProgramPlaces(module)
    return kept


class ProgramPlaces:
    """Places of one module's operations, each found once.

    Attributes:
        version: of the module when this was made.
    """

    def __init__(self, module: Module) -> None:
        """Tables are read, and values followed, when something asks for them."""
        self.version = module.version
        self._module = module
        self._found: dict[Instruction, ProgramPlace] = {}
        self._parameters = ParameterPaths(module)
        self._frames: StackFrames | None = None

    def of(self, operation: Instruction) -> ProgramPlace:
        """The place of a collective, a send or a recv, by its start."""
        found = self._found.get(operation)
        if found is None:
            found = self._found[operation] = self._place(operation)
        return found

    def plain(self, instruction: Instruction) -> ProgramPlace:
        """Name and line of any instruction, without parameter and members."""
        metadata = _metadata(instruction)
        return ProgramPlace(metadata.op_name, *self._source(metadata))

    def _place(self, operation: Instruction) -> ProgramPlace:
        metadata = _metadata(operation)
        file, line = self._source(metadata)
        count = len(operation.operands)
        if half(operation) == "start" and work_of(operation) in ("send", "recv"):
            count = 1  # the other operand is a token
        if count < 2:
            pieces = self._pieces(operation)
            if len(pieces) > 1:
                parts = (self._parameter(operation, 0, piece) for piece in pieces)
                whole = (metadata.op_name, file, line)
                members = tuple(ProgramPlace(*whole, part) for part in parts)
                return ProgramPlace(*whole, "", members)
            parameter = self._parameter(operation, 0, ())
            return ProgramPlace(metadata.op_name, file, line, parameter)
        names = _parted(_split_names(metadata.op_name), metadata.op_name, count)
        sources = _parted(_split_sources(metadata), (file, line), count)
        members = tuple(
            ProgramPlace(name, *source, self._parameter(operation, k, (k,)))
            for k, (name, source) in enumerate(zip(names, sources, strict=True))
        )
        return ProgramPlace(metadata.op_name, *sources[0], "", members)

    def _pieces(self, operation: Instruction) -> list[tuple[int, ...]]:
        """The places of gradients that are reduced as one list."""
        if work_of(operation) != "all-reduce" or not operation.operands:
            return []
        return self._parameters.pieces(operation.operands[0])

    def _parameter(self, operation: Instruction, k: int, place: tuple[int, ...]) -> str:
        """The name of the parameter that operand `k` reads, or its result updates."""
        if k >= len(operation.operands):
            return ""
        found = self._parameters.read(operation.operands[k])
        if found is None and work_of(operation) in _REDUCTIONS:
            result = done_of(operation) if half(operation) else operation
            if result is not None:
                found = self._parameters.updated(result, place)
        return "" if found is None else found.metadata.op_name or f"%{found.name}"

    def _source(self, metadata: Metadata) -> tuple[str, int]:
        """File and line: written at the instruction, or in the module's tables."""
        if metadata.source_file:
            return metadata.source_file, max(metadata.source_line, 0)
        chain = self._tables().chain(metadata.stack_frame_id)
        own = [frame for frame in chain if not _INSTALLED.search(frame.file_name)]
        for frame in own or chain:
            return frame.file_name, max(frame.line, 0)
        return "", 0

    def _tables(self) -> StackFrames:
        if self._frames is None:
            try:
                self._frames = parse_stack_frames(self._module.tables)
            except ParseError:  # tables that nobody can read name no lines
                self._frames = StackFrames()
        return self._frames


def _metadata(operation: Instruction) -> Metadata:
    """Of the start, else of what it wraps, else of the done."""
    if operation.metadata.op_name:
        return operation.metadata
    wrapped = wrapped_instruction(operation)
    if wrapped is not None and wrapped.metadata.op_name:
        return wrapped.metadata
    # Only a start has a done among its users, which may be many.
    done = done_of(operation) if half(operation) else None
    named = done is not None and done.metadata.op_name
    return done.metadata if done is not None and named else operation.metadata


def _parted(parts: list[_T], whole: _T, count: int) -> list[_T]:
    """A part for each operand; the whole for all if they do not match."""
    return parts if len(parts) == count else [whole] * count


def _split_names(op_name: str) -> list[str]:
    """`f/(a:b)` as `f/a`, `f/b`; a name that is not joined as itself."""
    depth, opening, ends = 0, -1, []
    for at in range(len(op_name) - 1, -1, -1):
        letter = op_name[at]
        depth += (letter == ")") - (letter == "(")
        if letter == ":" and depth == 1:
            ends.append(at)
        if depth == 0:
            opening = at
            break
    joined = op_name.endswith(")") and (opening == 0 or op_name[opening - 1] == "/")
    if opening < 0 or not joined or not ends:
        return [op_name]
    prefix = op_name[:opening]
    cuts = [opening, *reversed(ends), len(op_name) - 1]
    return [prefix + op_name[a + 1 : b] for a, b in itertools.pairwise(cuts)]


def _split_sources(metadata: Metadata) -> list[tuple[str, int]]:
    """`a.py:3,b.py:7` as its places; [] if it is not joined."""
    if metadata.source_line or not metadata.source_file:
        return []
    found = [_FILE_AND_LINE.match(part) for part in metadata.source_file.split(",")]
    return [
        (match[1], line)
        for match in found
        if match and (line := whole_number(match[2])) is not None
    ]
