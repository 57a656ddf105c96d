"""Our passes against XLA's own, where the corpus shows them change nothing."""

from __future__ import annotations

import pathlib

import pytest

from hlo_passes.conformance.judge import Pair, find_pairs, judge
from hlo_passes.passes.framework.registry import PASSES

PAIRS, UNKNOWN = find_pairs(pathlib.Path(__file__).resolve().parent / "xla_pairs")

#: Passes that the corpus' own recordings do not include.
FOLDING = {name for name, target in PASSES.items() if ".passes.folding." in target}


#: Those that XLA:GPU runs, in other folders.
MAKING = {
    "all-reduce-blueconnect",
    "all-reduce-decomposer",
    "async-collective-custom-call-rewriter",
    "group-collectives-by-key",
    "ragged-all-to-all-canonicalizer",
    "ragged-all-to-all-decomposer",
    "ragged-all-to-all-multi-host-decomposer",
    "schedule-aware-collective-cse",
}
#: Those that XLA:GPU does not run.
ELSEWHERE = {
    "all-gather-simplifier",
    "all-reduce-reduce-scatter-reorder",
    "canon-all-gather-for-cse",
    "collective-transformation-reorderer",
    "reorder-convert-reduce-add",
    "reorder-reduce-transpose",
}


def test_there_are_pairs_of_every_such_pass() -> None:
    assert {pair.pass_name for pair in PAIRS} == {
        "collective-backend-assigner",
        "collective-combiner-annotator",
        "collective-fusion",
        "collective-kernel-strategy-annotator",
        "collective-permute-cse",
        "collective-permute-cycle-decomposer",
        "collective-permute-decomposer",
        "collective-permute-motion",
        *(FOLDING - ELSEWHERE),
        *MAKING,
        "collective-permute-combiner",
        "collective-pipeliner-backward",
        "collective-pipeliner-forward",
        "collective-pipelining-analyzer",
        "dus-accumulator-zero-init-elimination",
        "explicit-collectives-group-async-wrapper",
        "explicit-stream-annotation-async-wrapper",
        "gpu-memory-space-assignment",
        "hlo-cse",
        "hlo-dce",
        "latency-hiding-scheduler-preparation",
        "legalize-scheduling-annotations",
        "loop-double-buffer-transformer",
        "scheduler-memory-fencing",
        "scheduling-instruction-annotator",
        "stream-attribute-annotator",
        "tuple-simplifier",
        "while-loop-all-reduce-code-motion",
        "while-loop-trip-count-annotator",
        "windowed-einsum-handler",
    }
    assert not UNKNOWN


@pytest.mark.parametrize(
    "pair",
    PAIRS,
    ids=lambda p: f"{p.before.parts[-3]}-{p.before.parts[-2]}-{p.pass_name}",
)
def test_we_do_what_xla_does(pair: Pair) -> None:
    verdict = judge(pair)
    assert verdict.xla_changed
    assert verdict.is_equal, verdict.difference
