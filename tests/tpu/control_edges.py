"""Control edges out of starts, put into a compilation right before XLA:TPU's scheduler.

    %s = ... collective-permute-start(%p)
    %f = f32[8] fusion(%q), ..., control-predecessors={%s}       added
    %d = f32[8] collective-permute-done(%s)

A program in JAX makes none. With them the compiler's log says what latency an edge has
from a start to what is not its done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hlo_passes.ir.async_form import is_start
from hlo_passes.ir.calls import scheduled_computations
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.module import Module
from hlo_passes.proto import module_from_proto, module_to_proto
from hlo_passes.runtime.installation.for_tpu import NOWHERE
from hlo_passes.runtime.installation.install import Registrations
from hlo_passes.runtime.tpu_aot import PLATFORM

#: So many instructions after a start, of those that take time, are made to wait for it.
_NEAREST = 2


@contextlib.contextmanager
def edges_from_starts() -> Iterator[list[int]]:
    """Add the edges in every compilation for TPUs; yields their numbers by module."""
    added: list[int] = []

    def transformed(data: bytes) -> bytes | None:
        module = module_from_proto(data)
        added.append(add_edges(module))
        return module_to_proto(module) if added[-1] else None

    registrations = Registrations("pre-scheduler")
    registrations.add(PLATFORM, transformed)
    try:
        yield added
    finally:
        registrations.clear()


def add_edges(module: Module) -> int:
    """From each start to the next instructions that are not its done; how many edges.

    All edges go along the order, so that there is no circle.
    """
    return sum(_add_edges(each) for each in scheduled_computations(module))


def _add_edges(computation: Computation) -> int:
    count = 0
    placed = [i for i in computation.instructions if i.opcode not in NOWHERE]
    for k, start in enumerate(placed):
        # An edge out of a copy's start ends the process (libtpu 0.0.52).
        if not is_start(start) or start.opcode == "copy-start":
            continue
        behind = [i for i in placed[k + 1 :] if start not in i.operands]
        for then in behind[:_NEAREST]:
            computation.add_control_edge(start, then)
            count += 1
    return count
