"""A collective as the latency model sees it: groups, sizes, bytes moved.

    describe(instruction).transferred_bytes    what goes over the network
    describe(instruction).accessed_bytes       what goes through HBM

Synchronous forms, native starts, `async-start` around a collective and its sugar all
become the same kind of value here.

Source: openxla/xla `gpu_hlo_cost_analysis.cc`, `collective_ops_utils.cc` (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.devices import group_mode, require_listable
from hlo_passes.ir import opcodes
from hlo_passes.ir.async_form import (
    begun_collective,
    is_collective,
    is_start,
    work_of,
    wrapped_computation,
)
from hlo_passes.ir.gpu_config import collective_config, is_marked_sync
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.replica_groups import (
    IotaGroups,
    ReplicaGroups,
    parse_source_target_pairs,
)
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.latency.communication import Groups
from hlo_passes.scheduler.latency.data_tables import DEFAULT_OP_CYCLES, op_cycles
from hlo_passes.scheduler.latency.durations import float32_integer
from hlo_passes.scheduler.latency.network import NotEstimated

#: Bytes of metadata for a dynamic dimension.
_DYNAMIC_SIZE_BYTES: Final = 4
#: A tuple's table holds a pointer per element.
POINTER_BYTES: Final = 8
_KERNEL_STRATEGIES: Final = ("TRITON_ONE_SHOT", "TRITON_TWO_SHOT")


def array_bytes(shape: Shape) -> int:
    """Bytes of an array; every dimension of a dynamic shape counts four more."""
    if shape.is_dynamic:
        return shape.byte_size + _DYNAMIC_SIZE_BYTES * shape.rank
    return shape.byte_size


def leaf_bytes(shape: Shape) -> int:
    """Bytes of all arrays in a shape."""
    if not shape.is_tuple:
        return array_bytes(shape) if shape.is_array else 0
    return sum(leaf_bytes(element) for element in shape.elements)


def operand_bytes(shape: Shape) -> int:
    """Bytes of an operand: an array, or the table of a tuple."""
    if shape.is_tuple:
        return POINTER_BYTES * len(shape.elements)
    return array_bytes(shape) if shape.is_array else 0


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective.

    Attributes:
        kind: the synchronous opcode: 'all-gather'.
        form: 'sync', 'start' (native) or 'wrapped' (async-start).
        groups: as written, None if there are none.
        pairs: source-target pairs of a permute.
        group_mode: 'cross-replica', 'cross-partition', 'cross-replica-and-partition'
            or 'flattened'.
        replica_count: of the module.
        num_partitions: of the module.
        result: the result of the operation (for a start: its second element).
        element_type: of the first array of the result.
        transferred_bytes: what goes over the network.
        accessed_bytes: what goes through HBM.
        reduction: opcode of the root of `to_apply`, '' if there is none.
        kernel_strategy: '' or the NVLink kernel the compiler chose.
        is_sync: whether the compiler decided that it does not overlap.
        ragged_bytes: of a ragged all-to-all, those of the smaller of its two buffers,
            which bound what a device sends and receives; else 0.
    """

    kind: str
    form: str
    groups: ReplicaGroups | None
    pairs: tuple[tuple[int, int], ...]
    group_mode: str
    replica_count: int
    num_partitions: int
    result: Shape
    element_type: str
    transferred_bytes: int
    accessed_bytes: int
    reduction: str
    kernel_strategy: str
    is_sync: bool
    ragged_bytes: int = 0

    @property
    def listed_groups(self) -> Groups:
        """The groups, expanded; () if none are given."""
        return self.groups.groups if self.groups is not None else ()

    @property
    def first_result(self) -> Shape:
        """The first array of the result."""
        return next(leaf for _, leaf in self.result.leaves())

    def count_and_size(self) -> tuple[int, int]:
        """Communicators, and devices in each. NotEstimated if sizes differ."""
        if self.groups is not None and isinstance(self.groups.form, IotaGroups):
            return self.groups.form.count, self.groups.form.size
        sizes = participant_counts(
            self.listed_groups,
            self.group_mode,
            self.replica_count,
            self.num_partitions,
        )
        if len(set(sizes)) > 1:
            raise NotEstimated("the replica groups have different sizes")
        return len(sizes), sizes[0]

    def reduction_flops(self, op_profile: str) -> int:
        """Cycles of the reduction, for all elements of the result together."""
        if not self.reduction:
            return 0
        cycles = op_cycles(op_profile).get(
            (self.reduction, self.result.element_type), DEFAULT_OP_CYCLES
        )
        return float32_integer(cycles * self.result.element_count)


def participant_counts(
    groups: Groups, mode: str, replica_count: int, num_partitions: int
) -> list[int]:
    """Devices of each communicator. NotEstimated for flattened ids without groups."""
    if not groups:
        if mode == "flattened":
            raise NotEstimated("flattened ids without replica groups")
        count = num_partitions if mode == "cross-partition" else replica_count
        groups = (tuple(range(count)),)
    if mode == "cross-replica":
        return [len(group) for group in groups for _ in range(num_partitions)]
    if mode == "cross-replica-and-partition":
        return [len(group) * num_partitions for group in groups]
    return [len(group) for group in groups]


def wrapped_collective(start: Instruction) -> Instruction | None:
    """The collective inside an `async-start`; None if it wraps something else.

    From XLA 0.12 on a collective kernel is a fusion (`__triton_collective`) whose root
    is the collective.
    """
    for callee in start.called_computations:
        root = callee.root
        if root.opcode == "fusion":
            root = root.called_computations[0].root
        if root.opcode in opcodes.SYNC_COLLECTIVES:
            return root
    return None


def fused_collective(fusion: Instruction) -> Instruction | None:
    """The collective that a custom fusion runs as one kernel; None for anything else.

    Complexity: linear in the fusion's body.
    """
    if fusion.opcode != "fusion" or not fusion.mentions("kCustom"):
        return None
    for body in fusion.called_computations:
        for instruction in body.instructions:
            if instruction.opcode in opcodes.SYNC_COLLECTIVES:
                return instruction
    return None


def kernel_collective(instruction: Instruction) -> Instruction | None:
    """The collective in the kernel that a fusion is or an `async-start` begins.

    None for anything else, and for an `async-start` of a collective itself.
    """
    if instruction.opcode != "async-start":
        return fused_collective(instruction)
    wrapped = wrapped_computation(instruction)
    return None if wrapped is None else fused_collective(wrapped.root)


def collective_begun(instruction: Instruction) -> str:
    """The kind of the collective that begins here, in a kernel or not; '' for none.

    'all-gather' for all-gather and all-gather-start, and for an async-start and a
    fusion around one. Sends and recvs are not collectives, and calls of computations
    with collectives are none.
    """
    row = opcodes.facts(instruction.opcode)
    if row.half not in ("", "start"):
        return ""
    if row.is_collective:
        return row.work
    kernel = kernel_collective(instruction)
    if kernel is not None:
        return kernel.opcode
    return work_of(instruction) if is_collective(instruction) else ""


def describe(instruction: Instruction) -> Collective | None:
    """What the model needs from a collective or its start; None for anything else."""
    opcode = instruction.opcode
    if opcode in ("async-start", "fusion"):
        is_fusion = opcode == "fusion"
        find = fused_collective if is_fusion else wrapped_collective
        inner = find(instruction)
        return inner and _describe(inner, inner.opcode, "wrapped", instruction)
    kind = begun_collective(opcode)
    if not kind:
        return None
    row = opcodes.facts(opcode)
    form = "wrapped" if row.is_sugar else "start" if row.half else "sync"
    return _describe(instruction, kind, form, instruction)


def describe_transfer(instruction: Instruction) -> Collective | None:
    """A send or recv as a permute of its pairs; None without pairs or for other ops.

    The pairs are in the frontend attribute `transfer_attributes.PAIRS`.
    """
    if instruction.opcode not in opcodes.TRANSFERS:
        return None
    text = instruction.frontend_attributes.get(transfer_attributes.PAIRS, "")
    data = instruction.shape.elements[0] if instruction.shape.is_tuple else None
    if not text or data is None:
        return None
    module = instruction.computation.module
    size = leaf_bytes(data)
    return Collective(
        kind="collective-permute",
        form="start",
        groups=None,
        pairs=parse_source_target_pairs(text).pairs,
        group_mode="cross-partition",
        replica_count=module.replica_count,
        num_partitions=module.num_partitions,
        result=data,
        element_type=data.element_type,
        transferred_bytes=float32_integer(size),
        accessed_bytes=float32_integer(2 * size),
        reduction="",
        kernel_strategy="",
        is_sync=False,
    )


def _describe(
    collective: Instruction, kind: str, form: str, start: Instruction
) -> Collective:
    module = collective.computation.module
    attributes = collective.attributes
    groups = collective.replica_groups
    pairs = collective.source_target_pairs
    result = _result_shape(collective, kind)
    mode = group_mode(collective, kind)
    replicas, partitions = module.replica_count, module.num_partitions
    require_listable(start, replicas * partitions)
    ranks = 1
    if kind in ("all-gather", "all-reduce", "reduce-scatter"):
        listed = groups.groups if groups is not None else ()
        ranks = max(1, *participant_counts(listed, mode, replicas, partitions))
    transferred, accessed = _bytes(collective, kind, form, result, ranks)
    strategy = _kernel_strategy(start) or _kernel_strategy(collective)
    leaves = [leaf for _, leaf in result.leaves()]
    return Collective(
        kind=kind,
        form=form,
        groups=groups,
        pairs=pairs.pairs if pairs is not None else (),
        group_mode=mode,
        replica_count=replicas,
        num_partitions=partitions,
        result=result,
        element_type=leaves[0].element_type if leaves else "",
        transferred_bytes=float32_integer(transferred),
        accessed_bytes=float32_integer(accessed),
        reduction=(
            collective.called_computations[0].root.opcode
            if "to_apply" in attributes
            else ""
        ),
        kernel_strategy=strategy,
        is_sync=is_marked_sync(start),
        ragged_bytes=(
            min(leaf_bytes(o.shape) for o in collective.operands[:2])
            if kind == "ragged-all-to-all"
            else 0
        ),
    )


def _kernel_strategy(instruction: Instruction) -> str:
    """The kernel strategy of an instruction's backend config, '' for the default."""
    word = str(collective_config(instruction).get("kernel_strategy", ""))
    return next((k for k in _KERNEL_STRATEGIES if word.endswith(k)), "")


def _result_shape(collective: Instruction, kind: str) -> Shape:
    """The shape of the results: a start's is (operands, results, ...) in most cases."""
    shape = collective.shape
    if is_start(collective) and kind != "all-reduce" and shape.is_tuple:
        return shape.elements[1]
    return shape


def _bytes(
    collective: Instruction, kind: str, form: str, result: Shape, ranks: int
) -> tuple[int, int]:
    """(transferred, accessed), section 5 of the specification of the model."""
    operands = sum(operand_bytes(o.shape) for o in collective.operands)
    received = leaf_bytes(result)
    if kind == "all-gather":
        rank = received // ranks
        return received, rank * (2 * ranks - 1) + rank * ranks
    if kind == "reduce-scatter":
        sent = sum(leaf_bytes(o.shape) for o in collective.operands)
        rank = sent // ranks
        return sent, rank * ranks + rank * (2 * ranks - 1)
    if kind == "all-reduce":
        return received, received if form == "start" else received + operands
    if kind == "all-to-all":
        return received, operands + received
    if kind == "collective-permute":
        first = leaf_bytes(collective.operands[0].shape)
        is_start = form == "start"
        moved = leaf_bytes(collective.shape) if is_start else received
        return first, operands + moved
    return 0, operands + received
