"""What XLA's releases do differently: one row per release, one column per fact.

    xla_release("0.12.0.1").wraps_every_collective        True
    xla_release("0.10").name                              '0.10.2'

A release is named as the jaxlib that ships it. A row holds until the next one begins,
so that "0.11.2" finds the row 0.11. A new release is one new row; no other module of
this project compares releases.

Source: what the GPU compilers of these jaxlibs make of the programs of `corpus`, and
their logs; where a file of openxla/xla decides, it is named at the column's reader.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any, Final

from hlo_passes.whole_numbers import whole_number

_VERSION: Final = re.compile(r"(\d+(?:\.\d+)+)(?:[.\-+]?[a-z].*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class XlaRelease:
    """One release of XLA, as far as it differs from others.

    Attributes:
        name: the first version of jaxlib that behaves like this.
        config_is_alphabetical: the backend config is printed by field name; else in
            the order of declaration.
        collective_fields: fields of `collective_backend_config` that are always
            printed, with their defaults, in order of declaration.
        wraps_every_collective: every collective becomes `async-start`; else all-gather,
            all-reduce and collective-permute have opcodes of their own.
        starts_collective_fusions: fusions around a collective become asynchronous too.
        sync_pairs_are_replaced: a pair that hides nothing becomes the plain collective;
            else its start moves to its done.
        combiners_say_spmd: a combined collective says whether SPMD partitioning made
            it.
        keys_by_group: collectives of one `collective_group_key` become one pair, and
            permutes of different keys are kept apart.
        wraps_annotated_instructions: what carries a stream annotation and is not a call
            is put into one.
        annotated_on_parallel_thread: annotated calls run on the thread `parallel`.
        groups_keep_description: the pair of a group of collectives has the metadata and
            backend config of its call.
        groups_communicate: a group of collectives is on a communication stream; else
            on a compute stream.
        copies_have_streams: copies between host and device have a stream each way.
        slice_copies_have_a_resource: copies by dynamic slice are a resource of the
            scheduler; else asynchronous computations.
        repeats_hazard_edges: a hazard adds an edge beside the operand's own.
        slices_to_anywhere_are_early: the rule for slices written to the host holds for
            slices written to any memory.
        fills_are_early: a large fusion without operands is placed right before its
            user.
        lists_by_dataflow: the list scheduler takes what lives from the dataflow
            analysis; else from an older one that looks at no callee.
        counts_handover_once: the memory scheduler counts a buffer once at the moment
            when one of its values ends and the next begins; else twice.
        partition_from_topology: the analytical model takes the partition's size from
            the topology; else from the number of GPUs of a node.
        prices_kernel_strategies: collectives annotated with a kernel are priced as
            NVLink kernels.
        prices_collective_fusions: an asynchronous fusion around a collective has the
            price of the collective; else that of any asynchronous fusion. XLA 0.10.2
            has no such fusions.
        broadcasts_join: a broadcast inside a fusion belongs to its user's loop in the
            price of the fusion.
        loop_variables_are_scalars: what counts a loop is a scalar; else also an array
            that is an operand of the condition and of its update.
        divides_trip_counts_rightly: a loop whose range starts or ends below 0 is
            counted as it runs; else rounding may lose or add an iteration.
        derives_collectives: a collective made from others has their metadata and
            frontend attributes; else none.
        rewrites_keep_channels: an all-reduce in the place of two that are joined, and
            permutes in the place of an all-gather, have its channel id; else new ones.
        removals_hand_on_attributes: what takes the place of a collective that does
            nothing receives its frontend attributes.
        permutes_own_parts: a permute in the place of an all-gather sends a device's
            part to itself too; else such a device receives zeros.
        shifts_wrapped_slices: double buffering adjusts what a wrapped slice takes;
            else those of the first iteration stay with each copy.
        negative_factors_turn_ranges: the pipeliner takes the range of an index times a
            negative constant from its other end; else smallest and largest value keep
            their places, so that some sums of such an index seem to wrap.
        moved_reductions_are_derived: an all-reduce that leaves a loop keeps channel and
            metadata, and who reads the loop's result reads its elements; else it has a
            fresh channel.
        moved_reductions_take_attributes: frontend attributes of an all-reduce leave the
            loop with it; else its operand inherits them.
        keeps_donation: input-output aliases survive a callback that replaces a module.
        calls_back_without_gpus: registered callbacks run in compilations for GPUs that
            are not there.
        calls_back_without_tpus: the same for TPUs.
        dumps_leave_out_elements: dumped text has `%t#0` for most get-tuple-elements,
            unless the flag `xla_dump_compact_gte` is false.
        annotates_in_one_domain: `collective-combiner-annotator` also runs where one
            NVLink domain holds all devices of a module.
        unrolls_by_steps: in a loop unrolled at once the counter has the values that it
            had; else they are one apart, whatever the step.
        kernel_groups_lie: how near the devices of a group must be for a collective
            kernel: 'anywhere', in one 'host', or in one NVLink 'domain'.
        most_kernel_devices: of one group.
        kernel_groups_differ: groups of different size may have a kernel, by the size
            of the first one.
        kernel_bytes_by_devices: what an all-reduce with a kernel may have grows as its
            groups get smaller.
        gathers_by_kernel: which all-gathers may have a kernel: 'no', 'aligned' ones, or
            those whose parts are 'tiled' equally.
        fused_kernels: collectives that become a fusion where they have a kernel.
        kernels_take_starts: an all-reduce that the module already starts by itself may
            have a kernel, too.
        splits_ragged_between_hosts: ragged all-to-alls over two hosts are split by
            default; else only if a flag says so.
        ragged_barrier_is_by_nccl: devices of a ragged all-to-all wait for each other by
            NCCL, so that what it writes lies in registered memory; else only if a flag
            says so.
        collective_memory_space: the number of the memory that is registered for
            collectives.
        new_flags: flags of our options that no release before it knows.
    """

    name: str
    config_is_alphabetical: bool
    collective_fields: tuple[tuple[str, Any], ...]
    wraps_every_collective: bool
    starts_collective_fusions: bool
    sync_pairs_are_replaced: bool
    combiners_say_spmd: bool
    keys_by_group: bool
    wraps_annotated_instructions: bool
    annotated_on_parallel_thread: bool
    groups_keep_description: bool
    groups_communicate: bool
    copies_have_streams: bool
    slice_copies_have_a_resource: bool
    repeats_hazard_edges: bool
    slices_to_anywhere_are_early: bool
    fills_are_early: bool
    lists_by_dataflow: bool
    counts_handover_once: bool
    partition_from_topology: bool
    prices_kernel_strategies: bool
    prices_collective_fusions: bool
    broadcasts_join: bool
    loop_variables_are_scalars: bool
    divides_trip_counts_rightly: bool
    derives_collectives: bool
    rewrites_keep_channels: bool
    removals_hand_on_attributes: bool
    permutes_own_parts: bool
    shifts_wrapped_slices: bool
    negative_factors_turn_ranges: bool
    moved_reductions_are_derived: bool
    moved_reductions_take_attributes: bool
    keeps_donation: bool
    calls_back_without_gpus: bool
    calls_back_without_tpus: bool
    dumps_leave_out_elements: bool
    annotates_in_one_domain: bool
    unrolls_by_steps: bool
    kernel_groups_lie: str
    most_kernel_devices: int
    kernel_groups_differ: bool
    kernel_bytes_by_devices: bool
    gathers_by_kernel: str
    fused_kernels: tuple[str, ...]
    kernels_take_starts: bool
    splits_ragged_between_hosts: bool
    ragged_barrier_is_by_nccl: bool
    collective_memory_space: int
    new_flags: tuple[str, ...]

    def __str__(self) -> str:
        """Its name."""
        return self.name


#: What `collective_backend_config` holds from 0.11 on.
_COLLECTIVE_FIELDS: Final = (
    ("backend", "DEFAULT"),
    ("collectives_mode", "COLLECTIVES_MODE_INVALID"),
    ("communication_domain", "COLLECTIVE_COMMUNICATION_DOMAIN_UNSPECIFIED"),
    ("is_pipelined", False),
    ("is_spmd_generated", False),
    ("is_sync", False),
    ("kernel_strategy", "KERNEL_STRATEGY_DEFAULT"),
)

_0_10_2: Final = XlaRelease(
    name="0.10.2",
    config_is_alphabetical=False,
    collective_fields=(
        ("is_sync", False),
        ("is_pipelined", False),
        ("backend", "DEFAULT"),
        ("collectives_mode", "COLLECTIVES_MODE_INVALID"),
        ("kernel_strategy", "KERNEL_STRATEGY_DEFAULT"),
    ),
    wraps_every_collective=False,
    starts_collective_fusions=False,
    sync_pairs_are_replaced=False,
    combiners_say_spmd=False,
    keys_by_group=False,
    wraps_annotated_instructions=False,
    annotated_on_parallel_thread=False,
    groups_keep_description=False,
    groups_communicate=False,
    copies_have_streams=False,
    slice_copies_have_a_resource=False,
    repeats_hazard_edges=True,
    slices_to_anywhere_are_early=True,
    fills_are_early=False,
    lists_by_dataflow=False,
    counts_handover_once=False,
    partition_from_topology=False,
    prices_kernel_strategies=False,
    prices_collective_fusions=True,
    broadcasts_join=True,
    loop_variables_are_scalars=False,
    divides_trip_counts_rightly=False,
    derives_collectives=False,
    rewrites_keep_channels=False,
    removals_hand_on_attributes=True,
    permutes_own_parts=False,
    shifts_wrapped_slices=False,
    negative_factors_turn_ranges=False,
    moved_reductions_are_derived=False,
    moved_reductions_take_attributes=False,
    keeps_donation=False,
    calls_back_without_gpus=False,
    calls_back_without_tpus=False,
    dumps_leave_out_elements=False,
    annotates_in_one_domain=True,
    unrolls_by_steps=False,
    kernel_groups_lie="anywhere",
    most_kernel_devices=8,
    kernel_groups_differ=True,
    kernel_bytes_by_devices=False,
    gathers_by_kernel="no",
    fused_kernels=(),
    kernels_take_starts=False,
    splits_ragged_between_hosts=False,
    ragged_barrier_is_by_nccl=False,
    collective_memory_space=1,
    new_flags=(),
)
_0_11: Final = XlaRelease(
    name="0.11",
    config_is_alphabetical=True,
    collective_fields=_COLLECTIVE_FIELDS,
    wraps_every_collective=True,
    starts_collective_fusions=True,
    sync_pairs_are_replaced=True,
    combiners_say_spmd=True,
    keys_by_group=True,
    wraps_annotated_instructions=True,
    annotated_on_parallel_thread=True,
    groups_keep_description=True,
    groups_communicate=True,
    copies_have_streams=True,
    slice_copies_have_a_resource=True,
    repeats_hazard_edges=False,
    slices_to_anywhere_are_early=False,
    fills_are_early=False,
    lists_by_dataflow=False,
    counts_handover_once=False,
    partition_from_topology=True,
    prices_kernel_strategies=True,
    prices_collective_fusions=False,
    broadcasts_join=False,
    loop_variables_are_scalars=True,
    divides_trip_counts_rightly=False,
    derives_collectives=True,
    rewrites_keep_channels=True,
    removals_hand_on_attributes=True,
    permutes_own_parts=True,
    shifts_wrapped_slices=True,
    negative_factors_turn_ranges=False,
    moved_reductions_are_derived=True,
    moved_reductions_take_attributes=False,
    keeps_donation=True,
    calls_back_without_gpus=False,
    calls_back_without_tpus=True,
    dumps_leave_out_elements=True,
    annotates_in_one_domain=False,
    unrolls_by_steps=False,
    kernel_groups_lie="host",
    most_kernel_devices=8,
    kernel_groups_differ=False,
    kernel_bytes_by_devices=False,
    gathers_by_kernel="aligned",
    fused_kernels=("all-reduce", "all-gather"),
    kernels_take_starts=False,
    splits_ragged_between_hosts=True,
    ragged_barrier_is_by_nccl=True,
    collective_memory_space=1,
    new_flags=(
        "xla_enable_nccl_symmetric_buffers_for_collectives",
        "xla_gpu_experimental_enable_selective_memcpy_overlap",
        "xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes",
        "xla_gpu_experimental_scheduler_memory_fencing_slack_windows",
        "xla_gpu_experimental_use_collective_kernels",
        "xla_gpu_pipeline_all_gather",
        "xla_gpu_pipeline_all_reduce",
        "xla_gpu_pipeline_reduce_scatter",
        "xla_while_loop_all_reduce_dus_code_motion_max_size_bytes",
    ),
)
_0_12: Final = replace(
    _0_11,
    name="0.12",
    fills_are_early=True,
    lists_by_dataflow=True,
    counts_handover_once=True,
    removals_hand_on_attributes=False,
    divides_trip_counts_rightly=True,
    negative_factors_turn_ranges=True,
    moved_reductions_take_attributes=True,
    prices_collective_fusions=True,
    calls_back_without_gpus=True,
    unrolls_by_steps=True,
    kernel_groups_lie="domain",
    most_kernel_devices=64,
    kernel_bytes_by_devices=True,
    gathers_by_kernel="tiled",
    kernels_take_starts=True,
    collective_memory_space=7,
    new_flags=(),
)

#: The table, oldest first.
RELEASES: Final = (_0_10_2, _0_11, _0_12)
OLDEST: Final = RELEASES[0]
NEWEST: Final = RELEASES[-1]
RELEASE_NAMES: Final = tuple(release.name for release in RELEASES)


@functools.cache
def xla_release(version: str) -> XlaRelease:
    """The row of a version: the newest that is not newer than it.

    A version of two numbers means the last of its patches, so that '0.10' finds the row
    0.10.2. What is newer than all rows finds the newest.

    Args:
        version: of jaxlib, as '0.12', '0.12.0.1' or '0.13.0.dev20261101'.

    Raises ValueError for a text that is not a version, and for one before all rows.
    """
    wanted = _numbers(version)
    known = ", ".join(RELEASE_NAMES)
    if not wanted:
        raise ValueError(f"{version!r} is not a release of XLA: {known}")
    # '0.10' is not before '0.10.2': the numbers that both have decide.
    older = [
        r
        for r in RELEASES
        if (own := _numbers(r.name))[: len(wanted)] <= wanted[: len(own)]
    ]
    if not older:
        raise ValueError(f"XLA {version} is older than what is known: {known}")
    return older[-1]


def is_beyond_known(version: str) -> bool:
    """Whether a version is newer than every row, patches of the newest aside."""
    newest = _numbers(NEWEST.name)
    return _numbers(version)[: len(newest)] > newest


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.fullmatch(version.strip())
    parts = found[1].split(".") if found else ()
    return tuple(whole_number(part) or 0 for part in parts)
