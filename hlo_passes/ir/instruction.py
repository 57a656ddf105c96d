"""One instruction: shape, opcode, operands, users, control edges and attribute text.

    %cp = f32[8]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,1}}
     |      |              |            |        |
    name  shape         opcode     operands  attributes: verbatim text until asked for

An instruction compares by identity. Its edges (operands, users, control edges) change
only through its `Computation`; its attributes through `set_attribute` and the typed
properties. Every change drops the kept source text, so that the printer writes the
instruction anew.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from hlo_passes.errors import ParseError
from hlo_passes.ir.attribute_forms import NO_ATTRIBUTES, Form, split_form
from hlo_passes.ir.attribute_text import split_attributes
from hlo_passes.ir.attribute_values import in_print_order, one_spelling, value_spelling
from hlo_passes.ir.metadata import (
    BackendConfig,
    FrontendAttributes,
    Metadata,
    parse_backend_config,
    parse_frontend_attributes,
    parse_metadata,
)
from hlo_passes.ir.replica_groups import (
    ReplicaGroups,
    SourceTargetPairs,
    parse_replica_groups,
    parse_source_target_pairs,
)
from hlo_passes.ir.small_values import parse_ints
from hlo_passes.source import Location
from hlo_passes.whole_numbers import number_of_digits

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.shapes import Shape

_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})
_NO_NAMES: frozenset[str] = frozenset()

# These facts are read most often, so they are read without splitting attributes. Each
# expression matches a form that XLA prints; for other text the attributes are split.
_CALLS_PLAINLY = {
    "fusion": re.compile(r", kind=k[A-Z][a-z]+, calls=%([\w.-]+)(?=,|$)"),
    "reduce": re.compile(r", dimensions=\{[0-9,]*\}, to_apply=%([\w.-]+)(?=,|$)"),
}
_INDEX = re.compile(r", index=([0-9]{1,9})(?=,|$)")


class Instruction:
    """A node of the graph; made by the reader or by `Computation.add`.

    Attributes:
        name: without `%`, unique in its computation.
        opcode: as printed: 'add', 'all-gather-start', 'reduce-scatter-start' (sugar).
        shape: of the result.
        operands: the instructions read, in order; the same one may occur twice.
        literal: the text between the parentheses of a `constant` (verbatim), the
            number of a `parameter`, else None.
        computation: the owner.
        line: 1-based line in the source, 0 for an instruction made here.
    """

    __slots__ = (
        "_attributes", "_control_predecessors", "_control_successors", "_tail",
        "_text", "_users", "computation", "line", "literal", "name", "opcode",
        "operands", "removed", "shape",
    )  # fmt: skip

    name: str
    opcode: str
    shape: Shape
    operands: tuple[Instruction, ...]
    literal: str | None
    computation: Computation
    line: int
    removed: bool
    # The attributes are kept as text, as a table, or as both, which then say the same.
    # Nothing outside `ir/` and `text/` reads them.
    #: None: not split yet, see `_tail`. It is replaced, never changed: others may share
    #: it.
    _attributes: Mapping[str, str] | None
    #: ", name=value, name=value"; None: not written yet, see `_attributes`.
    _tail: str | None
    _text: str | None  # the source text, None once touched
    #: Each user once; a list (small) as read, a table once edges change.
    _users: list[Instruction] | dict[Instruction, None]
    #: Each once, in the order of adding; () for most, which have none.
    _control_predecessors: dict[Instruction, None] | tuple[()]
    _control_successors: dict[Instruction, None] | tuple[()]

    def __init__(
        self,
        name: str,
        opcode: str,
        shape: Shape,
        operands: tuple[Instruction, ...] = (),
        attributes: Mapping[str, str] | None = None,
        *,
        literal: str | None = None,
    ) -> None:
        """A detached instruction; `Computation.add` puts it into a graph."""
        self.name = name
        self.opcode = opcode
        self.shape = shape
        self.operands = tuple(operands)
        self.literal = literal
        self.line = 0
        self.removed = False
        self._attributes = dict(attributes or {})
        self._tail = None
        self._text = None
        self._users = []
        self._control_predecessors = ()
        self._control_successors = ()

    # -- edges --------------------------------------------------------------

    @property
    def users(self) -> tuple[Instruction, ...]:
        """Instructions that read this one, each once, in the order of adding."""
        return tuple(self._users)

    @property
    def user_count(self) -> int:
        """Number of distinct users."""
        return len(self._users)

    def note_user(self, user: Instruction) -> None:
        """Note a user while reading: all operands of one user are noted in a row."""
        users = self._users
        if isinstance(users, dict):
            users[user] = None
        elif not users or users[-1] is not user:
            users.append(user)

    def note_control_edge(self, then: Instruction) -> bool:
        """Note that `then` runs after this one; False if that is noted already."""
        predecessors = then._control_predecessors or {}
        if self in predecessors:
            return False
        predecessors[self] = None
        then._control_predecessors = predecessors
        successors = self._control_successors or {}
        successors[then] = None
        self._control_successors = successors
        return True

    def forget_control_edge(self, then: Instruction) -> bool:
        """Take away that `then` runs after this one; False if that was not noted."""
        predecessors = then._control_predecessors
        successors = self._control_successors
        if not predecessors or not successors or self not in predecessors:
            return False
        del predecessors[self], successors[then]
        return True

    def user_table(self) -> dict[Instruction, None]:
        """The users as the table that only `Computation` changes."""
        users = self._users
        if isinstance(users, list):
            users = self._users = dict.fromkeys(users)
        return users

    @property
    def control_predecessors(self) -> tuple[Instruction, ...]:
        """Instructions that must run before this one."""
        return tuple(self._control_predecessors)

    @property
    def control_successors(self) -> tuple[Instruction, ...]:
        """Instructions that must run after this one."""
        return tuple(self._control_successors)

    @property
    def is_root(self) -> bool:
        """Whether its value is the computation's result."""
        return self.computation.root is self

    @property
    def parameter_number(self) -> int:
        """Number of a parameter; ValueError for anything else."""
        if self.opcode != "parameter" or self.literal is None:
            msg = f"%{self.name} is not a parameter"
            raise ValueError(msg)
        return number_of_digits(self.literal)

    @property
    def tuple_index(self) -> int:
        """`index=` of a get-tuple-element; ValueError for anything else."""
        if self.opcode != "get-tuple-element":
            msg = f"%{self.name} is not a get-tuple-element"
            raise ValueError(msg)
        if self._attributes is None and self._tail is not None:
            plain = _INDEX.match(self._tail)
            if plain:
                return int(plain[1])
        return number_of_digits(self.attributes["index"])

    @property
    def tuple_index_or_none(self) -> int | None:
        """`index=` of a get-tuple-element, None for anything else."""
        return self.tuple_index if self.opcode == "get-tuple-element" else None

    @property
    def called_computations(self) -> tuple[Computation, ...]:
        """Callees in XLA's order (while: body, condition); () for most opcodes."""
        tail = self._tail
        if self._attributes is None and tail is not None:
            if not _may_call(tail):
                return ()
            form = _CALLS_PLAINLY.get(self.opcode)
            plain = form.match(tail) if form else None
            if plain and not _may_call(tail[plain.end() :]):
                body = self.computation.module.computation(plain[1])
                if body is not None:
                    return (body,)
        elif not self._attributes:
            return ()
        return self.computation.module.callees(self)

    # -- attributes ---------------------------------------------------------

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attribute texts by name, in the order written; read-only.

        Raises ParseError P030-P039 at the place of the fault when the text after the
        operands cannot be split.
        """
        if self._attributes is None:
            if not self._tail:
                return _NO_ATTRIBUTES
            try:
                self._attributes = split_attributes(self._tail)
            except ParseError as problem:
                raise self._in_place(problem) from None
        return MappingProxyType(self._attributes)

    def mentions(self, word: str) -> bool:
        """Whether the text of the attributes holds a word, such as the name of one.

        The answer is cheap because nothing is split. False is certain. True may also
        come from another place, such as a string that holds the word.
        """
        tail = self._tail
        return word in (self._written_tail() if tail is None else tail)

    def attribute_text(self, without: frozenset[str] = _NO_NAMES) -> str:
        """`, name=value` of all attributes in XLA's order and spelling; for keys.

        Equal attributes give equal text however they are spelled. A value that cannot
        be read keeps its text. Names in `without` are left out.
        """
        tail = self._tail
        if tail is None:
            tail = self._written_tail()
        shape = self.shape
        # The spelling of a sharding depends on the shape of a tuple.
        sharded = shape if shape.is_tuple and "sharding=" in tail else None
        return one_spelling(tail, self.opcode, without, sharded)

    def integers(self, name: str) -> tuple[int, ...]:
        """The numbers of a list such as `dimensions`; () where it is not there.

        Blanks and comments between them do not count. Raises ParseError P202.
        """
        text = self.attributes.get(name)
        return () if text is None else parse_ints(text)

    def spelling_of(self, name: str) -> str | None:
        """The text of one attribute in the spelling that equal values share, or None.

        Compare these instead of the texts of `attributes`, which may differ in blanks.
        """
        text = self.attributes.get(name)
        if text is None:
            return None
        sharded = self.shape if name == "sharding" and self.shape.is_tuple else None
        return value_spelling(name, text, self.opcode, sharded)

    @property
    def attribute_form(self) -> tuple[Form, str, str] | None:
        """Form, callee and metadata of its attributes; see `ir/attribute_forms.py`.

        None where the attributes are not kept as text, or not all are attributes.
        """
        tail = self._tail
        if tail is None or self._control_predecessors:
            return None
        return split_form(tail) if tail else NO_ATTRIBUTES

    def _written_tail(self) -> str:
        """`, name=value` of all attributes as they were spelled."""
        if self._tail is None:
            self._tail = "".join(
                [f", {name}={text}" for name, text in (self._attributes or {}).items()]
            )
        return self._tail

    @property
    def is_as_read(self) -> bool:
        """Whether a source spells it and nobody has changed it since."""
        return self._text is not None

    def is_spelled_like(self, other: Instruction) -> bool:
        """Whether both have their source text, and it is the same text.

        Blanks around it do not count. False says nothing about the instructions.
        """
        mine, yours = self._text, other._text
        return mine is not None and yours is not None and mine.strip() == yours.strip()

    def set_attribute(self, name: str, text: str | None) -> None:
        """Write the text of an attribute; None removes it.

        A new attribute is printed where XLA prints it.
        """
        current = dict(self.attributes)
        if current.get(name) == text:
            return
        if text is None:
            del current[name]
        elif name in current:
            current[name] = text
        else:
            current[name] = text
            current = in_print_order(current, self.opcode)
        self._attributes = current
        self._tail = None
        self.computation.touch(self)

    @property
    def replica_groups(self) -> ReplicaGroups | None:
        """Typed `replica_groups`; None where there is none."""
        text = self.attributes.get("replica_groups")
        return None if text is None else parse_replica_groups(text)

    @replica_groups.setter
    def replica_groups(self, value: ReplicaGroups | None) -> None:
        self.set_attribute("replica_groups", value and value.to_text())

    @property
    def source_target_pairs(self) -> SourceTargetPairs | None:
        """Typed `source_target_pairs`; None where there are none."""
        text = self.attributes.get("source_target_pairs")
        return None if text is None else parse_source_target_pairs(text)

    @source_target_pairs.setter
    def source_target_pairs(self, value: SourceTargetPairs) -> None:
        self.set_attribute("source_target_pairs", value.to_text())

    @property
    def channel_id(self) -> int | None:
        """`channel_id`, None where there is none."""
        text = self.attributes.get("channel_id")
        return None if text is None else number_of_digits(text)

    @channel_id.setter
    def channel_id(self, value: int | None) -> None:
        self.set_attribute("channel_id", None if value is None else str(value))

    @property
    def use_global_device_ids(self) -> bool:
        """Whether replica groups hold flattened ids."""
        return self.attributes.get("use_global_device_ids") == "true"

    @property
    def metadata(self) -> Metadata:
        """Typed `metadata`; an empty one where there is none."""
        return parse_metadata(self.attributes.get("metadata", "{}"))

    @metadata.setter
    def metadata(self, value: Metadata) -> None:
        self.set_attribute("metadata", value.to_text() or None)

    @property
    def frontend_attributes(self) -> FrontendAttributes:
        """Typed `frontend_attributes`; an empty mapping where there are none."""
        return parse_frontend_attributes(
            self.attributes.get("frontend_attributes", "{}")
        )

    @frontend_attributes.setter
    def frontend_attributes(self, value: FrontendAttributes) -> None:
        self.set_attribute("frontend_attributes", value.to_text() if value else None)

    @property
    def backend_config(self) -> BackendConfig | None:
        """Typed `backend_config` (text and JSON view); None where there is none."""
        text = self.attributes.get("backend_config")
        return None if text is None else parse_backend_config(text)

    @backend_config.setter
    def backend_config(self, value: BackendConfig | None) -> None:
        self.set_attribute("backend_config", value and value.to_text())

    # -- place --------------------------------------------------------------

    @property
    def location(self) -> Location | None:
        """Its place in the source; None for an instruction made here."""
        source = self.computation.module.source
        if not self.line or source is None:
            return None
        location = source.location_in_line(self.line, 1)
        start = source.offset_of_line(self.line)
        end = source.text.find("\n", start)
        column = source.text.find(self.name, start, end if end >= 0 else None) - start
        return (
            source.location_in_line(self.line, column + 1) if column > 0 else location
        )

    def _in_place(self, problem: ParseError) -> ParseError:
        """The error of `_tail` with its column in the source line."""
        source, location = self.computation.module.source, problem.location
        if source is None or not self.line or location is None:
            return problem
        start = source.offset_of_line(self.line)
        within = source.text.find(self._tail or "", start) - start
        place = source.location_in_line(
            self.line, within + location.column if within >= 0 else 1
        )
        return ParseError(
            problem.message, code=problem.code, location=place, hint=problem.hint
        )

    def __repr__(self) -> str:
        """<%name = shape opcode>."""
        return f"<%{self.name} = {self.shape.text} {self.opcode}>"


class RewiredInstruction(Instruction):
    """What an instruction is while replaced operands of it are only noted.

    Replacing each of n operands takes n steps then, not n times n. Reading the operands
    writes them down, and it is a plain `Instruction` again. That is a class of its own
    so that reading those of all others costs nothing more.
    """

    __slots__ = ()

    @property
    def operands(self) -> tuple[Instruction, ...]:  # type: ignore[override]
        """The instructions read, in order."""
        self.computation.settle_operands(self)
        return self.operands


def _may_call(text: str) -> bool:
    """Whether attribute text may name a callee; several times faster than a search.

    See `opcodes.CALLEE_ATTRIBUTES`: four of them end in `computation` or its plural.
    """
    return (
        "calls=" in text
        or "to_apply=" in text
        or "computation" in text
        or "body=" in text
        or "condition=" in text
        or "select=" in text
        or "scatter=" in text
    )
