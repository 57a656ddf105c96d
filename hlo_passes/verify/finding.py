"""A finding of the verifier: one fault, its code, its place, and how to fix it.

m.hlo:4:3: error[V006]: add takes 2 operands, but it has 1
  %r = f32[8]{0} add(%a)
   ^
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hlo_passes.source import Location

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction
    from hlo_passes.ir.module import Module


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a module.

    Attributes:
        code: V and three digits; docs/errors.md explains each.
        message: what is wrong.
        location: the place in the source; None for what was created later.
        hint: how to fix it, or ''.
        severity: 'error', or 'unknown' for an opcode or attribute that XLA does not
            know: refused by `verify`, a remark in a pipeline.
        instruction: name of the instruction, '' if the fault concerns more than one.
        computation: name of the computation, '' for the header.
    """

    code: str
    message: str
    location: Location | None = None
    hint: str = ""
    severity: str = "error"
    instruction: str = ""
    computation: str = ""

    def render(self) -> str:
        """The message as a user sees it: place, code, source line, caret, help."""
        if self.location is not None:
            place = f"{self.location}: "
        elif self.instruction:
            place = f"%{self.computation}: %{self.instruction}: "
        else:
            place = f"%{self.computation}: " if self.computation else ""
        lines = [f"{place}error[{self.code}]: {self.message}"]
        if self.location is not None and self.location.excerpt:
            lines.append(f"  {self.location.excerpt}")
            lines.append("  " + " " * self.location.caret + "^")
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding without its place: rules return it, and it is remembered."""

    code: str
    message: str
    hint: str = ""
    severity: str = "error"


class Report:
    """Collects the faults of one computation (or the header), in text order."""

    def __init__(self, computation: Computation | None = None) -> None:
        """`computation`: the one that has these faults."""
        self.computation = computation
        self.entries: list[tuple[Instruction | None, Fault]] = []

    def add(
        self,
        where: Instruction | None,
        code: str,
        message: str,
        hint: str = "",
        severity: str = "error",
    ) -> None:
        """Report a fault of an instruction, or of the computation as a whole."""
        self.entries.append((where, Fault(code, message, hint, severity)))

    def add_faults(self, where: Instruction | None, faults: Iterable[Fault]) -> None:
        """Report faults that a rule returned."""
        self.entries.extend((where, fault) for fault in faults)

    def findings(self, module: Module) -> tuple[Finding, ...]:
        """The faults with their places, in text order; equal ones appear once."""
        if not self.entries:
            return ()
        computation = self.computation
        position: dict[Instruction, int] = {}
        if computation is not None and len(self.entries) > 1:
            position = {i: k for k, i in enumerate(computation.instructions)}
        ordered = sorted(
            self.entries, key=lambda e: position.get(e[0], -1) if e[0] else -1
        )
        found: dict[Finding, None] = {}
        for where, fault in ordered:
            bare = Finding(
                fault.code,
                fault.message,
                _place(module, computation, where),
                fault.hint,
                fault.severity,
                where.name if where is not None else "",
                computation.name if computation is not None else "",
            )
            found[bare] = None
        return tuple(found)


def _place(
    module: Module, computation: Computation | None, where: Instruction | None
) -> Location | None:
    if where is not None:
        return where.location
    if module.source is None:
        return None
    line = computation.line if computation is not None else 1
    return module.source.location_in_line(line, 1) if line else None
