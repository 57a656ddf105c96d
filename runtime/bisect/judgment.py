"""The result of a trial: good, bad in one of several ways, or unknown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Judgment:
    """The outcome of one trial.

    Attributes:
        is_bad: True or False; None where it could not be tried.
        what: the kind of failure, equal for equal failures; or the reason why it was
            not tried.
    """

    is_bad: bool | None
    what: str = ""


GOOD = Judgment(is_bad=False)


def bad(what: str) -> Judgment:
    """A failure of that kind."""
    return Judgment(is_bad=True, what=what)


def untried(why: str) -> Judgment:
    """An unknown result, with the reason."""
    return Judgment(is_bad=None, what=why)
