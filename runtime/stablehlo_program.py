"""A `.mlir` file as a program that XLA can compile, as JAX would have compiled it.

    program = read_program("step.mlir")       # written with jitted.lower(...).as_text()
    program.device_count                      # of its own mesh
    module_at(program.on(devices), "partitioned")

StableHLO holds what XLA needs but for a few options of the compilation, and these can
be told from it: how many replicas and partitions there are, which of the two dialects
says how arrays are divided, and which parameters and results nobody divided, so that
the partitioner may choose.
"""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hlo_passes.errors import UsageError
from hlo_passes.files import read_opened
from hlo_passes.runtime import jax_private, stablehlo
from hlo_passes.runtime.executable import CompilationError
from hlo_passes.runtime.gpu_aot import require_devices_for_xla
from hlo_passes.whole_numbers import whole_number

#: The attributes that say how a parameter or a result is divided.
_SHARDY: Final = "sdy.sharding"
_GSPMD: Final = "mhlo.sharding"
#: Sizes of a mesh's axes: `<["x"=2, "y"=4]>`.
_AXIS: Final = re.compile(r'"(?:[^"\\]|\\.)*"=(\d+)')


@dataclass(frozen=True, slots=True)
class StableHloProgram:
    """A StableHLO module, and what JAX would say about it to XLA.

    Attributes:
        path: of its file.
        module: MLIR's.
        replica_count: of the module.
        num_partitions: of the module, else of its mesh.
        is_shardy: whether Shardy's dialect divides it, or GSPMD's.
        free_inputs: for each parameter, whether nothing says how it is divided.
        free_outputs: the same for each result.
    """

    path: str
    module: Any
    replica_count: int
    num_partitions: int
    is_shardy: bool
    free_inputs: tuple[bool, ...]
    free_outputs: tuple[bool, ...]

    @property
    def is_undivided(self) -> bool:
        """Whether nothing says how any parameter or result is divided."""
        return all(self.free_inputs) and all(self.free_outputs)

    @property
    def device_count(self) -> int:
        """Devices that it runs on."""
        return self.replica_count * self.num_partitions

    def on(self, devices: Sequence[Any], machine: str = "") -> StableHloCompilation:
        """Its compilation for devices, of which it takes the first `device_count`.

        `machine`: absent GPUs as 'PxHxG'.

        Raises UsageError U026 if there are fewer, or others that it leaves out.
        """
        count = self.device_count
        if count not in (1, len(devices)):
            raise other_devices(self, len(devices))
        taken = np.array(devices[:count]).reshape(
            self.replica_count, self.num_partitions
        )
        return StableHloCompilation(self, taken, machine)


@dataclass(frozen=True, slots=True)
class StableHloCompilation:
    """A `capture.Compilation` of a StableHLO module.

    Attributes:
        program: the module.
        devices: of shape (replicas, partitions).
        machine: absent GPUs as 'PxHxG', '' for devices of this process.
    """

    program: StableHloProgram
    devices: np.ndarray
    machine: str = ""

    @property
    def name(self) -> str:
        """The file's name."""
        return self.program.path

    def stablehlo(self) -> str:
        """Its text, with source locations where it has them."""
        return self.program.module.operation.get_asm(enable_debug_info=True)

    def run(self, options: Mapping[str, Any]) -> None:
        """Compile; CompilationError R004 if XLA refuses it."""
        program = self.program
        shapes = program.replica_count, program.num_partitions
        if not self.machine and min(shapes) > 1 and not program.is_undivided:
            # It would end the process.
            raise CompilationError(
                f"JAX cannot load {self.name}: it has {shapes[0]} replicas of "
                f"{shapes[1]} partitions"
            )
        try:
            jax_private.compile_program(
                program.module,
                devices=self.devices,
                are_absent=bool(self.machine),
                is_shardy=program.is_shardy,
                free_inputs=program.free_inputs,
                free_outputs=program.free_outputs,
                compiler_options=options,
            )
        except RuntimeError as problem:
            raise CompilationError(
                f"XLA cannot compile {self.name}: {str(problem).splitlines()[0]}"
            ) from problem


def other_devices(program: StableHloProgram, count: int) -> UsageError:
    """U026: somebody asks for another number of devices than a program's."""
    return UsageError(
        f"{program.path} is for {program.device_count} devices, not for {count}",
        code="U026",
        hint="its own mesh says for how many: leave out --hosts, --gpus-per-host and "
        "--topology",
    )


def read_program(path: str) -> StableHloProgram:
    """Read a file of StableHLO, text or bytecode, also in gzip.

    Raises:
        UsageError: U001, no such file; U026, more devices than XLA can name.
        ParseError: P041 (broken gzip), P042 (no StableHLO), P011 (nested too deeply).
    """
    data = read_opened(path)
    module = stablehlo.parse_module(data, path)
    main = stablehlo.main_of(module)
    if main is None:
        raise stablehlo.not_stablehlo(stablehlo.NO_MAIN, path)
    # How many devices.
    replicas = _count(module, "mhlo.num_replicas", path) or 1
    meshes = [o for o in module.body.operations if o.operation.name == "sdy.mesh"]
    partitions = _count(module, "mhlo.num_partitions", path) or max(
        map(_mesh_size, meshes), default=1
    )
    require_devices_for_xla(replicas * partitions, pathlib.PurePath(path).name)
    # Which dialect divides the arrays, and which arrays it leaves alone.
    types = main.attributes["function_type"].value
    inputs = _attributes_of_each(main, "arg_attrs", types.inputs)
    outputs = _attributes_of_each(main, "res_attrs", types.results)
    is_shardy = bool(meshes) or any(_SHARDY in each for each in (*inputs, *outputs))
    attribute = _SHARDY if is_shardy else _GSPMD
    return StableHloProgram(
        path,
        module,
        replicas,
        partitions,
        is_shardy,
        *(
            tuple(
                attribute not in attributes and "token" not in str(type_)
                for attributes, type_ in zip(each, kinds, strict=True)
            )
            for each, kinds in ((inputs, types.inputs), (outputs, types.results))
        ),
    )


def _count(module: Any, name: str, path: str) -> int:
    """The number that an attribute of the module says, 0 if it has none."""
    attributes = module.operation.attributes
    if name not in attributes:
        return 0
    said = str(attributes[name]).partition(" : ")[0]
    count = whole_number(said)
    if not count:
        raise stablehlo.not_stablehlo(f"{name} = {said}", path)
    return count


def _mesh_size(mesh: Any) -> int:
    return math.prod(map(int, _AXIS.findall(str(mesh.attributes["mesh"]))))


def _attributes_of_each(main: Any, name: str, types: Any) -> list[Any]:
    """The attributes of each parameter or result; MLIR leaves out a list of none."""
    if name not in main.attributes:
        return [{} for _ in types]
    return list(main.attributes[name])
