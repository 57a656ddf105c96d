"""What a costs file has no cost for, where its estimator takes 0.

    {"node_cost_us": {"r": 3.0}, "latency_us": {"s": 100.0}}

    %body: ROOT %y = f32[1024,1024] dot(%x, %x), ...        %y has none: 0
    %main: %w = (...) while(%init), condition=%cond, body=%body
           ROOT %r = f32[1024,1024] add(%z, %d)             priced, as is %s

The log of XLA:GPU's scheduler prices only computations with something asynchronous. A
loop that has nothing asynchronous counts 0, however long it takes. A few names may be
missing elsewhere: XLA gives some kernels no time. A file that names nothing of a module
is of another one. Costs of a TPU: `scheduler/tpu/costs_of_module.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from hlo_passes.analysis.module_state import WrongStateError
from hlo_passes.ir.async_form import is_collective, is_done, is_start
from hlo_passes.ir.calls import runs_callees, scheduled_computations
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.plurals import counted
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import estimator_names
from hlo_passes.scheduler.estimators.table import TableEstimator, read_costs
from hlo_passes.scheduler.tpu.costs import tpu_costs
from hlo_passes.scheduler.tpu.unpriced import may_take_time


def require_table_of(module: Module, on: Pricing) -> tuple[str, ...]:
    """Refuse the costs of another module; returns what is to be said of gaps.

    Args:
        module: about to be priced.
        on: where costs by name answer first, they are asked; those of a TPU are not
            (`require_costs_of`).

    Raises WrongStateError S019 if the file names nothing of the module, and UsageError
    as `estimator_names` and `read_costs` do.
    Complexity: linear in instructions.
    """
    path = on.costs
    if not path or not isinstance(on.estimator, str):
        return ()
    if estimator_names(on)[0] != "table" or tpu_costs(path) is not None:
        return ()
    table = read_costs(path)
    # One name is enough: a file may leave out what costs 0. What is called
    # asynchronously may have names, too.
    named = {*table.node_costs, *table.latencies}
    scheduled = (i for c in scheduled_computations(module) for i in c.instructions)
    first = next((i for i in scheduled if _is_work(i) or is_collective(i)), None)
    if first and named.isdisjoint(_names(module)) and named:
        raise WrongStateError(
            f"{path} has no cost for anything in the module, %{first.name} first: it "
            "is of another program or stage",
            code="S019",
            location=first.location,
            hint="costs name instructions as the module does; without costs a model "
            "prices it, and modules= of an installation leaves other modules out",
        )
    missing = left_out(module, table)
    if not missing:
        return ()
    first, *others = dict.fromkeys(i.computation.name for i in missing)
    more = f" and {counted(len(others), 'other computation')}" if others else ""
    return (
        f"{path} has no cost for {counted(len(missing), 'instruction')} in "
        f"%{first}{more}: 0 was taken",
    )


def _names(module: Module) -> Iterator[str]:
    """Of what may have a cost: `p`, `tuple` and the like are in most modules."""
    for computation in module.computations:
        for each in computation.instructions:
            is_half = is_start(each) or is_done(each) or is_collective(each)
            if is_half or runs_callees(each) or _is_work(each):
                yield each.name


def left_out(module: Module, table: TableEstimator) -> list[Instruction]:
    """What takes time in computations of which a table names less than half.

    Collectives and starts are not among them: a note counts those without a latency.
    """
    found: list[Instruction] = []
    for computation in scheduled_computations(module):
        work = [i for i in computation.instructions if _is_work(i)]
        missing = [i for i in work if i.name not in table.node_costs]
        if len(missing) > len(work) - len(missing):
            found += missing
    return found


def _is_work(instruction: Instruction) -> bool:
    """Whether it may take time by itself: not what it calls, nor in flight."""
    if is_start(instruction) or is_done(instruction) or is_collective(instruction):
        return False
    shape = instruction.shape
    is_copy = instruction.opcode == "copy" and not shape.is_tuple
    if is_copy and shape.element_count > 1:
        return True  # a kernel, which XLA:TPU gives a cycle
    return not runs_callees(instruction) and may_take_time(instruction)
