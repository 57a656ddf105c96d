"""A jitted function -> an HLO module, at a stage of XLA's compilation.

    runtime.lower(jax.jit(f), *args)                              # partitioned
    runtime.lower(jax.jit(f), *args, stage="before-optimizations")
    runtime.lower(jax.jit(f), *args, stage="scheduled")

Arguments are real arrays or `jax.ShapeDtypeStruct`s; where the function was jitted for
devices of a GPU that is not there, `stage="gpu-scheduled"` gives what XLA's GPU
compiler makes of it.
"""

from __future__ import annotations

import pathlib
import re
import tempfile
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.ir.module import Module
from hlo_passes.text.reader import parse
from runtime import jax_private
from runtime.executable import CompilationError

STAGES: Final = ("before-optimizations", "partitioned", "scheduled", "gpu-scheduled")

#: XLA's pass behind which a module is one device's program.
_PARTITIONER: Final = "spmd-partitioning"

#: A GPU that is not there cannot be measured; collectives are to overlap.
_GPU_OPTIONS: Final[dict[str, Any]] = {
    "xla_gpu_autotune_level": 0,
    "xla_gpu_enable_latency_hiding_scheduler": True,
}

#: How StableHLO and HLO text call the number of replicas and of partitions.
_COUNTS: Final = (
    ("num_replicas", "replica_count"),
    ("num_partitions", "num_partitions"),
)


def lower(
    function: Any, *args: Any, stage: str = "partitioned", **kwargs: Any
) -> Module:
    """Lower a jitted function.

    Args:
        function: what `jax.jit` gave back.
        args: positional arguments, real or abstract.
        stage: one of `STAGES`.
        kwargs: keyword arguments of the function.

    Raises:
        UsageError: U021 for an unknown stage or a function that is not jitted.
        CompilationError: R004, XLA refused the function or made no such dump.
    """
    if stage not in STAGES:
        raise UsageError(
            f"there is no stage {stage!r}",
            code="U021",
            hint=f"one of {', '.join(STAGES)}",
        )
    if not hasattr(function, "lower"):
        raise UsageError(
            f"{function!r} is not a jitted function",
            code="U021",
            hint="wrap it in jax.jit",
        )
    lowered = function.lower(*args, **kwargs)
    name = getattr(function, "__name__", "function")
    filename = f"<{name}, {stage}>"
    if stage == "before-optimizations":
        return parse(_before_optimizations(lowered), filename=filename)
    if stage == "partitioned":
        return parse(_partitioned(lowered, name), filename=filename)
    return parse(_final(lowered, name, stage), filename=filename)


def _before_optimizations(lowered: Any) -> str:
    stablehlo = lowered.compiler_ir("stablehlo").operation.get_asm(
        enable_debug_info=True
    )
    text = jax_private.proto_to_text(jax_private.stablehlo_to_proto(stablehlo.encode()))
    # The counts are the compilation's, not the program's: XLA writes them into the
    # header of its own dump, the conversion does not.
    counts = ""
    for attribute, name in _COUNTS:
        match = re.search(rf"mhlo\.{attribute} = (\d+)", stablehlo)
        if match and match[1] != "1" and f", {name}=" not in text.partition("\n")[0]:
            counts += f", {name}={match[1]}"
    header, newline, rest = text.partition("\n")
    return f"{header}{counts}{newline}{rest}"


def _compiled(lowered: Any, name: str, options: dict[str, Any]) -> Any:
    try:
        return lowered.compile(compiler_options=options)
    except RuntimeError as problem:
        raise CompilationError(
            f"XLA cannot compile {name}: {str(problem).splitlines()[0]}"
        ) from problem


def _partitioned(lowered: Any, name: str) -> str:
    """The module behind the partitioner; of one partition, as XLA was given it."""
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        options = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_long_text": True,
            "xla_dump_hlo_pass_re": _PARTITIONER,
            "xla_dump_large_constants": True,
        }
        _compiled(lowered, name, options)
        text = _dump_behind(pathlib.Path(folder), f"after_{_PARTITIONER}")
    return text if text is not None else _before_optimizations(lowered)


def _final(lowered: Any, name: str, stage: str) -> str:
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        options = {
            "xla_dump_to": folder,
            "xla_dump_hlo_as_long_text": True,
            "xla_dump_large_constants": True,
            "xla_dump_hlo_pass_re": "latency-hiding-scheduler",
        }
        if stage == "gpu-scheduled":
            options |= _GPU_OPTIONS
        failure: CompilationError | None = None
        try:
            _compiled(lowered, name, options)
        except CompilationError as problem:
            # A GPU that is not there: XLA may stop behind the scheduler, its dump
            # is complete by then.
            failure = problem
        place = pathlib.Path(folder)
        text = _dump_behind(place, "after_optimizations.txt")
        if text is None and stage == "gpu-scheduled":
            text = _dump_behind(place, "after_latency-hiding-scheduler")
    if text is not None:
        return text
    raise failure or CompilationError(f"XLA made no scheduled dump of {name}")


def _dump_behind(folder: pathlib.Path, mark: str) -> str | None:
    """The largest dump whose name has the mark: the program, not its small helpers."""
    found = [
        p
        for p in folder.iterdir()
        if mark in p.name
        and p.suffix == ".txt"
        and not re.search(r"buffer|memory", p.name)
    ]
    if not found:
        return None
    return max(found, key=lambda p: (p.stat().st_size, p.name)).read_text()
