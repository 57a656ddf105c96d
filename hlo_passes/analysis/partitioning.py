"""Whether XLA's partitioner has yet to split a module over its partitions.

    %s = f32[8] custom-call(%x), custom_call_target="Sharding"            not yet
    %p = f32[8] parameter(0), frontend_attributes={xla.sdy.sharding="..."}    not yet
    %n = f32[8] negate(%x), sharding={devices=[8]<=[8]}                   perhaps

The partitioner takes all shardings away but those of the entry's parameters and root.
XLA's later passes then give them to copies, to what replaces the root, and so into
fusions. So a sharding elsewhere says something only where nothing else shows that the
module is split: no schedule, no fusion, no collective. Shardings that name the axes of
a mesh all go, so that one at a parameter says as much.

A program for one device may have all of these, and there is nothing to split in it: on
one device only what divides an array counts.

Source: openxla/xla `xla/service/spmd/spmd_partitioner.cc` (ClearShardingAttributes),
`xla/service/layout_assignment.cc` (SetupCopiedInstruction); all modules of the corpus.
"""

from __future__ import annotations

import re
from typing import Final

from hlo_passes.ir.async_form import is_collective
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.sharding import MeshSharding, Sharding, TupleSharding, parse_sharding

#: Targets that annotate a value for the partitioner, and change nothing on one device.
ANNOTATIONS: Final = frozenset(
    [
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
    ]
)
#: Targets that only an unpartitioned module has.
_CUSTOM_CALLS: Final = ANNOTATIONS | {"CustomSPMDPartitioning"}

#: A frontend attribute that the partitioner reads and takes away.
_FOR_THE_PARTITIONER: Final = "xla.sdy.sharding"
#: A mesh in the header's frontend attributes: `"x"=4` is an axis of four devices.
_MESHES: Final = "xla.sdy.meshes"
_AXIS_SIZE: Final = re.compile(r'"\s*=\s*(\d{1,18})')


def mark_of_no_partitioning(module: Module) -> tuple[Instruction, str] | None:
    """An instruction that shows that the module is not partitioned yet, and how.

    Returns:
        The instruction, and what it has, as the end of '%name has ...'; None if nothing
        shows it, as in a module of one partition without annotations.
    """
    one_partition = module.num_partitions == 1 and not _has_mesh(module)
    one_device = one_partition and module.replica_count == 1
    shows_partitioning = one_partition or module.is_scheduled
    annotated: tuple[Instruction, str] | None = None
    for computation in module.computations:
        for instruction in computation.instructions:
            if (target := custom_call_target(instruction)) in _CUSTOM_CALLS:
                if one_device and not _divides(instruction):
                    continue
                return instruction, f"the target {target}"
            if shows_partitioning:
                continue
            if instruction.opcode == "fusion" or is_collective(instruction):
                shows_partitioning = True
            elif _is_for_the_partitioner(instruction):
                return instruction, f"the attribute {_FOR_THE_PARTITIONER}"
            elif annotated is None and _is_annotated(instruction):
                annotated = instruction, "a sharding"
    return None if shows_partitioning else annotated


def custom_call_target(instruction: Instruction) -> str:
    """The target of a custom call; '' for other instructions."""
    if instruction.opcode != "custom-call":
        return ""
    return instruction.attributes.get("custom_call_target", "").strip('"')


def sharded_instruction(module: Module) -> Instruction | None:
    """The first instruction whose sharding gives devices different parts, or None."""
    for computation in module.computations:
        for instruction in computation.instructions:
            if not instruction.mentions("sharding"):
                continue
            text = instruction.attributes.get("sharding")
            if text is not None and _splits(parse_sharding(text)):
                return instruction
    return None


def _has_mesh(module: Module) -> bool:
    """Whether the header has a mesh of several devices.

    JAX's text of a lowered function names no partitions, but its mesh.
    """
    text = module.attributes.get("frontend_attributes", "")
    if _MESHES not in text:
        return False
    return any(int(size) > 1 for size in _AXIS_SIZE.findall(text))


def _divides(call: Instruction) -> bool:
    """Whether a custom call of the partitioner changes or splits the array."""
    if any(operand.shape != call.shape for operand in call.operands):
        return True
    text = call.attributes.get("sharding")
    return text is not None and _splits(parse_sharding(text))


def _is_for_the_partitioner(instruction: Instruction) -> bool:
    text = instruction.attributes.get("frontend_attributes", "")
    return (
        _FOR_THE_PARTITIONER in text
        and _FOR_THE_PARTITIONER in instruction.frontend_attributes
    )


def _is_annotated(instruction: Instruction) -> bool:
    text = instruction.attributes.get("sharding")
    if text is None:
        return False
    sharding = parse_sharding(text)
    if not _splits(sharding):
        return False
    stays = instruction.opcode == "parameter" or instruction.is_root
    return not stays or _names_axes(sharding)


def _names_axes(sharding: Sharding) -> bool:
    if isinstance(sharding, TupleSharding):
        return any(map(_names_axes, sharding.elements))
    return isinstance(sharding, MeshSharding)


def _splits(sharding: Sharding) -> bool:
    """Whether the sharding gives devices different parts of an array."""
    if isinstance(sharding, TupleSharding):
        return any(map(_splits, sharding.elements))
    if isinstance(sharding, MeshSharding):
        named = any(dimension.axes for dimension in sharding.dimensions)
        return named and sharding.mesh.device_count > 1
    return sharding.tile is not None
