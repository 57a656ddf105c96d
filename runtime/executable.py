"""An HLO module -> a loaded executable -> results per device.

    executable = runtime.load(module)
    outputs = executable(*inputs)        # arrays of shape (devices, *shape)

The module is rewritten in plain HLO (`runtime/plain`) and compiled by XLA's whole CPU
pipeline without its optimizations; after the scheduler it receives its collectives and
its order back (`runtime/restore.py`). docs/runtime.md explains why.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import RuntimeHostError, devices_for, topology_of
from hlo_passes.runtime.dtypes import numpy_dtype
from hlo_passes.runtime.plain.builder import PlainModule
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.runtime.plain.ragged_rules import ALARMS
from hlo_passes.runtime.plain.refusals import require_valid
from hlo_passes.runtime.plain.values import array_leaves
from hlo_passes.runtime.restore import restored

#: HLO passes that XLA leaves out: passes that only make a program faster may change
#: bits and so make two equal programs differ (where a fusion or a small loop is
#: compiled as one function, a multiply-add rounds once); the count of a loop's
#: iterations, which 0.10.2 gets wrong below zero and a CPU believes
#: (docs/xla_findings.md); and the partitioner, since the module is one device's program
#: already.
LEFT_OUT_PASSES: Final = (
    "algsimp",
    "all-reduce-combiner",
    "batch-dot-simplification",
    "constant_folding",
    "conditional-to-select",
    "cpu-parallel-task-assigner",
    "cse",
    "fusion",
    "multi_output_fusion",
    "reshape-mover",
    "simplify-conditional",
    "simplify-fp-conversions",
    "simplify-while-loops",
    "simplify-sorts",
    "small-while-loop-hoisting",
    "tree_reduction_rewriter",
    "while-loop-constant-sinking",
    "while-loop-invariant-code-motion",
    "while-loop-trip-count-annotator",
    "sharding-propagation",
    "spmd-partitioning",
)

#: Lines of XLA's message that are quoted: enough for its parser's excerpt.
_QUOTED_LINES: Final = 3

_MODULE_NUMBERS = itertools.count(1)


class CompilationError(RuntimeHostError):
    """XLA refused a plain module."""

    default_code = "R004"


class RaggedRowsError(RuntimeHostError):
    """Offsets and sizes of a ragged all-to-all do not fit together."""

    default_code = "R012"


@dataclass(frozen=True, slots=True)
class Executable:
    """A module loaded on the devices of this job; call it with stacked arrays.

    Attributes:
        name: of the module.
        replica_count: replicas it runs as.
        num_partitions: partitions of each.
        parameters: array shapes per device, tuples flattened depth first.
        results: the same for results.
        loaded: jaxlib's executable.
        scheduled_text: the HLO that XLA runs, in the order of its schedule.
        alarms: what the number that follows the results stands for, from one on;
            nothing without ragged all-to-alls, and then there is no such number.
    """

    name: str
    replica_count: int
    num_partitions: int
    parameters: tuple[Shape, ...]
    results: tuple[Shape, ...]
    loaded: Any
    scheduled_text: str
    alarms: tuple[str, ...] = ()

    @property
    def device_count(self) -> int:
        """Replicas x partitions."""
        return self.replica_count * self.num_partitions

    @property
    def local_rows(self) -> tuple[int, ...]:
        """Which devices (replica x partitions + partition) belong to this process."""
        process = jax.process_index()
        devices = devices_for(self.device_count)
        return tuple(k for k, d in enumerate(devices) if d.process_index == process)

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Run once on all devices.

        Args:
            inputs: one array per parameter leaf, shape (devices, *shape), of the
                parameter's type.

        Returns:
            One array per result leaf, shape (devices, *shape); in a job of several
            processes the rows of the others' devices are zeros.

        Raises:
            ValueError: number, shape or type of the inputs do not fit.
            RaggedRowsError: R012, a ragged all-to-all got tables that do not fit.
        """
        return self.run_on(self.put(inputs))

    @property
    def bytes_per_device(self) -> int:
        """Bytes that XLA allocates for a run on one device: inputs, results, others."""
        stats = self.loaded.get_compiled_memory_stats()
        return (
            stats.argument_size_in_bytes
            + stats.output_size_in_bytes
            + stats.temp_size_in_bytes
        )

    def put(self, inputs: Sequence[Any]) -> list[jax.Array]:
        """Place the inputs on the devices; errors as for a call."""
        if len(inputs) != len(self.parameters):
            msg = f"{self.name} takes {len(self.parameters)} arrays, not {len(inputs)}"
            raise ValueError(msg)
        devices = devices_for(self.device_count)
        everywhere = NamedSharding(Mesh(np.array(devices), "d"), PartitionSpec())
        placed = []
        with jax.enable_x64(True):
            for number, (given, shape) in enumerate(
                zip(inputs, self.parameters, strict=True)
            ):
                stacked = np.asarray(given)
                self._check_input(number, stacked, shape)
                # Every device has its own array; JAX takes them for copies of one
                # array,
                # which nothing checks and this code does not rely on.
                rows = [jax.device_put(stacked[k], devices[k]) for k in self.local_rows]
                placed.append(
                    jax.make_array_from_single_device_arrays(
                        shape.dimensions, everywhere, rows
                    )
                )
        return placed

    def _check_input(self, number: int, stacked: np.ndarray, shape: Shape) -> None:
        expected = (self.device_count, *shape.dimensions)
        dtype = numpy_dtype(shape.element_type)
        if stacked.shape != expected or stacked.dtype != dtype:
            msg = (
                f"parameter {number} of {self.name} is {dtype}{list(expected)} over "
                f"the devices, not {stacked.dtype}{list(stacked.shape)}"
            )
            raise ValueError(msg)

    def run_on(self, placed: Sequence[jax.Array]) -> list[np.ndarray]:
        """Run on inputs that `put` has placed.

        Raises RaggedRowsError R012 as a call does.
        """
        per_result = jax_private.execute(self.loaded, placed)
        if self.alarms:
            *per_result, numbers = per_result
            self._require_silence(numbers)
        outputs = []
        for arrays, shape in zip(per_result, self.results, strict=True):
            stacked = np.zeros(
                (self.device_count, *shape.dimensions), numpy_dtype(shape.element_type)
            )
            for row, array in zip(self.local_rows, arrays, strict=True):
                stacked[row] = np.asarray(array)
            outputs.append(stacked)
        return outputs

    def _require_silence(self, numbers: Sequence[jax.Array]) -> None:
        for row, number in zip(self.local_rows, numbers, strict=True):
            if raised := int(np.asarray(number)):
                raise RaggedRowsError(
                    f"{self.name}: {self.alarms[raised - 1]}, on device {row}",
                    hint="offsets and sizes must fit together on all devices; seeded "
                    "inputs fit only where they are parameters, others take --inputs",
                )


def load(module: Module) -> Executable:
    """Load any HLO module on the devices of this job.

    Args:
        module: one device's program (`num_partitions`, `replica_count` or both; where
            neither is given its collectives say how many devices take part). A
            schedule is kept; without one XLA makes one.

    Raises:
        VerificationError: V..., it is not valid HLO.
        UnsupportedHloError: S010, S011: something in it cannot run here, by name.
        DeviceCountError: R002, fewer devices than it asks for.
        CompilationError: R004, XLA refused it.
        TypeError: for anything but a module, such as a text.
    """
    require_valid(module)
    replicas, partitions = topology_of(module)
    return load_plain(plain_module(module), module, replicas, partitions)


def load_plain(
    plain: PlainModule, source: Module, replicas: int, partitions: int
) -> Executable:
    """Compile a plain module; `source` is the module that it was made from."""
    # Turn the module into what JAX can compile, under a name of its own.
    devices = devices_for(replicas * partitions)
    name = f"hlo_passes_run_{next(_MODULE_NUMBERS)}"
    plain.module.name = name
    try:
        proto = jax_private.text_to_proto(plain.module.to_text())
        stablehlo = jax_private.proto_to_stablehlo(proto)
    except (RuntimeError, ValueError) as problem:
        raise UnsupportedHloError(
            f"{source.name} cannot be passed to XLA's CPU pipeline: "
            f"{_in_short(problem)}",
            code="S012",
        ) from problem
    # XLA hands every scheduled module to the callback. It puts the collectives back
    # into this one, which it knows by its name.
    seen: list[bytes] = []
    failures: list[Exception] = []

    def callback(scheduled: bytes) -> bytes | None:
        if name.encode() not in scheduled[:256]:
            return None
        try:
            seen.append(restored(scheduled, plain))
        except Exception as problem:
            # XLA raises its own error, with this one in its text.
            failures.append(problem)
            raise
        return seen[-1]

    # Compile it. An error of the callback comes before XLA's own, which only quotes it.
    try:
        with jax_private.transformation(callback):
            loaded = jax_private.compile_stablehlo(
                stablehlo,
                devices=devices,
                replica_count=replicas,
                num_partitions=partitions,
                without_passes=LEFT_OUT_PASSES,
            )
    except (RuntimeError, ValueError) as problem:
        if failures:
            raise failures[0] from problem
        raise CompilationError(
            f"XLA cannot compile {source.name} for CPUs: {_in_short(problem)}"
        ) from problem
    # An XLA that ignores the callback's error, or never calls it, has compiled another
    # program.
    if failures:
        raise failures[0]
    if not seen:
        raise CompilationError(
            f"XLA compiled {source.name} without asking for its collectives",
            hint="a persistent compilation cache may have answered: switch it off",
        )
    entry = plain.module.entry
    results = array_leaves(entry.root.shape)
    return Executable(
        name=source.name,
        replica_count=replicas,
        num_partitions=partitions,
        parameters=tuple(p.shape for p in entry.parameters),
        results=tuple(results[:-1] if plain.ragged else results),
        loaded=loaded,
        scheduled_text=jax_private.proto_to_text(seen[-1]),
        alarms=tuple(
            f"%{each.source.name} cannot run as it is: {text}"
            for each in plain.ragged
            for text in ALARMS
        ),
    )


def _in_short(problem: Exception) -> str:
    """The first lines of XLA's message, as one line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return " ".join(lines[:_QUOTED_LINES]) or type(problem).__name__
