"""Runs our pass on every before/after pair of a folder that has its name.

    FOLDER/**/PASS.before.hlo[.gz]   in
    FOLDER/**/PASS.after.hlo[.gz]    what XLA made of it
    FOLDER/**/oracle.json            flags of that compilation, and for which machine;
                                     options follow from them
    FOLDER/**/PASS.options           option text, instead of those flags

Below a folder whose name holds a release of XLA, as `0.12.0.1`, passes follow it,
unless their option text names another one. Else they follow the release that the
recorded modules of the pair's folder say.
"""

from __future__ import annotations

import functools
import os
import re
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from hlo_passes.analysis.followed_release import followed_release, releases_of
from hlo_passes.conformance.equality import first_difference
from hlo_passes.conformance.recorded_flags import (
    is_switched_off,
    recorded_options,
    recorded_pricing,
)
from hlo_passes.errors import HloError, UsageError
from hlo_passes.files import read_module
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.passes.framework.registry import find_pass, pass_targets
from hlo_passes.passes.framework.spec import option_values, parse_steps

_SUFFIXES = (".hlo", ".hlo.gz")
#: Matches a release in a folder's name.
_RELEASE: Final = re.compile(r"0\.\d+(\.\d+)*")
#: Pass -> options with which it writes as much as XLA, and no shorter form of it.
_AS_LONG_AS_XLA: Final = {
    "while-loop-all-reduce-code-motion": {"most-constants": str(2**62)}
}


@dataclass(frozen=True, slots=True)
class Pair:
    """One recorded run of a pass."""

    pass_name: str
    before: Path
    after: Path


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of our pass on one pair.

    Attributes:
        pair: what was judged.
        difference: '' when the results are equal, else the first difference, or why the
            pair could not be judged.
        xla_changed: whether XLA's pass changed the module at all.
        seconds: time of our pass alone.
    """

    pair: Pair
    difference: str
    xla_changed: bool
    seconds: float

    @property
    def is_equal(self) -> bool:
        """Whether our result is XLA's."""
        return not self.difference

    def to_json(self, folder: Path) -> dict[str, Any]:
        """For `--json`."""
        return {
            "pass": self.pair.pass_name,
            "before": str(self.pair.before.relative_to(folder)),
            "equal": self.is_equal,
            "difference": self.difference,
            "xla_changed": self.xla_changed,
            "seconds": self.seconds,
        }


def find_pairs(folder: Path) -> tuple[list[Pair], dict[str, int]]:
    """Pairs whose pass we have, and the number of other pairs.

    Raises UsageError U030 when the folder is not there or holds no pair.
    """
    # pathlib's own question fails where a name is too long.
    if not os.path.isdir(folder):
        raise UsageError(f"{folder}: no such folder", code="U030")
    pairs: list[Pair] = []
    without: dict[str, int] = {}
    known = pass_targets()
    for before in sorted(folder.rglob("*.before.hlo*")):
        suffix = next((s for s in _SUFFIXES if before.name.endswith(s)), None)
        if suffix is None:
            continue
        name = before.name.removesuffix(f".before{suffix}")
        after = before.with_name(f"{name}.after{suffix}")
        if not after.is_file():
            continue
        if name in known:
            pairs.append(Pair(name, before, after))
        else:
            without[name] = without.get(name, 0) + 1
    if not pairs and not without:
        raise UsageError(
            f"{folder}: no PASS.before.hlo with its PASS.after.hlo below it",
            code="U030",
            hint="the folder is laid out as MODULE/VARIANT/PASS.before.hlo.gz",
        )
    return pairs, without


def judge(pair: Pair) -> Verdict:
    """Run our pass on the module before, and compare with the module after.

    A file that cannot be read is a difference of this pair; the others are still
    judged.
    """
    try:
        expected = read_module(str(pair.after))
        changed = first_difference(read_module(str(pair.before)), expected) != ""
        module = read_module(str(pair.before))
        folder = pair.before.parent
        context = PassContext(recorded_pricing(folder))
        off = is_switched_off(folder, pair.pass_name)
        wanted = None if off else _pass_of(pair)
    except HloError as problem:
        place = f"{problem.location}: " if problem.location else ""
        why = f"not judged: {place}[{problem.code}] {problem.message}"
        return Verdict(pair, why, xla_changed=False, seconds=0.0)
    started = time.perf_counter()
    try:
        if wanted is not None:
            wanted.run(module, context, Report())
    except HloError as problem:
        seconds = time.perf_counter() - started
        return Verdict(pair, f"the pass failed: {problem.message}", changed, seconds)
    seconds = time.perf_counter() - started
    return Verdict(pair, first_difference(module, expected), changed, seconds)


def _pass_of(pair: Pair) -> Any:
    kind = find_pass(pair.pass_name)
    options = pair.before.with_name(f"{pair.pass_name}.options")
    if options.is_file():
        text = options.read_text(encoding="utf-8").strip()
        (step,) = parse_steps(f"{pair.pass_name}{{{text}}}")
        found = dict(step.options)
    else:
        found = recorded_options(pair.before.parent, pair.pass_name)
    release = _release_of(pair.before)
    if release and "xla" in {f.name for f in fields(kind)}:
        found.setdefault("xla", release)
    found = {**_AS_LONG_AS_XLA.get(pair.pass_name, {}), **found}
    return kind(**option_values(kind, pair.pass_name, tuple(found.items())))


def _release_of(file: Path) -> str:
    """The release in the nearest folder's name, else what the modules beside it say.

    '' where neither says anything.
    """
    for part in reversed(file.resolve().parts[:-1]):
        if found := _RELEASE.search(part):
            return found[0]
    return _recorded_release(file.parent)


@functools.cache
def _recorded_release(folder: Path) -> str:
    """The release that the results of a folder say; all are of one compilation."""
    for file in sorted(folder.glob("*.after.hlo*")):
        try:
            module = read_module(str(file))
        except HloError:
            continue  # it is a difference of its own pair
        if releases_of(module):
            return followed_release(module).name
    return ""
