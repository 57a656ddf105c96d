"""Turns a jitted function into an HLO module, at a stage of XLA's compilation.

    runtime.lower(jax.jit(f), *args)                              # partitioned
    runtime.lower(jax.jit(f), *args, stage="before-optimizations")
    runtime.lower(jax.jit(f), *args, stage="scheduled")

    runtime.lower(jax.jit(f), *args, target="h100_sxm", hosts=2)
    runtime.lower(jax.jit(f), *args, target="v5e", topology="2x4")

Arguments are real arrays or `jax.ShapeDtypeStruct`s. With a target the function is
compiled for a GPU that this machine does not have, and the default stage is
`gpu-scheduled`: the result of XLA's GPU compiler, in the order of its scheduler. For a
TPU it is `tpu-final` (docs/tpu.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.runtime.capture import (
    STAGES,
    gpu_compilation,
    host_compilation,
    module_at,
    require_jitted,
    require_traceable,
)
from hlo_passes.runtime.own_frames import leave_out_own_frames
from hlo_passes.runtime.tpu_aot import grid_to_compile_for
from hlo_passes.runtime.tpu_program import lower_jitted_for_tpu
from hlo_passes.scheduler.tpu.chips import is_chip


def lower(
    function: Any,
    *args: Any,
    stage: str | None = None,
    target: str | None = None,
    topology: str | None = None,
    hosts: int | None = None,
    gpus_per_host: int | None = None,
    **kwargs: Any,
) -> Module:
    """Lower a jitted function.

    Args:
        function: a result of `jax.jit`, for emulated devices, for an abstract mesh, or
            for the devices of an absent GPU or TPU.
        args: positional arguments, real or abstract.
        stage: one of `STAGES`; None for `partitioned`, with a target `gpu-scheduled`.
            For a TPU one of those in docs/tpu.md; None for `tpu-final`.
        target: a GPU or TPU that this machine does not have: `h100_sxm`, `v5e`.
        topology: 'PxHxG', with a target; None for what the next two say. For a TPU the
            grid of chips, as '2x4'; None for eight chips.
        hosts: their number, with a GPU as the target; None for as many as the
            function's devices need.
        gpus_per_host: None for as many as a host of the target has.
        kwargs: keyword arguments of the function.

    Raises:
        UsageError: U021 for an unknown stage or a function that is not jitted; U026
            for hosts or a topology that do not fit or come without a target; U225 for
            hosts that do not exist; U252 for a topology that is no grid of the TPU.
        NoGpuCompilerError: R007, a target without its compiler.
        CompilationError: R004, XLA refused the function or wrote no such dump.
    """
    given = {"topology": topology, "hosts": hosts, "gpus_per_host": gpus_per_host}
    given = {name: value for name, value in given.items() if value is not None}
    if target is not None and is_chip(target):
        return _lower_for_tpu(function, args, kwargs, stage, target, given)
    stage = stage or ("partitioned" if target is None else "gpu-scheduled")
    if stage not in STAGES:
        raise UsageError(
            f"unknown stage {stage!r}",
            code="U021",
            hint=f"one of {', '.join(STAGES)}",
        )
    require_jitted(function)
    if given and target is None:
        name, value = next(iter(given.items()))
        raise UsageError(
            f"{name}={value} needs a target",
            code="U026",
            hint='target="h100_sxm"; emulated devices come from the jitted function',
        )
    leave_out_own_frames()
    if target is None:
        compilation = host_compilation(function, args, kwargs)
    else:
        on = Pricing(target=target, **given)
        compilation = gpu_compilation(function, args, kwargs, on)
    return module_at(compilation, stage)


def _lower_for_tpu(
    function: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    stage: str | None,
    target: str,
    given: Mapping[str, Any],
) -> Module:
    """`lower` with a TPU as its target; `given`: what the user said of the machine."""
    for name in ("hosts", "gpus_per_host"):
        if name in given:
            raise UsageError(
                f"{name}={given[name]} is for GPUs, and {target} is a TPU",
                code="U026",
                hint='topology="2x4" says how many chips',
            )
    require_traceable(function)
    leave_out_own_frames()
    grid = grid_to_compile_for(target, given.get("topology", ""))
    return lower_jitted_for_tpu(function, args, kwargs, grid, stage)
