"""A scheduled module as it was before its collectives became asynchronous.

    Before:  %s = (f32[8], f32[16]) all-gather-start(%x), ...      is_scheduled=true
             %f = f32[8] fusion(%y), ...
             %d = f32[16] all-gather-done(%s)
    After:   %f = f32[8] fusion(%y), ...
             %g = f32[16] all-gather(%x), ...

So passes that XLA runs before its scheduler can run again: combiners, pipeliners, loop
unrolling. Streams and the mark `is_sync` are the scheduler's, and go.
"""

from __future__ import annotations

from hlo_passes.ir.async_form import done_of, half, is_collective
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.passes.asynchrony.convert_async_collectives_to_sync import (
    has_sync_form,
    replace_by_sync,
)
from hlo_passes.passes.framework.base import Report

_SCHEDULED = "is_scheduled"


def unordered(module: Module) -> Module:
    """A copy that says nothing of a schedule; its text keeps its order."""
    copy = module.clone()
    copy.set_attribute(_SCHEDULED, None)
    return copy


def plain_form(module: Module) -> Module:
    """A copy without a schedule, in which collectives are synchronous.

    A pair without a synchronous form, such as a group of collectives, stays.
    """
    copy = unordered(module)
    for computation in copy.computations:
        _make_plain(computation)
    return copy


def _make_plain(computation: Computation) -> None:
    for start in computation.instructions:
        if half(start) != "start" or not is_collective(start):
            continue
        done = done_of(start)
        if done is not None and has_sync_form(start, Report()):
            replace_by_sync(start, done, done.frontend_attributes)
