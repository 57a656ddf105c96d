"""Shardings against shapes and devices.

    V801 the sharding does not fit    V802 a loop or conditional and its bodies differ

Source: openxla/xla `xla/hlo/ir/hlo_sharding.cc` (Validate), `hlo_verifier.cc`
(VerifyConsistentSharding).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hlo_passes.errors import HloError
from hlo_passes.ir.shapes import Shape
from hlo_passes.ir.sharding import (
    MeshSharding,
    Sharding,
    TileSharding,
    TupleSharding,
    for_shape,
    parse_sharding,
)
from hlo_passes.verify.finding import Fault

if TYPE_CHECKING:
    from hlo_passes.ir.computation import Computation
    from hlo_passes.ir.instruction import Instruction

_REMEMBERED: Final = 65_536


@lru_cache(maxsize=_REMEMBERED)
def check_sharding(text: str, shape: Shape, partitions: int) -> tuple[Fault, ...]:
    """What is wrong with the sharding of a value; () if it is correct.

    `partitions` of 1 means that the number of devices is not known.
    """
    if shape.is_token:
        return ()
    try:
        sharding = for_shape(parse_sharding(text), shape)
    except HloError:
        return ()  # V103 reports it already
    if not isinstance(sharding, TupleSharding):
        problem = _leaf_problem(sharding, shape, partitions)
        return (Fault("V801", problem),) if problem else ()
    leaves = [leaf for _, leaf in shape.leaves()]
    if not shape.is_tuple:
        return (Fault("V801", f"a sharding of a tuple on {shape}"),)
    if len(leaves) != len(sharding.elements):
        if not leaves and len(sharding.elements) <= 1:
            return ()
        what = f"{len(sharding.elements)} shardings for {len(leaves)} leaves of {shape}"
        return (Fault("V801", what),)
    problems = [
        _leaf_problem(one, leaf, partitions)
        for one, leaf in zip(sharding.elements, leaves, strict=True)
    ]
    return tuple(Fault("V801", p) for p in dict.fromkeys(problems) if p)


def _device_problem(device: int, partitions: int) -> str:
    if device < 0 or (partitions > 1 and device >= partitions):
        return f"device {device} in a sharding over {partitions} partitions"
    return ""


def _leaf_problem(
    sharding: TileSharding | MeshSharding, shape: Shape, partitions: int
) -> str:
    """What is wrong with the sharding of one array; '' if it is correct."""
    if isinstance(sharding, MeshSharding):
        if not sharding.dimensions:
            return ""
        if len(sharding.dimensions) != shape.rank:
            return f"{len(sharding.dimensions)} sharded dimensions for {shape}"
        count = sharding.mesh.device_count
        if partitions > 1 and count != partitions:
            return f"a mesh of {count} devices for {partitions} partitions"
        return ""
    if sharding.device is not None:
        return _device_problem(sharding.device, partitions)
    tile = sharding.tile
    if tile is None:
        return ""
    rank = len(tile.dims) - len(sharding.last_types)
    if rank != shape.rank:
        return f"{rank} tiled dimensions for {shape.text_without_layout}"
    ids = tile.ids()
    if len(set(ids)) != len(ids):
        return "a device appears twice in a sharding"
    if partitions > 1 and len(ids) != partitions:
        return f"a sharding over {len(ids)} devices for {partitions} partitions"
    for device in ids:
        problem = _device_problem(device, partitions)
        if problem:
            return problem
    return ""


def _bare(sharding: Sharding) -> Sharding:
    """The sharding without metadata, which XLA does not compare."""
    if isinstance(sharding, TupleSharding):
        return TupleSharding(tuple(replace(e, metadata=()) for e in sharding.elements))
    return replace(sharding, metadata=())


def _of(instruction: Instruction) -> Sharding | None:
    text = instruction.attributes.get("sharding")
    if text is None:
        return None
    return _bare(for_shape(parse_sharding(text), instruction.shape))


def check_consistent(
    instruction: Instruction, callees: tuple[Computation, ...]
) -> tuple[Fault, ...]:
    """Check that a loop or conditional agrees with its bodies and branches.

    It compares the instruction, the roots of bodies and branches, and the parameters of
    a loop, as far as they have a sharding.
    """
    looks: list[Instruction] = [instruction]
    if instruction.opcode == "while":
        body, condition = callees[0], callees[1]
        looks.append(body.root)
        for callee in (body, condition):
            looks += [i for i in callee.instructions if i.opcode == "parameter"][:1]
    else:
        looks += [branch.root for branch in callees]
    first: Sharding | None = None
    try:
        for one in looks:
            found = _of(one)
            if found is None:
                continue
            if first is None:
                first = found
            elif found != first:
                what = f"the sharding of %{one.name} differs from that of the others"
                return (Fault("V802", f"{instruction.opcode}: {what}"),)
    except HloError:
        return ()  # V103 reports it already
    return ()
