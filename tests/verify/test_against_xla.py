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
from tests.verify.rule_cases import CASES, Case
from tests.verify.xla_verdict import XlaJudge

#: Seeds of the mutants; the long run is `python -m tests.verify.fault_campaign`.
SEEDS = range(4)

PROGRAM = """\
HloModule step, is_scheduled=true, num_partitions=4

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused (a: f32[8,16], b: f32[16]) -> f32[8,16] {
  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[16]{0} parameter(1)
  %spread = f32[8,16]{1,0} broadcast(%b), dimensions={1}
  ROOT %scaled = f32[8,16]{1,0} multiply(%a, %spread)
}

%body (s: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %s = (s32[], f32[8,16]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %value = f32[8,16]{1,0} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %moving = (f32[8,16]{1,0}, f32[8,16]{1,0}) collective-permute-start(%value), channel_id=1, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
  %squared = f32[8,16]{1,0} multiply(%value, %value)
  %moved = f32[8,16]{1,0} collective-permute-done(%moving)
  %joined = f32[8,16]{1,0} add(%moved, %squared), control-predecessors={%next}
  ROOT %state = (s32[], f32[8,16]{1,0}) tuple(%next, %joined)
}

%condition (s.1: (s32[], f32[8,16])) -> pred[] {
  %s.1 = (s32[], f32[8,16]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %last = s32[] constant(4)
  ROOT %less = pred[] compare(%i.1, %last), direction=LT
}

ENTRY %main (p0: f32[8,16], p1: f32[16], p2: f32[16,32]) -> (f32[8,32], f32[], f32[32,16]) {
  %p0 = f32[8,16]{1,0} parameter(0), sharding={replicated}
  %p1 = f32[16]{0} parameter(1)
  %p2 = f32[16,32]{1,0} parameter(2)
  %zero = s32[] constant(0)
  %weights = f32[2]{0} constant({0.5, 2})
  %fusion = f32[8,16]{1,0} fusion(%p0, %p1), kind=kLoop, calls=%fused
  %begin = (s32[], f32[8,16]{1,0}) tuple(%zero, %fusion)
  %loop = (s32[], f32[8,16]{1,0}) while(%begin), condition=%condition, body=%body
  %out = f32[8,16]{1,0} get-tuple-element(%loop), index=1
  %product = f32[8,32]{1,0} dot(%out, %p2), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %gathering = (f32[8,16]{1,0}, f32[32,16]{1,0}) all-gather-start(%out), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}, use_global_device_ids=true
  %reduced = f32[8,32]{1,0} all-reduce(%product), channel_id=3, replica_groups={{0,1},{2,3}}, use_global_device_ids=true, to_apply=%add
  %gathered = f32[32,16]{1,0} all-gather-done(%gathering)
  %start = f32[] constant(0)
  %total = f32[] reduce(%reduced, %start), dimensions={0,1}, to_apply=%add
  ROOT %result = (f32[8,32]{1,0}, f32[], f32[32,16]{1,0}) tuple(%reduced, %total, %gathered)
}
"""


#: jaxlib 0.12 lets tuples, get-tuple-elements and the like stand between a start and
#: its done; 0.10 and the verifier here ask for the done itself.
INTERMEDIARIES_SINCE = (0, 12)
AROUND_A_DONE = {"done-dropped", "generic-misused", "dropped-done"}

#: jaxlib 0.10 leaves aliases and donors behind when a module takes another's place.
ALIASES_SINCE = (0, 12)


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
        pytest.skip("this jaxlib lets intermediaries stand between start and done")
    if case.name.startswith(("alias-", "donor-")) and version < ALIASES_SINCE:
        pytest.skip("this jaxlib does not carry aliases into the verified module")
    stage, message = judge.verdict(case.text)
    if case.codes:
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


def test_no_mutant_escapes_as_another_exception() -> None:
    for seed in range(20):
        for mutant in mutants(PROGRAM, seed):
            try:
                found = findings(parse(mutant.text))
            except HloError as problem:
                assert problem.render()
            else:
                assert all(f.render() for f in found)
