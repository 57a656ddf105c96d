"""The exception tree, and the form of a message.

    FILE:LINE:COLUMN: error[CODE]: what
      the source line
           ^
      help: how to fix it

Every error of the project derives from `HloError`, carries a stable code (explained in
docs/errors.md) and pickles.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from hlo_passes.source import Location


class HloError(Exception):
    """Root of all errors: `code`, `message`, `location` or None, `hint` or ''."""

    default_code = "H000"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        location: Location | None = None,
        hint: str = "",
    ) -> None:
        """Keep the parts; `render` joins them to the text."""
        self.message = message
        self.code = code or self.default_code
        self.location = location
        self.hint = hint
        super().__init__(message)

    def render(self) -> str:
        """The message as a user sees it: place, code, source line, caret, help."""
        place = f"{self.location}: " if self.location else ""
        lines = [f"{place}error[{self.code}]: {self.message}"]
        if self.location and self.location.excerpt:
            lines.append(f"  {self.location.excerpt}")
            lines.append("  " + " " * self.location.caret + "^")
        if self.hint:
            lines.append(f"  help: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        """The rendered message."""
        return self.render()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by parts, so that errors cross process borders in full."""
        return (
            _rebuild,
            (type(self), self.message, self.code, self.location, self.hint),
            self.__dict__,
        )


def _rebuild(
    kind: type[HloError],
    message: str,
    code: str,
    location: Location | None,
    hint: str,
) -> HloError:
    error = kind.__new__(kind)
    HloError.__init__(error, message, code=code, location=location, hint=hint)
    return error


class ParseError(HloError):
    """The text is not HLO (codes P...)."""

    default_code = "P000"


class UsageError(HloError):
    """An unknown pass, option or file; the hint has the nearest name (codes U...)."""

    default_code = "U000"


class PipelineSpecError(UsageError):
    """The text of a pipeline cannot be read."""

    default_code = "U010"


class VerificationError(HloError):
    """The verifier refused a module; `findings` holds all findings, in text order."""

    default_code = "V000"

    def __init__(self, findings: tuple[Any, ...], *, after: str = "") -> None:
        """`findings` are the verifier's; `after` names the pass at fault."""
        self.findings = findings
        self.after = after
        first = findings[0]
        super().__init__(
            first.message, code=first.code, location=first.location, hint=first.hint
        )

    def render(self) -> str:
        """All findings, one after another."""
        head = f"error: after pass {self.after}:\n" if self.after else ""
        return head + "\n".join(f.render() for f in self.findings)


class UnsupportedHloError(HloError):
    """HLO that is legal but that the project cannot handle here (codes S...)."""

    default_code = "S000"


class TooDeepError(UnsupportedHloError):
    """Computations call one another through more levels than a task follows."""

    default_code = "S016"

    def __init__(self, task: str) -> None:
        """`task`: what follows the calls, as the message names it."""
        super().__init__(
            f"{task}: computations are nested too deep",
            hint="a hundred levels of calls, loops, branches and fusions are followed",
        )


class PassError(HloError):
    """A pass failed (codes E...)."""

    default_code = "E000"


class TooLargeError(PassError):
    """What passes copy would make a module too large (`Module.most_instructions`)."""

    default_code = "E028"

    def __init__(self, instructions: int, most: int) -> None:
        """`instructions` that the module would have, `most` that it may have."""
        super().__init__(
            f"the module would have {instructions:,} instructions, more than {most:,}",
            hint="what runs twice at each level of nesting doubles with each level; in "
            "Python, Module.most_instructions allows more",
        )
        self.instructions, self.most = instructions, most


class PostconditionError(PassError):
    """A pass produced something that the verifier refuses."""

    default_code = "E002"


class FalseChangeReportError(PassError):
    """A pass said `changed` and changed nothing, or the reverse."""

    default_code = "E003"


def nearest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """'did you mean X?', the prefix before X; '' when no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {prefix}{near[0]}?" if near else ""
