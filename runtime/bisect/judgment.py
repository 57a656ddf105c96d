"""The result of a trial: good, bad in one of several ways, or unknown."""

from __future__ import annotations

from dataclasses import dataclass, field

from hlo_passes.runtime.devices import RuntimeHostError


@dataclass(frozen=True, slots=True)
class Judgment:
    """The outcome of one trial.

    Attributes:
        is_bad: True or False; None where it could not be tried.
        what: the kind of failure, equal for equal failures; or the reason why it was
            not tried.
        detail: figures of this trial, which make no other failure of it.
    """

    is_bad: bool | None
    what: str = ""
    detail: str = field(default="", compare=False)

    @property
    def text(self) -> str:
        """What happened, with the figures."""
        what = self.what or "good"
        return f"{what} ({self.detail})" if self.detail else what


GOOD = Judgment(is_bad=False)


def bad(what: str, detail: str = "") -> Judgment:
    """A failure of that kind."""
    return Judgment(is_bad=True, what=what, detail=detail)


def untried(why: str, detail: str = "") -> Judgment:
    """An unknown result, with the reason."""
    return Judgment(is_bad=None, what=why, detail=detail)


class UndecidedError(RuntimeHostError):
    """Nothing could be tried, or the time was over before anything was found."""

    default_code = "R011"


class TimeIsUpError(Exception):
    """The time for the whole search ended in the middle of a trial."""
