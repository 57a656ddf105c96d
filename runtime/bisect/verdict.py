"""What a trial showed: good, bad in one of several ways, or nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one trial.

    Attributes:
        is_bad: True or False; None where it could not be tried.
        what: the kind of failure, equal for equal failures; or why it was not tried.
    """

    is_bad: bool | None
    what: str = ""


GOOD = Verdict(is_bad=False)


def bad(what: str) -> Verdict:
    """A failure of that kind."""
    return Verdict(is_bad=True, what=what)


def untried(why: str) -> Verdict:
    """Nothing is known."""
    return Verdict(is_bad=None, what=why)
