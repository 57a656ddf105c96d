"""A module: header attributes, stack-frame tables, computations, the entry.

HloModule jit_step, is_scheduled=true, entry_computation_layout={...}, num_partitions=8
FileNames ...                      kept as text
%add (...) -> f32[] { ... }        computations, callees before callers
ENTRY %main (...) -> ... { ... }
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from hlo_passes.errors import ParseError, TooLargeError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.header_values import Alias, parse_input_output_alias
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.opcodes import CALLEE_ATTRIBUTES
from hlo_passes.source import SourceText
from hlo_passes.whole_numbers import number_of_digits, whole_number

_CALLEES = frozenset(CALLEE_ATTRIBUTES)
#: How large passes may make a module: this many times, and this many instructions.
_GROWTH, _LEAST_ROOM = 4, 1_000_000


@dataclass(frozen=True, slots=True)
class Formats:
    """What reads and writes modules: functions of `text/` and `proto.py`.

    Those import the IR, which does not import them.

    Attributes:
        parse: HLO text to a module.
        text: the module as text, with the source bytes of whatever did not change.
        canonical_text: the module as text, from the IR alone.
        from_proto: a serialized HloModuleProto or HloProto to a module.
        to_proto: the module as a serialized HloModuleProto.
    """

    parse: Callable[..., Module]
    text: Callable[[Module], str]
    canonical_text: Callable[[Module], str]
    from_proto: Callable[..., Module]
    to_proto: Callable[[Module], bytes]


class Module:
    """An HLO module.

    Attributes:
        name: after `HloModule`.
        source: the text it was read from, None when made here.
        entry: the entry computation.
        tables: the stack-frame tables, verbatim ('' when there are none).
        version: grows with every change, 0 as read.
        version_as_read: a version that its source spells.
        edits: grows with every change except a new order of a computation.
        single_instruction: read from text that is one instruction.
        proto: the serialized HloModuleProto it was read from, None when it was not.
        most_instructions: how large copies of computations may make it. None: four
            times as large as it is when the first one is made, or a million.
    """

    #: `hlo_passes/connections.py` sets it.
    formats: ClassVar[Formats]

    def __init__(self, name: str, source: SourceText | None = None) -> None:
        """An empty module; the reader or `add_computation` fills it."""
        self.name = name
        self.source = source
        self.entry: Computation = None  # type: ignore[assignment]  # set by the reader
        self.tables = ""
        self.version = 0
        self.version_as_read = 0
        self.edits = 0
        self.header_touched = source is None
        self.single_instruction = False
        self.proto: bytes | None = None
        self.most_instructions: int | None = None
        # How many instructions it had once, and what copies have added since.
        self._grown: int | None = None
        # Source text in pieces, see text/printer.py.
        self.source_prologue = ""
        self.source_epilogue = ""
        self._attributes: dict[str, str] = {}
        self._computations: dict[str, Computation] = {}
        self._names: set[str] | None = None
        self._next_number: dict[str, int] = {}
        self._next_computation_number: dict[str, int] = {}
        # Computations that go before others, noted until the order is read.
        self._inserted: dict[Computation, list[Computation]] = {}
        self._inline_bodies: dict[Instruction, list[Computation]] = {}
        # What others keep with a module between runs, by the class that holds it.
        self.kept: dict[type, Any] = {}
        self._callers: tuple[int, dict[Computation, tuple[Instruction, ...]]] | None
        self._callers = None

    # -- reading ------------------------------------------------------------

    @property
    def is_as_read(self) -> bool:
        """Whether a source spells the module as it is now."""
        return self.source is not None and self.version == self.version_as_read

    @property
    def computations(self) -> tuple[Computation, ...]:
        """All computations in text order."""
        if self._inserted:
            self._settle_order()
        return tuple(self._computations.values())

    def computation(self, name: str) -> Computation | None:
        """The computation of that name (with or without `%`), or None."""
        return self._computations.get(name.removeprefix("%"))

    @property
    def attributes(self) -> Mapping[str, str]:
        """Header attribute texts by name, in the order written; read-only."""
        return MappingProxyType(self._attributes)

    def set_attribute(self, name: str, text: str | None) -> None:
        """Write the text of a header attribute; None removes it.

        A new attribute is printed where XLA prints it.
        """
        if self._attributes.get(name) == text:
            return
        if text is None:
            del self._attributes[name]
        elif name in self._attributes:
            self._attributes[name] = text
        else:
            from hlo_passes.ir.attribute_values import header_in_print_order

            self._attributes = header_in_print_order(self._attributes | {name: text})
        self.header_touched = True
        self._changed()

    @property
    def is_scheduled(self) -> bool:
        """Whether the text order is the schedule."""
        return self._attributes.get("is_scheduled") == "true"

    @property
    def replica_count(self) -> int:
        """Number of replicas, 1 unless the header says otherwise."""
        return number_of_digits(self._attributes.get("replica_count", "1"))

    @property
    def num_partitions(self) -> int:
        """Number of partitions, 1 unless the header says otherwise."""
        return number_of_digits(self._attributes.get("num_partitions", "1"))

    @property
    def input_output_aliases(self) -> tuple[Alias, ...]:
        """Typed `input_output_alias`: donated parameters, by the part of the result."""
        text = self._attributes.get("input_output_alias")
        return parse_input_output_alias(text).aliases if text else ()

    @property
    def instruction_count(self) -> int:
        """Instructions of all computations."""
        return sum(len(c.instructions) for c in self._computations.values())

    @property
    def room(self) -> int:
        """How many instructions copies of computations may make of it.

        Asking settles `most_instructions`.
        """
        if self.most_instructions is None:
            size = self.instruction_count
            self.most_instructions = max(_LEAST_ROOM, _GROWTH * size)
        return self.most_instructions

    def make_room(self, count: int) -> None:
        """Ask, before computations are copied, whether that many more are allowed.

        Raises TooLargeError (E028) if not.
        """
        most = self.room
        if self._grown is None:
            self._grown = self.instruction_count
        self._grown += count
        if self._grown > most:
            # Instructions may have been removed since.
            self._grown = self.instruction_count + count
            if self._grown > most:
                raise TooLargeError(self._grown, most)

    def callees(self, instruction: Instruction) -> tuple[Computation, ...]:
        """Computations that an instruction calls, in XLA's order; P034 if undefined."""
        attributes = instruction._attributes
        if attributes is None:
            attributes = instruction.attributes
        if _CALLEES.isdisjoint(attributes):
            return ()
        found: list[Computation] = []
        for name in CALLEE_ATTRIBUTES:
            text = attributes.get(name)
            if text is None:
                continue
            for word in text.strip("{}").split(","):
                callee_name = word.strip().removeprefix("%")
                if not callee_name:
                    continue
                callee = self._computations.get(callee_name)
                if callee is None:
                    raise ParseError(
                        f"{name}={word.strip()}: no computation of that name",
                        code="P034",
                        location=instruction.location,
                        hint="computations are defined before they are used",
                    )
                found.append(callee)
        return tuple(found)

    def callers(self, computation: Computation) -> tuple[Instruction, ...]:
        """Instructions that call a computation, in text order."""
        if self._callers is None or self._callers[0] != self.version:
            table: dict[Computation, dict[Instruction, None]] = {}
            for owner in self.computations:
                for instruction in owner.instructions:
                    for callee in instruction.called_computations:
                        table.setdefault(callee, {})[instruction] = None
            self._callers = (self.version, {c: tuple(i) for c, i in table.items()})
        return self._callers[1].get(computation, ())

    # -- changing -----------------------------------------------------------

    def add_computation(
        self, computation: Computation, *, before: Computation | None = None
    ) -> None:
        """Add a computation whose name is free, before another or at the end."""
        if computation.name in self._computations:
            msg = f"there already is a computation %{computation.name} already"
            raise ValueError(msg)
        computation.module = self
        self._computations[computation.name] = computation
        if before is not None:
            self._inserted.setdefault(before, []).append(computation)
        self._changed()

    def remove_computation(self, computation: Computation) -> None:
        """Remove a computation that nothing calls."""
        if self._inserted:
            self._settle_order()
        del self._computations[computation.name]
        # Its number is free again.
        stem, _, number = computation.name.rpartition(".")
        following = self._next_computation_number.get(stem)
        free = whole_number(number)
        if following is not None and free is not None:
            self._next_computation_number[stem] = min(free, following) or 1
        if computation.inline_owner is not None:
            computation.inline_owner.computation.touch(computation.inline_owner)
        self._changed()

    def _changed(self) -> None:
        self.edits += 1
        self.version += 1

    def _settle_order(self) -> None:
        """Bring noted insertions into the order."""
        inserted = self._inserted
        settled: dict[str, Computation] = {}
        new = {each for noted in inserted.values() for each in noted}
        for known in self._computations.values():
            # A computation is there once all that goes before it is.
            stack = [] if known in new else [known]
            while stack:
                earlier = inserted.pop(stack[-1], ())
                if earlier:
                    stack.extend(reversed(earlier))
                else:
                    each = stack.pop()
                    settled[each.name] = each
        self._computations, self._inserted = settled, {}

    def keep_inline(self, body: Computation, owner: Instruction) -> None:
        """Note that the source spells a body inside the text of its caller."""
        body.inline_owner = owner
        self._inline_bodies.setdefault(owner, []).append(body)

    def inline_bodies(self) -> Iterable[tuple[Instruction, Sequence[Computation]]]:
        """Callers, and the bodies that the source spells inside their text."""
        return self._inline_bodies.items()

    def release_inline_bodies(self, owner: Instruction) -> None:
        """Print the bodies that an instruction spells as computations of their own."""
        if self._inline_bodies:
            for body in self._inline_bodies.pop(owner, ()):
                body.inline_owner = None

    def fresh_name(self, stem: str) -> str:
        """A name that no instruction of the module has: `stem`, else `stem.N`."""
        names = self._all_names()
        if stem not in names:
            names.add(stem)
            return stem
        base, dot, number = stem.rpartition(".")
        if dot and number.isdecimal():
            stem = base
        number = self._next_number.get(stem, 1)
        while f"{stem}.{number}" in names:
            number += 1
        self._next_number[stem] = number + 1
        name = f"{stem}.{number}"
        names.add(name)
        return name

    def fresh_computation_name(self, stem: str) -> str:
        """A name that no computation of the module has: `stem`, else `stem.N`."""
        if stem not in self._computations:
            return stem
        number = self._next_computation_number.get(stem, 1)
        while f"{stem}.{number}" in self._computations:
            number += 1
        self._next_computation_number[stem] = number
        return f"{stem}.{number}"

    def note_name(self, name: str) -> None:
        """Remember that an instruction's name is taken."""
        if self._names is not None:
            self._names.add(name)

    def _all_names(self) -> set[str]:
        if self._names is None:
            self._names = {
                i.name for c in self._computations.values() for i in c.instructions
            }
        return self._names

    # -- protos and text ----------------------------------------------------

    @classmethod
    def from_proto(cls, data: bytes, *, filename: str = "<proto>") -> Module:
        """Read a serialized HloModuleProto or HloProto, through jaxlib; P042, S001."""
        return Module.formats.from_proto(data, filename=filename)

    def to_proto(self) -> bytes:
        """The serialized HloModuleProto, through jaxlib; see hlo_passes/proto.py.

        Whatever came from a proto and did not change keeps its bytes.
        """
        return Module.formats.to_proto(self)

    def to_text(self) -> str:
        """HLO text. Whatever did not change keeps its source bytes."""
        return Module.formats.text(self)

    def to_canonical_text(self) -> str:
        """HLO text made from the IR alone: no source bytes, typed attribute values."""
        return Module.formats.canonical_text(self)

    def fingerprint(self) -> str:
        """SHA-256 of the text, in hexadecimal."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def clone(self) -> Module:
        """An independent copy, read again from the text."""
        filename = self.source.filename if self.source else "<hlo>"
        copy = Module.formats.parse(self.to_text(), filename=filename)
        copy.most_instructions = self.most_instructions
        return copy

    def __repr__(self) -> str:
        """<module name>."""
        return f"<module {self.name}>"
