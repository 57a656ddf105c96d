"""The list of passes: this package's table, and entry points of others.

Other distributions offer passes in the entry-point group `hlo_passes.passes`, one
entry per pass: its name, and the class.
"""

from __future__ import annotations

from typing import Final

from hlo_passes import plugins
from hlo_passes.errors import PipelineSpecError, nearest
from hlo_passes.passes.framework.base import Pass

GROUP = plugins.PASSES

#: Folder of `hlo_passes/passes` -> its passes. `hlo-dce` is `HloDce` in `hlo_dce.py`.
_FOLDERS: Final = {
    "asynchrony": (
        "async-collective-annotator",
        "async-collective-creator",
        "async-collective-replacer",
        "async-collective-custom-call-rewriter",
        "async-stream-attribute-wrapper",
        "convert-async-collectives-to-sync",
        "explicit-collectives-group-async-wrapper",
        "explicit-stream-annotation-async-wrapper",
        "gpu-convert-async-collectives-to-sync",
        "group-collectives-by-key",
        "stream-attribute-annotator",
    ),
    "cleanup": (
        "all-gather-cse",
        "hlo-cse",
        "hlo-dce",
        "schedule-aware-collective-cse",
        "tuple-simplifier",
    ),
    "combining": (
        "collective-permute-combiner",
        "gpu-all-gather-combiner",
        "gpu-all-reduce-combiner",
        "gpu-reduce-scatter-combiner",
    ),
    "decomposing": (
        "all-gather-decomposer",
        "all-reduce-blueconnect",
        "all-reduce-decomposer",
        "all-to-all-decomposer",
        "ragged-all-to-all-canonicalizer",
        "ragged-all-to-all-decomposer",
        "reduce-scatter-decomposer",
    ),
    "folding": (
        "all-gather-bcast-reorder",
        "all-gather-dynamic-slice-simplifier",
        "all-gather-major-dimension-rewriter",
        "all-gather-optimizer",
        "all-gather-pad-ds-simplifier",
        "all-gather-remove-degenerate-dims",
        "all-gather-simplifier",
        "all-gather-to-collective-permute-simplifier",
        "all-reduce-contiguous",
        "all-reduce-folder",
        "all-reduce-promotion",
        "all-reduce-reassociate",
        "all-reduce-reduce-scatter-reorder",
        "all-reduce-simplifier",
        "all-reduce-splitter",
        "canon-all-gather-for-cse",
        "collective-quantizer",
        "collective-transformation-reorderer",
        "reduce-scatter-creator",
        "reduce-scatter-reassociate",
        "reorder-convert-reduce-add",
        "reorder-reduce-transpose",
        "sub-byte-collective-normalization",
    ),
    "kernels": ("collective-backend-assigner",),
    "layouts": ("layout-chooser",),
    "loops": (
        "collective-pipeliner-backward",
        "collective-pipeliner-forward",
        "collective-pipeliner-forwardsink",
        "collective-pipelining-analyzer",
        "dus-accumulator-zero-init-elimination",
        "loop-double-buffer-transformer",
        "while-loop-all-reduce-code-motion",
        "while-loop-concat-code-motion",
        "while-loop-constant-sinking",
        "while-loop-expensive-invariant-code-motion",
        "while-loop-fusible-sinking",
        "while-loop-invariant-code-motion",
        "while-loop-pipeline-unroller",
        "while-loop-trip-count-annotator",
        "while-loop-unroller",
        "windowed-einsum-handler",
    ),
    "ordering": (
        "collectives-schedule-linearizer",
        "legalize-scheduling-annotations",
        "scheduling-instruction-annotator",
    ),
    "sharding": ("sharding-propagator",),
    "transfers": (
        "collective-permute-cse",
        "collective-permute-cycle-decomposer",
        "collective-permute-decomposer",
        "collective-permute-motion",
        "collective-permute-splitter",
        "collective-select-folder",
        "collective-send-recv-combiner",
        "latency-hiding-scheduler-preparation",
    ),
}
#: Passes that share a file with another: name -> module.
_ELSEWHERE: Final = {
    "gpu-convert-async-collectives-to-sync": "convert_async_collectives_to_sync"
}


def _target(folder: str, name: str) -> str:
    """`hlo-dce` -> `hlo_passes.passes.cleanup.hlo_dce:HloDce`."""
    module = _ELSEWHERE.get(name, name.replace("-", "_"))
    words = "".join(word.capitalize() for word in name.split("-"))
    return f"hlo_passes.passes.{folder}.{module}:{words}"


#: Name -> module:class. A class is imported when it is asked for.
PASSES: Final = {
    name: _target(folder, name) for folder, names in _FOLDERS.items() for name in names
}


def pass_targets() -> dict[str, str]:
    """All passes by name, sorted: 'module:class'; what is installed now.

    A name of this package always refers to its own pass; if others offer a name twice,
    the first is listed, and `find_pass` refuses it.
    """
    offered = plugins.offers(GROUP)
    others = {name: found[0].target for name, found in offered.items()}
    return dict(sorted({**others, **PASSES}.items()))


def find_pass(name: str) -> type[Pass]:
    """The class of a pass.

    Raises PipelineSpecError: U011 with the nearest name if it is unknown, U014 if two
    distributions offer it, U015 if an entry point names something that is not a pass.
    """
    offer: plugins.Offer | None
    if name in PASSES:
        offer = plugins.Offer(GROUP, name, PASSES[name], "hlo-passes")
    else:
        offer = plugins.find_offer(GROUP, name)
    if offer is None:
        raise PipelineSpecError(
            f"unknown pass {name}",
            code="U011",
            hint=nearest(name, pass_targets()) or "`hlo-passes list` shows them all",
        )
    kind = plugins.load(offer)
    if not (isinstance(kind, type) and issubclass(kind, Pass)):
        _, _, class_name = offer.target.partition(":")
        raise offer.unusable(f"{class_name} is not a subclass of Pass")
    return kind
