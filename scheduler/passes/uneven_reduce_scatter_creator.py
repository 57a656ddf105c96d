"""Turns an all-reduce whose rows do not divide evenly into a reduce-scatter.

Before:  %a = f32[9] all-reduce(%x), replica_groups={{0,1,2,3}}, to_apply=%add, ...
         %p = f32[12] pad(%a, %zero), padding=0_3
         %d = f32[3] dynamic-slice(%p, %start)            part j at device j of a group
After:   %i = f32[12] pad(%x, %zero), padding=0_3
         %s = f32[3] reduce-scatter(%i), replica_groups={{0,1,2,3}}, dimensions={0},
                                         to_apply=%add, ...         readers of %d
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.channels import next_channel_id
from hlo_passes.analysis.text_order import restore_text_order
from hlo_passes.ir.module import Module
from hlo_passes.passes.folding.uneven_parts import uneven_part, write_uneven_part
from hlo_passes.passes.framework.base import PassContext, Report
from hlo_passes.scheduler.passes.chain_choice import collectives_of, found_in
from hlo_passes.scheduler.passes.priced_chains import Key, key_of
from hlo_passes.scheduler.passes.priced_pass import BoundedRewrite
from hlo_passes.scheduler.passes.step_trials import StepTrials


@dataclass(frozen=True, slots=True)
class UnevenReduceScatterCreator(BoundedRewrite):
    """Turn an all-reduce into a reduce-scatter although its rows do not divide evenly.

    If rows do not divide evenly among devices, XLA's partitioner reduces all rows on
    every device, pads the result, and lets each device take its part. XLA's
    `reduce-scatter-creator` looks for a slice of the all-reduce itself, so it does not
    see this. A reduce-scatter of padded rows sends about half as much. The pass pads
    before the reduction, with values that the reduction leaves alone: zeros for a sum,
    ones for a product, the padding itself for a minimum or maximum. If the padding was
    something else, the pass writes it over the last rows of each part, so every bit is
    as before, padding included.

    The pass schedules and simulates the module with all such reduce-scatters. If that
    is no faster or needs more memory than the limit, it tries them one by one. Remarks
    say what each refused one would cost.

    Nothing else may read the values in the chain of all-reduce, padding, reshape and
    slice, and none of the four may have control edges. The padding must be at the end
    of the cut dimension.

    Requires: an unscheduled module and no file of costs by name, unless `always`.
    Ensures: the step does not get longer, whether `gpu-schedule` or, unless
        `after-xla=false`, `xla-gpu` schedules it and `simulate` measures it. A second
        run changes nothing.
    Complexity: `gpu-schedule` and `simulate`, once if all of them pay, otherwise once
        more for each.
    Source: this project.

    Attributes:
        min_gain: least share of the step that the rewrite must save.
    """

    name: ClassVar[str] = "uneven-reduce-scatter-creator"
    left: ClassVar[str] = "no reduce-scatter made"
    needs_collectives: ClassVar[bool] = True

    def rewrite(self, module: Module, context: PassContext, report: Report) -> None:
        """Find what can be rewritten; then rewrite what pays."""
        found = _rewritable(module, report)
        if not found:
            return

        def write(copy: Module, places: Sequence[int]) -> None:
            _write(copy, [found[k] for k in places])

        places = list(range(len(found)))
        if not self.always:
            trials = StepTrials(self, module, context.pricing)
            places = trials.chosen(
                places,
                write,
                lambda k: f"not made a reduce-scatter: %{found[k][1]}",
                report,
                "with reduce-scatters",
            )
            trials.tell(report)
        if not places:
            return
        write(module, places)
        report.count("reduce-scatters-made", len(places))


def _rewritable(module: Module, report: Report) -> list[Key]:
    """All-reduces whose padded result is cut into one part per device."""
    found: list[Key] = []
    for all_reduce, place in collectives_of(module, ("all-reduce",)):
        cut = place or uneven_part(all_reduce, module)
        if not isinstance(cut, str):
            found.append(key_of(all_reduce))
        elif cut:
            report.remark(f"not made a reduce-scatter: %{all_reduce.name} {cut}")
    return found


def _write(module: Module, keys: Sequence[Key]) -> None:
    channel = next_channel_id(module)
    for key in keys:
        all_reduce = found_in(module, key)
        cut = uneven_part(all_reduce, module)
        assert not isinstance(cut, str)
        write_uneven_part(all_reduce, cut, channel)
        channel += all_reduce.channel_id is not None
    for name in dict.fromkeys(name for name, _ in keys):
        computation = module.computation(name)
        assert computation is not None
        restore_text_order(computation)
