"""Lists of XLA's flags that somebody else recommends, as a user gives them.

    given = given_list("maxtext-a3-1vm")           one of `PUBLISHED`
    given = given_list("--xla_gpu_pipeline_all_gather=on --xla_...=2")
    given.flags_for(release)                       the text for XLA_FLAGS

The published lists are data: `published.py` has them with their addresses.
"""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.tuning.combination import Combination
from hlo_passes.scheduler.tuning.levers import LEVERS
from hlo_passes.scheduler.tuning.outcome import Outcome
from hlo_passes.scheduler.tuning.published import FLAGS, PUBLISHED
from hlo_passes.xla_release import XlaRelease

_FLAG: Final = re.compile(r"--?(xla_[a-z0-9_]+)(?:=(.*))?", re.DOTALL)
#: Of a long text, what a line repeats.
_MOST_TOLD: Final = 72

#: A flag and its value; None where there is none, as in `--xla_dump_hlo_as_text`.
Given = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class GivenList:
    """A list of flags that is tried as it is.

    Attributes:
        name: of a published list; '' for one that the user wrote.
        flags: in the order given; of two with the same name XLA takes the later one.
    """

    name: str
    flags: tuple[Given, ...]

    def unknown_to(self, release: XlaRelease) -> tuple[str, ...]:
        """Flags of a published list that a release has under no name.

        A user's own text is given to XLA as it is: XLA says what it does not know.
        """
        if not self.name:
            return ()
        return tuple(n for n, v in self.flags if _in_release(n, v, release) is None)

    def kernel_choices(self) -> tuple[str, ...]:
        """Flags that choose kernels: no model says what they do to the step."""
        return tuple(name for name, _ in self.flags if _chooses_kernels(name))

    def flags_for(self, release: XlaRelease) -> str:
        """What to put into XLA_FLAGS for a step that can be priced."""
        return " ".join(_setting(*flag) for flag in self._given_to(release))

    def levers_in(self, release: XlaRelease) -> Combination:
        """The settings of our levers that it has, word for word."""
        given = dict(self._given_to(release))
        found: dict[str, str] = {}
        for lever in LEVERS.values():
            for candidate in lever.candidates(release):
                flags = candidate.flags_in(release)
                if all(given.get(flag.name) == flag.text for flag in flags):
                    found.setdefault(lever.name, candidate.setting)
        return Combination.of(found)

    def _given_to(self, release: XlaRelease) -> list[Given]:
        """The flags that are priced, by the names that a release has for them."""
        priced = [flag for flag in self.flags if not _chooses_kernels(flag[0])]
        if not self.name:
            return priced
        found = (_in_release(*flag, release) for flag in priced)
        return [flag for flag in found if flag is not None]

    def label(self, release: XlaRelease) -> str:
        """For a line: its name, or its flags, shortened."""
        if self.name:
            return self.name
        text = " ".join(_setting(*flag) for flag in self.flags)
        return text if len(text) <= _MOST_TOLD else f"{text[: _MOST_TOLD - 3]}..."


@dataclass(frozen=True, slots=True)
class TriedList:
    """A given list and what came out.

    Attributes:
        given: it.
        flags: what XLA_FLAGS had for it, those of the environment first.
        unknown: its flags that this release does not know, left out.
        outcome: the step, or why there is none. Flags that choose kernels are not in
            it (`GivenList.kernel_choices`).
    """

    given: GivenList
    flags: str
    unknown: tuple[str, ...]
    outcome: Outcome


def _chooses_kernels(name: str) -> bool:
    return name in FLAGS and FLAGS[name].chooses_kernels


def _in_release(name: str, value: str | None, release: XlaRelease) -> Given | None:
    """A flag of a published list as a release has it; None if it does not."""
    known = FLAGS[name]
    if known.is_in(release):
        return name, value
    return (known.before, "true") if known.before and value == "on" else None


def _setting(name: str, value: str | None) -> str:
    """As XLA_FLAGS spells it; XLA takes quotes of either kind around a value."""
    if value is None:
        return f"--{name}"
    if not any(each.isspace() for each in value):
        return f"--{name}={value}"
    quote = '"' if "'" in value else "'"
    return f"--{name}={quote}{value}{quote}"


def given_list(text: str) -> GivenList:
    """The type of `--also`: flags as in XLA_FLAGS, or the name of a published list."""
    if text in PUBLISHED:
        return GivenList(text, PUBLISHED[text].flags)
    try:
        words = shlex.split(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"{text}: {problem}") from problem
    matches = [_FLAG.fullmatch(word) for word in words]
    if not words or not all(matches):
        near = difflib.get_close_matches(text, PUBLISHED, 1) or list(PUBLISHED)
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither flags of XLA, as in "
            "'--xla_gpu_pipeline_all_gather=on', nor a published list, as "
            f"{', '.join(near)}"
        )
    return GivenList("", tuple((m[1], m[2]) for m in matches if m))
