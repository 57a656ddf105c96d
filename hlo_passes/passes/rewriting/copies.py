"""Copies of instructions as XLA's passes make them.

    copy_of(%all-gather, (%x,), shape)       the same attributes, channel id included
    derive(%new, %all-reduce)                the metadata, frontend attributes and
                                             sharding of %all-reduce

Control edges are not copied.
Source: openxla/xla `xla/hlo/ir/hlo_instruction.cc` (CloneWithNewOperands,
SetupDerivedInstruction).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from hlo_passes.ir.attribute_values import in_print_order
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.passes.rewriting.cloning import clone_instruction

#: What says which devices a collective joins, and how.
_OF_COLLECTIVES: Final = frozenset(
    {"channel_id", "replica_groups", "constrain_layout", "use_global_device_ids",
     "dimensions", "to_apply"}
)  # fmt: skip
#: Frontend attribute that is not handed on.
_COMPUTE_TYPE: Final = "_xla_compute_type"


def copy_of(
    instruction: Instruction,
    operands: Iterable[Instruction],
    shape: Shape | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Instruction:
    """A copy with other operands, at the end of the same computation.

    Args:
        instruction: what is copied.
        operands: of the copy.
        shape: of the copy; the same one when not given.
        attributes: values that differ.
    """
    return clone_instruction(
        instruction,
        instruction.computation,
        operands,
        shape=shape,
        changes=attributes,
    )


def copy_without_description(
    collective: Instruction,
    operands: Iterable[Instruction],
    shape: Shape,
    attributes: Mapping[str, str],
) -> Instruction:
    """A new collective that does the same for the same devices, and nothing else.

    It has no metadata, frontend attributes, backend config or sharding; its groups are
    written out.

    Args:
        collective: the one that is followed.
        operands: of the new one.
        shape: of the new one.
        attributes: values that differ.
    """
    kept = {n: t for n, t in collective.attributes.items() if n in _OF_COLLECTIVES}
    groups = collective.replica_groups
    if groups is not None:
        kept["replica_groups"] = groups.to_explicit_text()
    return collective.computation.new(
        collective.opcode,
        shape,
        operands,
        in_print_order({**kept, **attributes}, collective.opcode),
    )


def derive(
    new: Instruction, source: Instruction, *, added: bool = False
) -> Instruction:
    """Give an instruction the description of another; returns it.

    Metadata and frontend attributes that `source` does not have are taken away. A
    sharding goes along between arrays, or between tuples; a backend config between
    instructions of one opcode, where the new one has none.

    Args:
        new: the instruction to describe.
        source: whose description it is.
        added: as XLA does where it adds an instruction through another: a reshape or
            transpose receives no sharding.
    """
    new.set_attribute("metadata", source.attributes.get("metadata"))
    attributes = source.attributes.get("frontend_attributes")
    new.set_attribute("frontend_attributes", attributes)
    if attributes is not None and _COMPUTE_TYPE in attributes:
        kept = new.frontend_attributes.without(_COMPUTE_TYPE)
        new.frontend_attributes = kept
    moves = added and new.opcode in ("reshape", "transpose")
    sharding = source.attributes.get("sharding")
    if new.shape.is_tuple != source.shape.is_tuple:
        new.set_attribute("sharding", None)
    elif sharding is not None and not (moves and "sharding" not in new.attributes):
        new.set_attribute("sharding", sharding)
    config = source.attributes.get("backend_config")
    if new.opcode == source.opcode and "backend_config" not in new.attributes:
        new.set_attribute("backend_config", config)
    return new
