"""Finds the harmful change of a pass: stops the pass after each change.

    change 4   good      %a = add(%x, %y)   %b = subtract(%x, %y)
    change 5   bad       %a = add(%x, %y)   %b = subtract(%y, %x)

Every change of a module goes through its methods, which count versions; a pass that is
stopped at a count leaves what it has done so far. States that the verifier refuses are
in the middle of a rewrite and are skipped.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hlo_passes.errors import HloError, VerificationError
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.runtime.bisect.judgment import Judgment
from hlo_passes.text.reader import parse
from hlo_passes.verify.verifier import verify


class _StoppedError(Exception):
    """The pass has made enough changes."""


class _CountedModule(Module):
    """A module that stops a pass at a number of changes: `limit`, a version."""

    limit: int | None = None

    @property
    def version(self) -> int:  # type: ignore[override]  # an attribute of Module
        """The version, as for any module."""
        return self.__dict__["version"]

    @version.setter
    def version(self, value: int) -> None:
        self.__dict__["version"] = value
        if self.limit is not None and value >= self.limit:
            raise _StoppedError


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The change after which a module is bad.

    Attributes:
        change: its number among the changes of the pass.
        changes: how many the pass makes.
        lines: what it does to the text: each line begins with '- ' or '+ '.
    """

    change: int
    changes: int
    lines: tuple[str, ...]


def state_after(module: Module, pipeline: Pipeline, limit: int) -> Module | None:
    """The module after a number of changes; None in the middle of a rewrite."""
    copy = module.clone()
    copy.__class__ = _CountedModule
    assert isinstance(copy, _CountedModule)
    copy.limit = copy.version + limit
    try:
        for each in pipeline.passes:
            each.run(copy, pipeline.context, Report())
    except _StoppedError:
        pass
    copy.limit = None
    text = copy.to_text()
    try:
        verify(copy, allow_unknown=True)
        return parse(text)
    except (HloError, VerificationError):
        return None


def first_bad_rewrite(
    module: Module, pipeline: Pipeline, judge: Callable[[Module, Module], Judgment]
) -> Rewrite | None:
    """The first change after which `judge` calls the module bad.

    Changes about which `judge` cannot tell are reported together with the one after
    them. None if the changes cannot be separated, or none of them alone is bad.
    """
    copy = module.clone()
    before = copy.version
    for each in pipeline.passes:
        each.run(copy, pipeline.context, Report())
    changes = copy.version - before
    good, bad = (0, module), (changes, copy)
    untold: set[int] = set()
    while bad[0] - good[0] > 1:
        found = _state_between(module, pipeline, good[0], bad[0], untold)
        if found is None:
            break
        judgment = judge(module, found[1])
        if judgment.is_bad is None:
            untold.add(found[0])
        elif judgment.is_bad:
            bad = found
        else:
            good = found
    lines = _difference(good[1].to_canonical_text(), bad[1].to_canonical_text())
    return Rewrite(bad[0], changes, lines) if lines else None


def _state_between(
    module: Module, pipeline: Pipeline, low: int, high: int, untold: set[int]
) -> tuple[int, Module] | None:
    """A complete state between two counts, near the middle; none of `untold`."""
    for count in from_the_middle(low, high):
        if count not in untold:
            state = state_after(module, pipeline, count)
            if state is not None:
                return count, state
    return None


def from_the_middle(low: int, high: int) -> Iterator[int]:
    """The numbers between two others, those near the middle first."""
    middle = (low + high) // 2
    yield from sorted(range(low + 1, high), key=lambda count: abs(count - middle))


def _difference(good: str, bad: str) -> tuple[str, ...]:
    compared = difflib.unified_diff(
        good.splitlines(), bad.splitlines(), n=0, lineterm=""
    )
    return tuple(
        f"{line[0]} {line[1:].strip()}"
        for line in compared
        if line[0] in "+-" and not line.startswith(("+++", "---")) and line[1:].strip()
    )
