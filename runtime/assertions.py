"""Assertions for tests: how much of a step may be exposed, and how long it may take.

    runtime.assert_exposed_below(step, "10%", args=(x, w), target="h100_sxm", hosts=2)
    runtime.assert_step_within("step.hlo", "5ms", target="b200")
    runtime.assert_step_within(after, "+2%", base=before)

A module that has a schedule is simulated as it is. Anything else (a jitted function, a
partitioned module) is scheduled first by the pipeline `xla-gpu`, on a copy; no GPU and
no compiler for one is needed. For the schedule of XLA's own GPU compiler give
`runtime.lower(function, *args, target=...)`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from hlo_passes.analysis.module_state import module_state
from hlo_passes.errors import UsageError
from hlo_passes.files import read_module
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import PassContext
from hlo_passes.passes.framework.pipeline import Pipeline
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.lower_function import lower
from hlo_passes.scheduler.estimators.choice import require_priced
from hlo_passes.scheduler.fail_if import judge, parse_conditions
from hlo_passes.scheduler.schedule_moves import Simulated
from hlo_passes.scheduler.simulation.report import report_text
from hlo_passes.scheduler.simulation.simulate import simulate
from hlo_passes.scheduler.simulation.timeline import Timeline

#: What a module without a schedule gets before it is simulated.
SCHEDULED_BY: Final = "xla-gpu"
#: Collectives that the message of a failed assertion lists.
_ROWS: Final = 5
_PRICED_ON: Final = frozenset(each.name for each in fields(Pricing))


def assert_exposed_below(
    program: Any,
    limit: str | float,
    *,
    base: Any = None,
    args: Sequence[Any] = (),
    passes: str = SCHEDULED_BY,
    **simulated: Any,
) -> Timeline:
    """Assert that a step is exposed by no more than a limit.

    Args:
        program: a module, the name of its file, or a jitted function.
        limit: '10%' of the step, a time as in '250us', microseconds, or '+2%' more
            than that of `base`.
        base: another program to compare with.
        args: arguments of a jitted function, real or abstract.
        passes: what schedules a program that has no schedule.
        simulated: options of `scheduler.simulate`: target, hosts, streams, ...

    Returns:
        The simulated step.

    Raises:
        AssertionError: more is exposed; the message names the collectives that cost
            most, and why.
        UsageError: U227 for a limit that says nothing, and what `simulate` raises.
    """
    return _require("exposed", limit, (program, base), args, passes, simulated)


def assert_step_within(
    program: Any,
    limit: str | float,
    *,
    base: Any = None,
    args: Sequence[Any] = (),
    passes: str = SCHEDULED_BY,
    **simulated: Any,
) -> Timeline:
    """Assert that a step takes no longer than a limit.

    Args:
        program: as in `assert_exposed_below`, also for all other arguments.
        limit: a time as in '5ms', microseconds, or '+2%' more than that of `base`.
        base: another program to compare with.
        args: arguments of a jitted function, real or abstract.
        passes: what schedules a program that has no schedule.
        simulated: options of `scheduler.simulate`.

    Returns:
        The simulated step.

    Raises:
        AssertionError: it takes longer.
        UsageError: U227 for a limit that says nothing, and what `simulate` raises.
    """
    return _require("step", limit, (program, base), args, passes, simulated)


def _require(
    quantity: str,
    limit: str | float,
    programs: tuple[Any, Any],
    args: Sequence[Any],
    passes: str,
    simulated: Mapping[str, Any],
) -> Timeline:
    __tracebackhide__ = True  # pytest shows the line of the test
    text = limit if isinstance(limit, str) else f"{limit:f}us"
    program, base = programs
    (condition,) = parse_conditions(
        [f"{quantity}>{text.strip()}"], has_base=base is not None
    )
    step = _simulated(program, args, passes, simulated)
    other = None if base is None else _simulated(base, args, passes, simulated)
    (judgment,) = judge((condition,), step, other)
    if judgment.fails:
        raise AssertionError(
            f"{judgment.to_text()}\n\n{report_text(step.timeline, _ROWS)}"
        )
    assert isinstance(step.timeline, Timeline), "`simulate` makes it"
    return step.timeline


def _simulated(
    program: Any, args: Sequence[Any], passes: str, simulated: Mapping[str, Any]
) -> Simulated:
    module = _module_of(program, args)
    on = Pricing(**{k: v for k, v in simulated.items() if k in _PRICED_ON})
    if module_state(module).cure:
        require_priced(module, on)
        module = module.clone()
        Pipeline.parse(passes, PassContext(on)).run(module)
    return Simulated(module, simulate(module, **simulated))


def _module_of(program: Any, args: Sequence[Any]) -> Module:
    """The module that a program is, names, or becomes. Raises UsageError U021."""
    if isinstance(program, Module):
        return program
    if isinstance(program, str | os.PathLike):
        return read_module(os.fspath(program))
    if hasattr(program, "lower"):
        return lower(program, *args)
    raise UsageError(
        f"{program!r} is neither a module nor a jitted function",
        code="U021",
        hint="give a module, the name of its file, or what jax.jit returns",
    )
