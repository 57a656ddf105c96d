"""A module before partitioning -> XLA's partitioner -> a program of global arrays.

    module = runtime.lower(jitted, *args, stage="before-optimizations")
    program = runtime.partition(module)
    program.module                      what the partitioner made of it: HLO
    outputs = program(*inputs)          whole arrays in, whole arrays out

The module is converted to StableHLO with its shardings and compiled for the emulated
devices of this process, as JAX compiles what it partitions in GSPMD's way. Parameters
and results that nobody annotated are divided as the partitioner likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.sharding import (
    MeshSharding,
    TileSharding,
    TupleSharding,
    for_shape,
    parse_sharding,
)
from hlo_passes.ir.sharding_splits import Splits, splits_of
from hlo_passes.runtime import jax_private
from hlo_passes.runtime.devices import devices_for
from hlo_passes.runtime.dtypes import numpy_dtype
from hlo_passes.runtime.dump_folder import dump_folder
from hlo_passes.runtime.executable import LEFT_OUT_PASSES, CompilationError
from hlo_passes.runtime.plain.refusals import require_valid
from hlo_passes.text.reader import parse

_PARTITIONER: Final = "spmd-partitioning"
#: Passes that only make a program faster, and may change bits by that.
_LEFT_OUT: Final = tuple(
    name
    for name in LEFT_OUT_PASSES
    if name not in (_PARTITIONER, "sharding-propagation")
)


@dataclass(frozen=True, slots=True)
class PartitionedProgram:
    """A module that XLA has partitioned and compiled; call it with whole arrays.

    Attributes:
        module: one device's program, right after the partitioner.
        parameters: the shapes of the whole arrays.
        results: the same.
        parameter_splits: how XLA has divided each parameter.
        result_splits: the same for results.
        loaded: jaxlib's executable.
    """

    module: Module
    parameters: tuple[Shape, ...]
    results: tuple[Shape, ...]
    parameter_splits: tuple[Splits, ...]
    result_splits: tuple[Splits, ...]
    loaded: Any

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        """Run once.

        Args:
            inputs: a whole array for each parameter.

        Returns:
            A whole array for each result.

        Raises:
            ValueError: number, shape or type of the inputs do not fit; or devices that
                hold copies of a part of a result have different ones.
        """
        if len(inputs) != len(self.parameters):
            msg = f"it takes {len(self.parameters)} arrays, not {len(inputs)}"
            raise ValueError(msg)
        placed = [
            _placed(np.asarray(array), shape, splits)
            for array, shape, splits in zip(
                inputs, self.parameters, self.parameter_splits, strict=True
            )
        ]
        per_result = jax_private.execute(self.loaded, placed)
        return [
            _whole([np.asarray(a) for a in arrays], shape, splits)
            for arrays, shape, splits in zip(
                per_result, self.results, self.result_splits, strict=True
            )
        ]


def partition(module: Module) -> PartitionedProgram:
    """Let XLA's partitioner divide a module, and load the result.

    Args:
        module: before partitioning, with shardings in GSPMD's words; its parameters
            are arrays.

    Raises:
        VerificationError: V..., it is not valid HLO.
        UnsupportedHloError: S010, parameters are tuples; S012, XLA cannot convert it.
        DeviceCountError: R002, fewer devices than it has partitions.
        CompilationError: R004, XLA refused it.
    """
    require_valid(module)
    parameters = tuple(p.shape for p in module.entry.parameters)
    if not all(shape.is_array for shape in parameters):
        raise UnsupportedHloError(
            f"{module.name} has a parameter that is no array", code="S010"
        )
    results = tuple(leaf for _, leaf in module.entry.root.shape.leaves())
    devices = np.array(devices_for(module.num_partitions)).reshape(1, -1)
    try:
        proto = jax_private.text_to_proto(_convertible(module).to_text())
        stablehlo = jax_private.parse_stablehlo(jax_private.proto_to_stablehlo(proto))
    except (RuntimeError, ValueError) as problem:
        raise UnsupportedHloError(
            f"{module.name} cannot be converted to StableHLO: "
            f"{str(problem).splitlines()[0]}",
            code="S012",
        ) from problem
    with dump_folder(_PARTITIONER) as dump:
        options = {**dump.options, "xla_disable_hlo_passes": ",".join(_LEFT_OUT)}
        try:
            loaded = jax_private.compile_program(
                stablehlo,
                devices=devices,
                are_absent=False,
                is_shardy=False,
                free_inputs=_free(module.entry.parameters),
                free_outputs=_free_results(module, len(results)),
                compiler_options=options,
            )
        except RuntimeError as problem:
            raise CompilationError(
                f"XLA cannot compile {module.name}: {str(problem).splitlines()[0]}"
            ) from problem
        text = dump.text_after(f"after_{_PARTITIONER}")
    if text is None:
        raise CompilationError(f"XLA has not partitioned {module.name}")
    given, made = jax_private.executable_shardings(loaded)
    count = module.num_partitions
    return PartitionedProgram(
        parse(text, filename=f"<{module.name}, partitioned>"),
        parameters,
        results,
        tuple(_read(t, s, count) for t, s in zip(given, parameters, strict=True)),
        tuple(_read(t, s, count) for t, s in zip(made, results, strict=True)),
        loaded,
    )


def _convertible(module: Module) -> Module:
    """The module as XLA's conversion to StableHLO can take it.

    The conversion drops elements of a loop's state that are equal or never change, but
    keeps the loop's sharding, which then has too many elements: XLA refuses it, or its
    process ends (jaxlib 0.10.2). What is written inside the loop stays.
    """
    loops = [
        (computation.name, instruction.name)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "while" and "sharding" in instruction.attributes
    ]
    if not loops:
        return module
    module = module.clone()
    for owner, name in loops:
        computation = module.computation(owner)
        loop = None if computation is None else computation.find(name)
        if loop is not None:
            loop.set_attribute("sharding", None)
    return module


def _free(parameters: Sequence[Any]) -> list[bool]:
    return ["sharding" not in parameter.attributes for parameter in parameters]


def _free_results(module: Module, count: int) -> list[bool]:
    """For each result whether nobody says how it is divided.

    A result of an annotation is not free: it is what the annotation says.
    """
    root = module.entry.root
    if "sharding" not in root.attributes:
        return [True] * count
    sharding = for_shape(parse_sharding(root.attributes["sharding"]), root.shape)
    named = sharding.elements if isinstance(sharding, TupleSharding) else (sharding,)
    return [False] * max(count, len(named))


def _read(text: str, shape: Shape, devices: int) -> Splits:
    sharding = parse_sharding(text)
    found = None
    if isinstance(sharding, TileSharding | MeshSharding):
        found = splits_of(sharding, shape.rank, devices)
    if found is None:
        raise CompilationError(f"XLA divides {shape} as {text}, which is no division")
    return found


def _placed(array: np.ndarray, shape: Shape, splits: Splits) -> jax.Array:
    """An array over the devices, each with its part; short parts are filled up."""
    dtype = numpy_dtype(shape.element_type)
    if array.shape != shape.dimensions or array.dtype != dtype:
        wanted = f"{dtype}{list(shape.dimensions)}"
        msg = f"expected {wanted}, got {array.dtype}{list(array.shape)}"
        raise ValueError(msg)
    devices = devices_for(splits.devices)
    local = tuple(
        -(-n // k) for n, k in zip(shape.dimensions, splits.parts, strict=True)
    )
    rows = []
    for k, device in enumerate(devices):
        block = array[splits.block_of(k, shape.dimensions)]
        padding = [(0, n - m) for n, m in zip(local, block.shape, strict=True)]
        rows.append(jax.device_put(np.pad(block, padding), device))
    everywhere = NamedSharding(Mesh(np.array(devices), "d"), PartitionSpec())
    return jax.make_array_from_single_device_arrays(local, everywhere, rows)


def _whole(parts: list[np.ndarray], shape: Shape, splits: Splits) -> np.ndarray:
    """The whole array of what the devices have."""
    whole = np.zeros(shape.dimensions, numpy_dtype(shape.element_type))
    seen: dict[tuple[int, ...], bytes] = {}
    for k, part in enumerate(parts):
        block = splits.block_of(k, shape.dimensions)
        mine = part[tuple(slice(0, one.stop - one.start) for one in block)]
        data = mine.tobytes()
        if seen.setdefault(splits.tile_of(k), data) != data:
            msg = f"devices have different copies of a part of {shape}"
            raise ValueError(msg)
        whole[block] = mine
    return whole
