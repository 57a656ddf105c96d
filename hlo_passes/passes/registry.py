"""Which passes there are: this package's table, and entry points of others.

Other distributions offer passes in the entry-point group `hlo_passes.passes`, one
entry per pass: its name, and the class.
"""

from __future__ import annotations

import functools
import importlib
import sys

from hlo_passes.errors import PipelineSpecError
from hlo_passes.passes.base import Pass
from hlo_passes.passes.spec import nearest

GROUP = "hlo_passes.passes"

#: Name -> module:class. Classes are imported when asked for.
PASSES: dict[str, str] = {
    name: f"hlo_passes.passes.{target}"
    for name, target in {
        "async-collective-annotator": (
            "async_collective_annotator:AsyncCollectiveAnnotator"
        ),
        "async-collective-creator": "async_collective_creator:AsyncCollectiveCreator",
        "async-stream-attribute-wrapper": (
            "async_stream_attribute_wrapper:AsyncStreamAttributeWrapper"
        ),
        "collective-permute-combiner": (
            "collective_permute_combiner:CollectivePermuteCombiner"
        ),
        "collective-permute-splitter": (
            "collective_permute_splitter:CollectivePermuteSplitter"
        ),
        "collectives-schedule-linearizer": (
            "collectives_schedule_linearizer:CollectivesScheduleLinearizer"
        ),
        "convert-async-collectives-to-sync": (
            "convert_async_collectives_to_sync:ConvertAsyncCollectivesToSync"
        ),
        "explicit-collectives-group-async-wrapper": (
            "explicit_collectives_group_async_wrapper:"
            "ExplicitCollectivesGroupAsyncWrapper"
        ),
        "explicit-stream-annotation-async-wrapper": (
            "explicit_stream_annotation_async_wrapper:"
            "ExplicitStreamAnnotationAsyncWrapper"
        ),
        "gpu-all-gather-combiner": "gpu_all_gather_combiner:GpuAllGatherCombiner",
        "gpu-all-reduce-combiner": "gpu_all_reduce_combiner:GpuAllReduceCombiner",
        "gpu-convert-async-collectives-to-sync": (
            "convert_async_collectives_to_sync:GpuConvertAsyncCollectivesToSync"
        ),
        "gpu-reduce-scatter-combiner": (
            "gpu_reduce_scatter_combiner:GpuReduceScatterCombiner"
        ),
        "hlo-cse": "hlo_cse:HloCse",
        "hlo-dce": "hlo_dce:HloDce",
        "latency-hiding-scheduler-preparation": (
            "latency_hiding_scheduler_preparation:LatencyHidingSchedulerPreparation"
        ),
        "legalize-scheduling-annotations": (
            "legalize_scheduling_annotations:LegalizeSchedulingAnnotations"
        ),
        "scheduling-instruction-annotator": (
            "scheduling_instruction_annotator:SchedulingInstructionAnnotator"
        ),
        "stream-attribute-annotator": (
            "stream_attribute_annotator:StreamAttributeAnnotator"
        ),
        "tuple-simplifier": "tuple_simplifier:TupleSimplifier",
    }.items()
}


def pass_targets() -> dict[str, str]:
    """All passes by name, sorted: 'module:class'; what is installed now.

    Raises PipelineSpecError U014 when two distributions offer one name.
    """
    _targets_along.cache_clear()
    return dict(_targets_along(tuple(sys.path)))


@functools.cache
def _targets_along(path: tuple[str, ...]) -> dict[str, str]:
    """`pass_targets()`; reading it takes longer than most rewrites, so only once."""
    from importlib.metadata import entry_points

    targets = dict(PASSES)
    owner = dict.fromkeys(PASSES, "hlo-passes")
    for entry in sorted(entry_points(group=GROUP), key=lambda e: (e.name, e.value)):
        distribution = entry.dist.name if entry.dist else "?"
        if targets.get(entry.name, entry.value) != entry.value:
            raise PipelineSpecError(
                f"pass {entry.name} is offered twice: by {owner[entry.name]} and "
                f"{distribution}",
                code="U014",
                hint="uninstall one of them",
            )
        targets[entry.name] = entry.value
        owner[entry.name] = distribution
    return dict(sorted(targets.items()))


def find_pass(name: str) -> type[Pass]:
    """The class of a pass; PipelineSpecError U011 with the nearest name if unknown."""
    target = PASSES.get(name) or _targets_along(tuple(sys.path)).get(name)
    # Not there when they were read: perhaps it has been installed since.
    target = target or pass_targets().get(name)
    if target is None:
        raise PipelineSpecError(
            f"there is no pass {name}",
            code="U011",
            hint=nearest(name, pass_targets()) or "`hlo-passes list` shows them all",
        )
    module_name, _, class_name = target.partition(":")
    return getattr(importlib.import_module(module_name), class_name)
