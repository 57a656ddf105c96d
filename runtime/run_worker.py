"""The process that runs a module for `hlo-passes run`, on its emulated devices.

    python -m hlo_passes.runtime.run_worker REQUEST.json

The request names files; the answer is a file too, so that nothing that XLA prints goes
into it. A deadlock ends this process: the parent reads why from its stderr.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hlo_passes.errors import HloError, UsageError
from hlo_passes.exit_codes import ExitCode, exit_code_of
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.runtime.arrays_file import (
    checksum,
    dtype_name,
    read_arrays,
    write_arrays,
)
from hlo_passes.runtime.comparison import (
    Comparison,
    Tolerance,
    compare_outputs,
    require_same_signature,
)
from hlo_passes.runtime.devices import emulate
from hlo_passes.runtime.executable import Executable, load_plain
from hlo_passes.runtime.inputs import seeded_inputs
from hlo_passes.runtime.memory import require
from hlo_passes.runtime.plain.builder import PlainModule
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.run_request import Request, stage_file
from hlo_passes.runtime.stepping.run import run_in_steps
from hlo_passes.text.reader import parse


def answer_to(request: Request) -> dict[str, Any]:
    """Run as requested; returns what `run --json` prints."""

    def stage(text: str) -> None:
        stage_file(request).write_text(text)

    replicas, partitions = request.topology
    emulate(replicas * partitions)
    stage("being compiled")
    source = _source(request)
    plain = plain_module(source)
    executable = load_plain(plain, source, replicas, partitions)
    other_module = _other_module(request)
    other = _other(request, other_module, executable)
    require(_bytes_needed(executable, other), source.name)
    inputs = _inputs(request, source, plain, executable)
    try:
        placed = executable.put(inputs)
    except ValueError as problem:
        raise UsageError(str(problem), code="U023") from problem
    # Run at once, or step by step with the other module beside it.
    seconds = []
    outputs: list[np.ndarray] = []
    other_outputs: list[np.ndarray] | None = None
    steps: dict[str, Any] | None = None
    if request.sync is None:
        for number in range(request.repeat):
            stage(f"in run {number + 1} of {request.repeat}")
            start = time.perf_counter()
            outputs = executable.run_on(placed)
            seconds.append(time.perf_counter() - start)
    else:
        start = time.perf_counter()
        stepped = run_in_steps(
            source,
            other_module,
            inputs,
            request.topology,
            each=request.sync == "each",
            tolerance=_tolerance(request),
            say=stage,
        )
        seconds.append(time.perf_counter() - start)
        outputs, other_outputs = stepped.outputs, stepped.other_outputs
        steps = stepped.report
    if request.outputs is not None:
        write_arrays(request.outputs, outputs)
    # Compare the results.
    comparison = None
    if other is not None:
        if other_outputs is None:
            stage(f"in the run of {request.against_name}")
            other_outputs = other(*inputs)
        comparison = compare_outputs(outputs, other_outputs, _tolerance(request))
    return {
        "devices": executable.device_count,
        "outputs": _described(executable.results, outputs),
        **_compared(comparison),
        "seconds": seconds,
        "steps": steps,
    }


def _described(
    shapes: Sequence[Shape], outputs: Sequence[np.ndarray]
) -> list[dict[str, Any]]:
    return [
        {
            "shape": list(shape.dimensions),
            "dtype": dtype_name(shape.element_type),
            "sha256": checksum(array),
            **_non_finite(array),
        }
        for shape, array in zip(shapes, outputs, strict=True)
    ]


def _source(request: Request) -> Module:
    text = pathlib.Path(request.module).read_text()
    return parse(text, filename=request.name)


def _other_module(request: Request) -> Module | None:
    if request.against is None:
        return None
    text = pathlib.Path(request.against).read_text()
    return parse(text, filename=request.against_name or request.against)


def _other(
    request: Request, module: Module | None, executable: Executable
) -> Executable | None:
    if module is None:
        return None
    other = load_plain(plain_module(module), module, *request.topology)
    require_same_signature(executable, other)
    return other


def _bytes_needed(executable: Executable, other: Executable | None) -> int:
    """The bytes that XLA needs for a run, and the stacked arrays of this process."""
    stacked = sum(s.byte_size for s in (*executable.parameters, *executable.results))
    on_device = max(e.bytes_per_device for e in (executable, other) if e is not None)
    return (stacked + on_device) * executable.device_count


def _inputs(
    request: Request, source: Module, plain: PlainModule, executable: Executable
) -> list[np.ndarray]:
    if request.inputs is not None:
        return read_arrays(request.inputs, name=request.inputs_name)
    return seeded_inputs(
        plain, source, device_count=executable.device_count, seed=request.seed
    )


def _tolerance(request: Request) -> Tolerance | None:
    if request.rtol is None and request.atol is None:
        return None
    return Tolerance(request.rtol or 0.0, request.atol or 0.0)


def _non_finite(array: np.ndarray) -> dict[str, int]:
    """How many elements are not numbers, and how many infinite, on all devices."""
    wide = array if array.dtype.kind in "biufc" else array.astype(np.float32)
    return {"nan": int(np.isnan(wide).sum()), "infinite": int(np.isinf(wide).sum())}


def _compared(comparison: Comparison | None) -> dict[str, Any]:
    keys = ("matches", "bitwise_equal", "max_abs_error", "max_ulp_error", "pearson")
    differences = comparison and [
        {name: _json(value) for name, value in dataclasses.asdict(each).items()}
        for each in comparison.differences
    ]
    return {
        **{k: _json(getattr(comparison, k)) if comparison else None for k in keys},
        "differences": differences,
    }


def _json(value: Any) -> Any:
    """Replace infinities and NaNs, which JSON does not have, by null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main(request_path: str) -> int:
    """Write the answer to a request into a file; returns the exit code."""
    fields = json.loads(pathlib.Path(request_path).read_text())
    fields["topology"] = tuple(fields["topology"])
    request = Request(**fields)
    try:
        answer = answer_to(request)
        code = int(ExitCode.DONE)
    except HloError as problem:
        answer = {"error": problem.render()}
        code = exit_code_of(problem)
    pathlib.Path(request.answer).write_text(json.dumps(answer, allow_nan=False))
    return code


def _end_with_parent() -> None:
    """Wait for the end of stdin, which comes when the parent ends, and exit."""
    while os.read(0, 1):
        continue
    os._exit(int(ExitCode.CANNOT_RUN))


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.exit(main(sys.argv[1]))
