"""Says how every array is divided, given how some arrays are divided.

Before:  %x = f32[8,16] parameter(0), sharding={devices=[4,1]<=[4]}
         %t = f32[16,8] transpose(%x), dimensions={1,0}
         %c = f32[16,8] iota(), iota_dimension=0
         %s = f32[16,8] add(%t, %c)
After:   %t = f32[16,8] transpose(%x), dimensions={1,0}, sharding={devices=[1,4]<=[4]}
         %c = f32[16,8] iota(), iota_dimension=0, sharding={devices=[1,4]<=[4]}
         %s = f32[16,8] add(%t, %c), sharding={devices=[1,4]<=[4]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hlo_passes.analysis.module_state import module_state
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.sharding import TupleSharding
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.sharding.gathered_operands import gather_operands
from hlo_passes.passes.sharding.propagation import disagreements, propagate
from hlo_passes.passes.sharding.values import Array, Program, program_of


@dataclass(frozen=True, slots=True)
class ShardingPropagator(Pass):
    """Propagate annotated shardings to the instructions that have none.

    This pass belongs to this project, not to XLA. It works on modules that are not
    partitioned yet, as `hlo-passes lower --stage=before-optimizations` writes them, if
    JAX annotates them in GSPMD's form, not in Shardy's. XLA's partitioner uses the
    shardings that are written and decides the rest itself.

    The pass goes forward and backward, dimension by dimension, through elementwise
    instructions, broadcasts, reshapes, transposes, dots, reductions, slices, gathers,
    scatters, loops, branches and calls. Existing annotations stay as they are, except
    for dimensions that an annotation leaves open. If two suggestions exclude each
    other, the pass prefers the array that is divided into more parts, then the larger
    array, then the first one. A remark names the suggestion that lost; the partitioner
    has to move data there. Constants and iotas are divided like their users, because
    every device makes its own part.

    A gather may index a table along a divided dimension. The pass annotates such a
    table as whole for that gather if a device then sends fewer bytes: an all-gather of
    the table replaces an all-reduce of everything that is looked up. The device then
    needs memory for the whole table.

    The pass divides arguments and results only into equal parts. It leaves alone manual
    parts of a program (`shard_map`), arrays on one device, and instructions without a
    rule. It also leaves alone instructions of a computation that several calls divide
    differently.

    Requires: a module before partitioning, for more than one partition.
    Ensures: the values are the same; every sharding that is written can be partitioned.
    Complexity: a few walks over the module with its calls inlined.

    Attributes:
        gather_operands: annotate tables as whole where that sends fewer bytes.
    """

    name: ClassVar[str] = "sharding-propagator"
    #: Once XLA partitions the module: a sum may be divided over devices.
    reorders_sums: ClassVar[bool] = True

    gather_operands: bool = True

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Read what is annotated, hand it on, write what was found."""
        state = module_state(module)
        if module.num_partitions < 2:
            report.remark("not changed: the module is for one partition")
            return False
        if state.stage not in ("before-optimizations", "unknown"):
            report.remark(f"not changed: the module is {state.summary}")
            return False
        program = program_of(module)
        propagate(program)
        for instruction, why in program.left_alone.items():
            report.remark(f"%{instruction.name} was not asked: {why}")
        for tie, why in disagreements(program):
            report.count("disagreements")
            report.remark(f"data moves at %{tie.at.name}: {why}")
        before = module.version
        _write(program, report)
        if self.gather_operands:
            gather_operands(program, report)
        return module.version != before


def _write(program: Program, report: Report) -> None:
    for instruction, copies in program.leaves.items():
        if "sharding" in instruction.attributes:
            continue
        text = _text_of(instruction, copies[0])
        if any(_text_of(instruction, other) != text for other in copies[1:]):
            report.count("calls-that-differ")
            report.remark(
                f"%{instruction.name} is left open: calls of "
                f"%{instruction.computation.name} divide it differently"
            )
        elif text is not None:
            instruction.set_attribute("sharding", text)
            report.count("shardings-written")


def _text_of(instruction: Instruction, leaves: list[Array]) -> str | None:
    """The sharding of an instruction; None where nothing is to be said."""
    if any(a.is_opaque and a.shape.is_array for a in leaves):
        return None
    if all(a.splits.is_replicated for a in leaves):
        return None
    # A tuple's sharding names all elements. One of which nothing is known would be
    # replicated for good; without the tuple's the partitioner asks the elements.
    if any(a.is_unknown for a in leaves):
        return None
    # JAX cannot hold an argument or a result in uneven parts.
    is_outside = instruction.computation.is_entry and (
        instruction.is_root or instruction.opcode == "parameter"
    )
    if is_outside and not all(_is_in_equal_parts(a) for a in leaves):
        return None
    shardings = tuple(a.splits.to_sharding() for a in leaves)
    if instruction.shape.is_tuple:
        return TupleSharding(shardings).to_text()
    return shardings[0].to_text()


def _is_in_equal_parts(array: Array) -> bool:
    if not array.shape.is_array:
        return True
    sizes = zip(array.shape.dimensions, array.splits.parts, strict=True)
    return all(size % parts == 0 for size, parts in sizes)
