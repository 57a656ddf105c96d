"""The verifier against jaxlib's parser and verifier, in both directions."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from hlo_passes.errors import HloError
from hlo_passes.text.reader import parse
from hlo_passes.verify import findings
from tests.verify.fault_campaign import our_verdict
from tests.verify.faults import mutants
from tests.verify.rule_cases import CASES, PROGRAM, Case
from tests.verify.xla_verdict import XlaJudge

#: Seeds of the mutants; the long run is `python -m tests.verify.fault_campaign`.
SEEDS = range(4)

#: From 0.11 on jaxlib lets tuples, get-tuple-elements and the like come between a start and
#: its done; 0.10 and the verifier here ask for the done itself.
INTERMEDIARIES_SINCE = (0, 11)
AROUND_A_DONE = {"done-dropped", "generic-misused", "dropped-done"}

#: jaxlib 0.10 keeps aliases and donors when a module takes another's place.
ALIASES_SINCE = (0, 11)


def jaxlib_version() -> tuple[int, ...]:
    version = pytest.importorskip("jaxlib").__version__
    return tuple(map(int, version.split(".")[:2]))


@pytest.fixture(scope="module")
def judge() -> Iterator[XlaJudge]:
    pytest.importorskip("jax")
    xla = XlaJudge(sys.executable)
    yield xla
    xla.close()


@pytest.mark.parametrize("case", [c for c in CASES if c.ask_xla], ids=lambda c: c.name)
def test_cases_have_xlas_verdict(case: Case, judge: XlaJudge) -> None:
    version = jaxlib_version()
    if case.name in AROUND_A_DONE and version >= INTERMEDIARIES_SINCE:
        pytest.skip("this jaxlib allows intermediaries between start and done")
    if case.name.startswith(("alias-", "donor-")) and version < ALIASES_SINCE:
        pytest.skip("this jaxlib does not carry aliases into the verified module")
    stage, message = judge.verdict(case.text)
    if case.expected:
        assert stage != "accepted"
    else:
        assert stage == "accepted", message


def test_program_is_accepted(judge: XlaJudge) -> None:
    assert judge.verdict(PROGRAM) == ("accepted", "")
    assert findings(parse(PROGRAM)) == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_have_xlas_verdict(seed: int, judge: XlaJudge) -> None:
    """What XLA refuses we refuse, what it accepts we accept."""
    differing = []
    lenient = jaxlib_version() >= INTERMEDIARIES_SINCE
    for mutant in mutants(PROGRAM, seed):
        if lenient and mutant.kind in AROUND_A_DONE:
            continue
        stage, message = judge.verdict(mutant.text)
        ours = our_verdict(mutant.text)
        if stage not in ("abort", "skip") and (stage == "accepted") == bool(ours):
            differing.append(f"{mutant.kind} line {mutant.line}: {ours or message}")
    assert not differing, "\n".join(differing)


def test_faults_are_refused() -> None:
    seeded = refused = 0
    for seed in SEEDS:
        for mutant in mutants(PROGRAM, seed, each=3):
            seeded += 1
            refused += bool(our_verdict(mutant.text))
    assert seeded > 200
    assert refused / seeded >= 0.95


def test_same_seed_same_mutants() -> None:
    assert mutants(PROGRAM, 5) == mutants(PROGRAM, 5)
    assert mutants(PROGRAM, 5) != mutants(PROGRAM, 6)


def is_rendered(text: str) -> bool:
    """Whether all that is found, or the parser's error, can be shown."""
    try:
        return all(f.render() for f in findings(parse(text)))
    except HloError as problem:
        return bool(problem.render())


def test_no_mutant_escapes_as_another_exception() -> None:
    for seed in range(20):
        for mutant in mutants(PROGRAM, seed):
            assert is_rendered(mutant.text)
