"""Calls on SparseCores, the processors beside a TPU's TensorCores.

    %s = ... async-start(%x), async_execution_thread="sparsecore", calls=%wrapped
      %wrapped: ROOT %c = ... call(%q), to_apply=%called
        %called: ROOT %g = ... all-gather(%r)         offloaded_collective(%s)

The compiler's scheduler prices such a call as a whole, by the latency from its start to
its done. What it calls has no price in the log. Which cores run it is in the start's
`backend_config`: {"sparse_core_config":{"core_ids":["0","1"]}}.
"""

from __future__ import annotations

from typing import Any, Final

from hlo_passes.ir.async_form import is_collective, is_generic, is_start, thread_of
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.whole_numbers import whole_number

#: The thread of a computation that a SparseCore runs.
SPARSE_CORE: Final = "sparsecore"
#: Where no core is named.
_FIRST_CORE: Final = (0,)


def is_on_sparse_core(start: Instruction) -> bool:
    """Whether a start hands its work to a SparseCore."""
    return is_start(start) and is_generic(start) and thread_of(start) == SPARSE_CORE


def offloaded_collective(start: Instruction) -> Instruction | None:
    """The collective that a SparseCore was called for; None for any other start.

    Complexity: linear in the instructions that are called.
    """
    if not is_on_sparse_core(start):
        return None
    waiting: list[Computation] = list(start.called_computations)
    seen = set(waiting)
    while waiting:
        for instruction in waiting.pop().instructions:
            if is_collective(instruction):
                return instruction
            for callee in instruction.called_computations:
                if callee not in seen:
                    seen.add(callee)
                    waiting.append(callee)
    return None


def cores_of(start: Instruction) -> tuple[int, ...]:
    """The SparseCores that a call runs on, by number; the first if none is named."""
    config = start.backend_config
    view: Any = config.json() if config and config.is_json_dict else None
    for key in ("sparse_core_config", "core_ids"):
        view = view.get(key) if isinstance(view, dict) else None
    if not isinstance(view, list):
        return _FIRST_CORE
    numbers = [whole_number(str(core)) for core in view]
    return tuple(n for n in numbers if n is not None) or _FIRST_CORE
