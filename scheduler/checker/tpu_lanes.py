"""What an asynchronous operation of a TPU holds while it is in flight.

    %s = collective-permute-start(...)                    collective-permute
    %c = copy-start(...)                                  copy
    %t = async-start(...), thread "sparsecore"            the kind of its collective,
                                                          and each of its cores

Calls on SparseCores name their cores in the start's `backend_config`. What they call
may be behind further calls.
"""

from __future__ import annotations

from typing import Any, Final

from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import is_generic, is_start, start_of, thread_of, work_of
from hlo_passes.ir.instruction import Instruction

#: Lanes of the SparseCores of one device, by number.
CORES: Final = tuple(f"SparseCore {k}" for k in range(4))
COPIES: Final = "copy"
_THREAD: Final = "sparsecore"


def tpu_lanes(half: Instruction) -> tuple[str, ...]:
    """The lanes of a start or done, () for none.

    Complexity: linear in what a call reaches.
    """
    start = start_of(half)
    if is_start(start) and is_generic(start) and thread_of(start) == _THREAD:
        return (*_kinds_called(start)[:1], *_cores(start))
    return (work_of(half),)


def _kinds_called(start: Instruction) -> list[str]:
    """Kinds of the collectives behind a call."""
    found: list[str] = []
    waiting = list(start.called_computations)
    seen = set(waiting)
    for computation in waiting:
        for instruction in computation.instructions:
            if instruction.opcode in opcodes.SYNC_COLLECTIVES:
                found.append(instruction.opcode)
            called = dict.fromkeys(instruction.called_computations)
            new = [c for c in called if c not in seen]
            seen.update(new)
            waiting.extend(new)
    return found


def _cores(start: Instruction) -> list[str]:
    """The cores that a call names, the first one if it names none."""
    config = start.backend_config
    view: Any = config.json() if config and config.is_json_dict else None
    own = view.get("sparse_core_config") if isinstance(view, dict) else None
    ids = own.get("core_ids") if isinstance(own, dict) else None
    named = [f"SparseCore {k}" for k in ids] if isinstance(ids, list) else []
    return [core for core in CORES if core in named] or [CORES[0]]
