"""Decides on which of the modules that XLA compiles the passes run.

    serialized HloModuleProto -> ModuleFacts -> "" (the passes run) or why they do not

JAX compiles dozens of small modules of its own (`jit_iota`, `jit_convert_element_type`)
besides a program. They are recognized by their bytes and not parsed: an opcode is a
string in the proto, so a search of the bytes finds every module that might have one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hlo_passes import proto_wire as wire
from hlo_passes.errors import PassError, UsageError
from hlo_passes.ir.opcodes import ROWS
from hlo_passes.proto_messages import (
    COMPUTATIONS,
    INPUT_OUTPUT_ALIAS,
    INSTRUCTIONS,
    OPCODE,
    opening_name,
)

#: Opcode fields of communication and asynchronous operations, as they are in the bytes:
#: key, length, name.
_OPCODES: Final = tuple(
    wire.bytes_field(OPCODE, opcode.encode())
    for opcode, row in ROWS.items()
    if row.half == "start" or (row.is_collective and not row.half)
)

#: Each of them contains one of these pieces: most modules have none.
_PIECES: Final = (
    *(b"all-", b"collective-", b"reduce-scatter", b"-start"),
    *(wire.bytes_field(OPCODE, opcode) for opcode in (b"send", b"recv")),
)


#: Characters of an option that a message repeats.
_MOST_SHOWN = 100


@dataclass(frozen=True)
class ModuleFacts:
    """Facts about a module that is not parsed yet.

    Attributes:
        data: its serialized HloModuleProto.
    """

    data: bytes

    @cached_property
    def name(self) -> str:
        """The module's name: `jit_` and the name of the function."""
        return opening_name(self.data)

    @cached_property
    def has_collectives(self) -> bool:
        """Whether it communicates; a constant that looks like an opcode counts too."""
        data = self.data
        return any(p in data for p in _PIECES) and any(o in data for o in _OPCODES)

    @cached_property
    def has_aliases(self) -> bool:
        """Whether results reuse the buffers of donated parameters."""
        return any(
            field.number == INPUT_OUTPUT_ALIAS and field.end > field.value
            for field in wire.fields(self.data)
        )

    @cached_property
    def instruction_count(self) -> int:
        """Instructions of all computations."""
        return sum(
            part.number == INSTRUCTIONS
            for field in wire.fields(self.data)
            if field.number == COMPUTATIONS
            for part in wire.fields(self.data, field.value, field.end)
        )


@dataclass(frozen=True)
class ModuleFilter:
    """Decides on which modules the passes run; all conditions must hold.

    Attributes:
        modules: a regular expression that is searched for in the module's name, or a
            function of the module's facts; None for any.
        min_instructions: smaller modules are skipped.
        max_instructions: larger ones are skipped; None for no limit.
        needs_collectives: skip modules that do not communicate.
    """

    modules: str | Callable[[ModuleFacts], bool] | None = None
    min_instructions: int = 0
    max_instructions: int | None = None
    needs_collectives: bool = False

    def __post_init__(self) -> None:
        """Refuse invalid regular expressions, and sizes that no module has (U060)."""
        least, most = self.min_instructions, self.max_instructions
        if least < 0:
            raise UsageError(
                f"min_instructions={least}", code="U060", hint="at least 0"
            )
        if most is not None and most < max(least, 1):
            raise UsageError(
                f"max_instructions={most} with min_instructions={least}: no module is "
                "of such a size",
                code="U060",
                hint=f"give at least {max(least, 1)}, or leave it out",
            )
        if not isinstance(self.modules, str):
            return
        try:
            re.compile(self.modules)
        except (re.error, RecursionError) as problem:
            raise UsageError(
                f"modules={self.modules[:_MOST_SHOWN]!r} is not a regular expression: "
                f"{problem}",
                code="U060",
                hint="a plain name is one, as in jit_step",
            ) from problem

    def why_not(self, facts: ModuleFacts) -> str:
        """Why the passes do not run on a module; '' if they do.

        Raises PassError E001 when a user's function raises.
        """
        wanted = self.modules
        if isinstance(wanted, str) and re.search(wanted, facts.name) is None:
            return f"its name does not match {wanted!r}"
        if self.needs_collectives and not facts.has_collectives:
            return "it has no collectives"
        if self.min_instructions and facts.instruction_count < self.min_instructions:
            return f"it has fewer than {self.min_instructions} instructions"
        if (
            self.max_instructions is not None
            and facts.instruction_count > self.max_instructions
        ):
            return f"it has more than {self.max_instructions} instructions"
        if callable(wanted) and not _asked(wanted, facts):
            return "the filter function rejects it"
        return ""


def _asked(function: Callable[[ModuleFacts], bool], facts: ModuleFacts) -> bool:
    try:
        return function(facts)
    except Exception as problem:
        # A user's function may raise anything, but XLA must receive one answer.
        raise PassError(
            f"a filter function failed: {type(problem).__name__}: {problem}",
            code="E001",
        ) from problem
