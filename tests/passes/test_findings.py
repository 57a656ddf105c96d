"""Where XLA's result is wrong: with quirks ours is too, without them it is right.

The reproducers of docs/findings.md, and what XLA made of them in each release, are
evaluated with NumPy: no release of XLA judges another.
"""

from __future__ import annotations

import gzip
import pathlib
import re
from dataclasses import dataclass

import numpy as np
import pytest

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from tests.modules import REPOSITORY
from tests.runtime.evaluator import DTYPES, Evaluator

FOLDER = REPOSITORY / "docs/findings"
PAIRS = pathlib.Path(__file__).resolve().parent / "xla_pairs"
PAGE = (REPOSITORY / "docs/xla_findings.md").read_text(encoding="utf-8")
_HEAD = re.compile(r"// (.+)\n// passes: (.+)\n// releases: (.+)\n")


@dataclass(frozen=True)
class Finding:
    """A reproducer: the passes that change its meaning, and where XLA's do."""

    path: pathlib.Path
    what: str
    passes: str
    releases: tuple[str, ...]

    @property
    def module(self) -> Module:
        return hlo_passes.parse(self.path.read_text(encoding="utf-8"))

    def rewritten(self, *, xla_quirks: bool) -> tuple[Module, bool]:
        """What our passes make of it, as it is read again, and whether they did."""
        module = self.module
        context = PassContext(xla_quirks=xla_quirks)
        pipeline = hlo_passes.Pipeline.parse(self.passes, context)
        changed = pipeline.run(module, verify_each=True).changed
        return hlo_passes.parse(module.to_text()), changed


def read(path: pathlib.Path) -> Finding:
    found = _HEAD.match(path.read_text(encoding="utf-8"))
    assert found is not None, path
    what, passes, releases = found.groups()
    return Finding(
        path, what, passes, () if releases == "none" else tuple(releases.split(", "))
    )


FINDINGS = [read(path) for path in sorted(FOLDER.glob("*.hlo"))]
#: What NumPy can evaluate here; the runtime's tests run the rest.
EVALUATED = [f for f in FINDINGS if "scatter(" not in f.path.read_text("utf-8")]
#: Those that XLA's own output shows, once for each release.
SEEN = [(f, release) for f in FINDINGS for release in f.releases]


def results(module: Module) -> list[np.ndarray]:
    numbers = np.random.default_rng(0)
    devices = module.replica_count * module.num_partitions
    given = [
        numbers.integers(-99, 99, (devices, *p.shape.dimensions)).astype(dtype)
        / dtype(16 if np.issubdtype(dtype, np.floating) else 1)
        for p in module.entry.parameters
        for dtype in (DTYPES[p.shape.element_type],)
    ]
    given = [
        g.astype(DTYPES[p.shape.element_type])
        for g, p in zip(given, module.entry.parameters, strict=True)
    ]
    return Evaluator(module, module.replica_count, module.num_partitions).run(given)


def are_equal(one: Module, other: Module) -> bool:
    return all(map(np.array_equal, results(one), results(other)))


def by_name(finding: Finding) -> str:
    return finding.path.stem


@pytest.mark.parametrize("finding", EVALUATED, ids=by_name)
def test_with_quirks_the_meaning_changes(finding: Finding) -> None:
    module, changed = finding.rewritten(xla_quirks=True)
    assert changed
    assert not are_equal(finding.module, module)


@pytest.mark.parametrize("finding", EVALUATED, ids=by_name)
def test_without_quirks_the_meaning_stays(finding: Finding) -> None:
    module, _ = finding.rewritten(xla_quirks=False)
    assert are_equal(finding.module, module)


@pytest.mark.parametrize(
    ("finding", "release"), SEEN, ids=[f"{f.path.stem}-{r}" for f, r in SEEN]
)
def test_what_xla_made_of_it_means_something_else(
    finding: Finding, release: str
) -> None:
    folder = PAIRS / release / f"finding.{finding.path.stem}"
    (before,), (after,) = (
        [
            hlo_passes.parse(gzip.decompress(path.read_bytes()).decode())
            for path in folder.glob(f"*.{which}.hlo.gz")
        ]
        for which in ("before", "after")
    )
    assert not are_equal(before, after)


def test_every_pair_has_a_finding() -> None:
    recorded = {
        (p.name.removeprefix("finding."), p.parent.name)
        for p in PAIRS.glob("*/finding.*")
    }
    assert recorded == {(f.path.stem, release) for f, release in SEEN}


def test_the_page_tells_of_each() -> None:
    named = set(re.findall(r"findings/(\w+\.hlo)", PAGE))
    assert named == {finding.path.name for finding in FINDINGS}
