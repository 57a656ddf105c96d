"""Says for every array how it is divided, given how some of them are.

Before:  %x = f32[8,16] parameter(0), sharding={devices=[4,1]<=[4]}
         %t = f32[16,8] transpose(%x), dimensions={1,0}
         %c = f32[16,8] iota(), iota_dimension=0
         %s = f32[16,8] add(%t, %c)
After:   %t = f32[16,8] transpose(%x), dimensions={1,0}, sharding={devices=[1,4]<=[4]}
         %c = f32[16,8] iota(), iota_dimension=0, sharding={devices=[1,4]<=[4]}
         %s = f32[16,8] add(%t, %c), sharding={devices=[1,4]<=[4]}

XLA's partitioner takes what is written and decides the rest itself.
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
    """Write a sharding at every instruction that what is annotated divides.

    A pass of this project for modules that are not partitioned yet, as
    `hlo-passes lower --stage=before-optimizations` gives them where JAX annotates in
    GSPMD's words. It goes forward and backward through elementwise instructions,
    broadcasts, reshapes, transposes, products, reductions, slices, gathers, scatters,
    loops, branches and calls, dimension by dimension. What is annotated stays as it is,
    but for dimensions that an annotation leaves open. Where two suggestions exclude
    each other, the array in more parts is heard first, then the larger one, then the
    first; a remark says who was not heard, and the partitioner has to move data there.
    Constants and iotas are divided as their users are: every device makes its own part.

    A table that is divided where a gather indexes it is annotated as whole for that
    gather if a device then sends fewer bytes: an all-gather of the table in place of an
    all-reduce of all that is looked up. It takes the memory of the whole table.

    Arguments and results are divided into equal parts only.

    Manual parts of a program (`shard_map`), arrays on one device and instructions
    without a rule stay as they are. So do instructions of a computation that is called
    several times, where the calls divide them differently.

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
