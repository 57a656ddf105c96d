"""Which passes XLA's GPU compiler runs between its partitioner and its scheduler.

    order("post-fusion")    ->  dus-accumulator-zero-init-elimination, hlo-dce, ...,
                                loop-double-buffer-transformer if `unrolls-loops`, ...

A row is one run of a pass, where XLA runs it. `XlaGpu` decides which switches are on.

Source: openxla/xla `xla/service/gpu/gpu_compiler.cc` (Aug 2026), and the dumps of the
compilers that jaxlib 0.10.2, 0.11.2 and 0.12.0.1 ship.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Step:
    """One run of a pass.

    Attributes:
        name: of the pass.
        switch: what turns it on; '' if it always runs.
        fixed: options that this run has, by field name.
    """

    name: str
    switch: str = ""
    fixed: Mapping[str, object] = field(default_factory=dict)


def _pipeliner(direction: str, op: str) -> Step:
    return Step(f"collective-pipeliner-{direction}", f"pipelines-{op}", {"op": op})


#: Stage of XLA -> its passes that this project has, in XLA's order.
STAGES: Final[Mapping[str, tuple[Step, ...]]] = {
    "partitioner": (Step("collective-permute-motion"),),
    "optimization": (
        Step("windowed-einsum-handler"),
        Step("hlo-cse"),
        Step("hlo-dce"),
        Step("tuple-simplifier"),
    ),
    "collective-optimizations": (
        Step("ragged-all-to-all-canonicalizer"),
        Step(
            "ragged-all-to-all-decomposer",
            "unsupported-enable-ragged-all-to-all-decomposer",
        ),
        Step(
            "ragged-all-to-all-multi-host-decomposer",
            "unsupported-enable-ragged-all-to-all-multi-host-decomposer",
        ),
        Step("all-reduce-simplifier"),
        Step("all-reduce-folder"),
        Step("all-reduce-splitter"),
        Step("all-reduce-decomposer", "unsupported-enable-all-reduce-decomposer"),
        Step("all-gather-optimizer"),
        Step("all-gather-dynamic-slice-simplifier"),
        Step("all-gather-pad-ds-simplifier"),
        Step("all-gather-to-collective-permute-simplifier"),
        Step("all-reduce-reassociate"),
        Step("reduce-scatter-reassociate"),
        Step("while-loop-all-reduce-code-motion"),
        Step("collective-quantizer"),
        Step("hlo-dce"),
        Step("collective-pipelining-analyzer"),
        _pipeliner("forward", "all-reduce"),
        _pipeliner("backward", "all-gather"),
        _pipeliner("forward", "reduce-scatter"),
        _pipeliner("forward", "move-to-host"),
        _pipeliner("backward", "move-to-device"),
        Step("collective-permute-cycle-decomposer", "enable-pipelined-p2p"),
        Step("collective-permute-decomposer", "decomposes-permutes"),
        Step("reduce-scatter-creator"),
        Step("all-gather-bcast-reorder"),
        Step("all-gather-remove-degenerate-dims"),
        Step("schedule-aware-collective-cse", "shares-collectives"),
        Step("all-reduce-promotion"),
        Step("hlo-dce"),
        Step("while-loop-trip-count-annotator"),
    ),
    "layout": (
        Step("all-gather-major-dimension-rewriter"),
        Step("sub-byte-collective-normalization"),
    ),
    "post-fusion": (
        Step(
            "dus-accumulator-zero-init-elimination",
            "enable-dus-accumulator-zero-init-elimination",
        ),
        Step("hlo-dce"),
        Step("tuple-simplifier"),
        Step("collective-combiner-annotator", "enable-heuristic-collective-combining"),
        Step("gpu-all-gather-combiner"),
        Step("gpu-all-reduce-combiner"),
        Step("gpu-reduce-scatter-combiner"),
        Step("collective-permute-combiner"),
        Step("collective-backend-assigner"),
        Step("collective-kernel-strategy-annotator"),
        Step("collective-fusion"),
        Step("group-collectives-by-key"),
        Step("all-reduce-contiguous"),
        Step("all-reduce-blueconnect", "connects-hosts"),
        Step("loop-double-buffer-transformer", "unrolls-loops"),
        Step("tuple-simplifier", "unrolls-loops"),
        Step("hlo-dce", "unrolls-loops"),
    ),
}

_OFFLOADING: Final = (
    "`enable-pipelined-host-offloading=true`, or `optimization-level=O1`"
)
#: Switch -> when it is on, in words.
SWITCHES: Final[Mapping[str, str]] = {
    "unsupported-enable-ragged-all-to-all-decomposer": (
        "`unsupported-enable-ragged-all-to-all-decomposer=true`"
    ),
    "unsupported-enable-ragged-all-to-all-multi-host-decomposer": (
        "from XLA 0.11 on, unless "
        "`unsupported-enable-ragged-all-to-all-multi-host-decomposer=false`; before "
        "that, with `=true`"
    ),
    "unsupported-enable-all-reduce-decomposer": (
        "`unsupported-enable-all-reduce-decomposer=true`"
    ),
    "pipelines-all-reduce": "`pipeline-all-reduce=on`, or `optimization-level=O1`",
    "pipelines-all-gather": "`pipeline-all-gather=on`, or `optimization-level=O1`",
    "pipelines-reduce-scatter": "unless `pipeline-reduce-scatter=off`",
    "pipelines-move-to-host": _OFFLOADING,
    "pipelines-move-to-device": _OFFLOADING,
    "enable-pipelined-p2p": "`enable-pipelined-p2p=true`",
    "decomposes-permutes": (
        "`enable-pipelined-p2p=true` or `pipeline-parallelism-opt-level=ENABLE`"
    ),
    "enable-dus-accumulator-zero-init-elimination": (
        "`enable-dus-accumulator-zero-init-elimination=true`"
    ),
    "enable-heuristic-collective-combining": (
        "`enable-heuristic-collective-combining=true`"
    ),
    "shares-collectives": "`collective-cse-distance-threshold` above 0",
    "connects-hosts": "`all-reduce-blueconnect-num-devices-per-host` above 0",
    "unrolls-loops": (
        "`enable-while-loop-unrolling` or `enable-while-loop-double-buffering=true`, "
        "or `optimization-level=O1`"
    ),
}

#: What XLA does besides, and this project does not; printed after a run.
LEFT_OUT: Final = (
    "algebraic simplification, constant folding, sinking of constants into loops",
    "layout assignment, libraries for products and convolutions, float normalization",
    "fusion, copy insertion, rematerialization: compute is priced op by op",
)


def steps() -> tuple[Step, ...]:
    """All rows, in order."""
    return tuple(step for stage in STAGES.values() for step in stage)
