"""All words of all findings, as they were before: `recorded_findings.txt`.

`test_rules` has the lines and codes that are right; this has the messages and hints of
the same cases, and of faults planted into one program. After a change that is meant:
`pytest tests/verify/test_recorded_findings.py --update-cases`.
"""

from __future__ import annotations

import gzip
import pathlib
from functools import cache

import pytest

import hlo_passes
from hlo_passes.verify import findings
from hlo_passes.verify.origins import check_origin
from hlo_passes.verify.shardings import check_sharding
from tests.modules import CORPUS
from tests.verify.faults import mutants
from tests.verify.rule_cases import CASES, PROGRAM

_GOLDEN = CORPUS / "golden" / "0.12.0.1"
_FILE = "latency-hiding-scheduler.after.hlo.gz"
_RECORDED = pathlib.Path(__file__).with_name("recorded_findings.txt")


def _told(text: str) -> str:
    try:
        found = findings(hlo_passes.parse(text))
    except hlo_passes.ParseError as problem:
        return f"  {problem}"
    return "\n".join(
        f"  {f.location.line if f.location else 0}: {f.severity}[{f.code}] {f.message}"
        + (f" ({f.hint})" if f.hint else "")
        for f in found
    )


@cache
def _texts() -> dict[str, str]:
    texts = {f"case {case.name}": case.text for case in CASES}
    for seed in range(4):
        for mutant in mutants(PROGRAM, seed):
            texts[f"fault {mutant.kind} {seed}"] = mutant.text
    for seed, file in enumerate(sorted(_GOLDEN.glob(f"*/{_FILE}"))[::5]):
        text = gzip.decompress(file.read_bytes()).decode()
        for one in mutants(text, seed):
            name = f"{file.parent.name} {one.kind}"
            texts[name] = one.text
            # A second fault, which the first one must not hide.
            others = mutants(one.text, seed + 1)
            other = others[len(texts) % len(others)]
            texts[f"{name}, {other.kind}"] = other.text
    return texts


def test_what_cannot_be_read_is_told_once() -> None:
    """Another rule, V103, speaks of it."""
    shape = hlo_passes.parse_shape("f32[8]")
    assert check_sharding("{no such sharding", shape, 1) == ()
    assert check_origin("{no such origin", shape) == ()


def _recorded() -> dict[str, str]:
    found: dict[str, str] = {}
    for part in _RECORDED.read_text().split("\n\n"):
        name, _, told = part.rstrip("\n").partition("\n")
        found[name] = told
    return found


def test_findings_are_as_recorded(request: pytest.FixtureRequest) -> None:
    told = {name: _told(text) for name, text in _texts().items()}
    if request.config.getoption("--update-cases"):
        parts = (f"{name}\n{lines}".rstrip() for name, lines in told.items())
        _RECORDED.write_text("\n\n".join(parts) + "\n")
    assert told == _recorded()
