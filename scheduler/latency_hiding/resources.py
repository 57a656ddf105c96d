"""Resources that asynchronous operations hold, their limits, and how they are held.

Bottom-up a done occupies (it is met first) and its start releases. `Occupies` and
`releases` are from the scheduler's point of view, so they are reversed top-down.

Source: openxla/xla `latency_hiding_scheduler.h`, `gpu_latency_hiding_scheduler.h`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from hlo_passes.scheduler.latency_hiding.settings import SchedulerSettings


class Resource(IntEnum):
    """Resources by XLA's numbers; from 13 on those of the GPU, from 21 on of TPUs.

    The TPU's have XLA:TPU's names; their numbers are ours.
    """

    NONE = 0
    ALL_TO_ALL = 1
    ALL_GATHER = 2
    ALL_REDUCE = 3
    COLLECTIVE_PERMUTE = 4
    COPY = 5
    REDUCE_SCATTER = 6
    SEND_RECV = 7
    SEND_HOST = 8
    RECV_HOST = 9
    COLLECTIVE_BROADCAST = 10
    UNUSED = 11
    RAGGED_ALL_TO_ALL = 12
    GPU_COLLECTIVES_P2P = 13
    GPU_SEND_0 = 14
    GPU_SEND_1 = 15
    GPU_RECV_0 = 16
    GPU_RECV_1 = 17
    GPU_COLLECTIVES = 18
    GPU_COMPUTES = 19
    GPU_MEMCPY = 20
    ICI_X_PLUS = 21
    ICI_X_MINUS = 22
    ICI_Y_PLUS = 23
    ICI_Y_MINUS = 24
    ICI_Z_PLUS = 25
    ICI_Z_MINUS = 26
    SPARSE_CORE_GATHER = 27
    SPARSE_CORE_0 = 28
    SPARSE_CORE_1 = 29
    SPARSE_CORE_2 = 30
    SPARSE_CORE_3 = 31
    HOST_TO_DEVICE = 32
    DEVICE_TO_HOST = 33


class Usage(IntEnum):
    """The effect of placing an instruction on a resource."""

    NONE = 0
    OCCUPY = 1
    RELEASE = 2


#: (resource, usage) entries of one instruction.
Holdings = tuple[tuple[Resource, Usage], ...]

#: XLA's names, as its messages have them.
RESOURCE_NAMES: Final[dict[Resource, str]] = {
    Resource.NONE: "kNoResource",
    Resource.ALL_TO_ALL: "kAllToAll",
    Resource.ALL_GATHER: "kAllGather",
    Resource.ALL_REDUCE: "kAllReduce",
    Resource.COLLECTIVE_PERMUTE: "kCollectivePermute",
    Resource.COPY: "kCopy",
    Resource.REDUCE_SCATTER: "kReduceScatter",
    Resource.SEND_RECV: "kSendRecv",
    Resource.SEND_HOST: "kSendHost",
    Resource.RECV_HOST: "kRecvHost",
    Resource.COLLECTIVE_BROADCAST: "kCollectiveBroadcast",
    Resource.UNUSED: "kNumResources",
    Resource.RAGGED_ALL_TO_ALL: "kRaggedAllToAll",
    Resource.GPU_COLLECTIVES_P2P: "kGpuAsyncStreamCollectivesP2P",
    Resource.GPU_SEND_0: "kGpuAsyncStreamSend0",
    Resource.GPU_SEND_1: "kGpuAsyncStreamSend1",
    Resource.GPU_RECV_0: "kGpuAsyncStreamRecv0",
    Resource.GPU_RECV_1: "kGpuAsyncStreamRecv1",
    Resource.GPU_COLLECTIVES: "kGpuAsyncStreamCollectives",
    Resource.GPU_COMPUTES: "kGpuAsyncStreamComputes",
    Resource.GPU_MEMCPY: "kGpuAsyncStreamMemcpy",
    Resource.ICI_X_PLUS: "kIciXPlus",
    Resource.ICI_X_MINUS: "kIciXMinus",
    Resource.ICI_Y_PLUS: "kIciYPlus",
    Resource.ICI_Y_MINUS: "kIciYMinus",
    Resource.ICI_Z_PLUS: "kIciZPlus",
    Resource.ICI_Z_MINUS: "kIciZMinus",
    Resource.SPARSE_CORE_GATHER: "kSparseCoreGather",
    Resource.SPARSE_CORE_0: "kSparseCore0",
    Resource.SPARSE_CORE_1: "kSparseCore1",
    Resource.SPARSE_CORE_2: "kSparseCore2",
    Resource.SPARSE_CORE_3: "kSparseCore3",
    Resource.HOST_TO_DEVICE: "kHostToDevice",
    Resource.DEVICE_TO_HOST: "kDeviceToHost",
}

#: Resource of a collective or copy, in the generic flavour.
RESOURCE_OF_KIND: Final[dict[str, Resource]] = {
    "all-to-all": Resource.ALL_TO_ALL,
    "all-gather": Resource.ALL_GATHER,
    "all-reduce": Resource.ALL_REDUCE,
    "collective-permute": Resource.COLLECTIVE_PERMUTE,
    "copy": Resource.COPY,
    "reduce-scatter": Resource.REDUCE_SCATTER,
    "collective-broadcast": Resource.COLLECTIVE_BROADCAST,
    "ragged-all-to-all": Resource.RAGGED_ALL_TO_ALL,
}

#: Point-to-point collectives in flight on the GPU.
_GPU_P2P_LIMIT: Final = 4
#: Copies inside the GPU have no limit.
_GPU_MEMCPY_LIMIT: Final = 2**31 - 1
#: Kinds that have no limit where calls on SparseCores wait in a queue.
_QUEUED_KINDS: Final = (
    Resource.ALL_GATHER,
    Resource.ALL_REDUCE,
    Resource.REDUCE_SCATTER,
)
#: `free` of a resource that has no limit: never exhausted, never tested.
UNLIMITED: Final = 2**62


def limits(settings: SchedulerSettings) -> list[int]:
    """Instances of every resource, by its number."""
    free = [UNLIMITED] * len(Resource)
    free[Resource.ALL_TO_ALL] = settings.all_to_all_overlap_limit
    free[Resource.ALL_GATHER] = settings.all_gather_overlap_limit
    free[Resource.ALL_REDUCE] = settings.all_reduce_overlap_limit
    free[Resource.COLLECTIVE_PERMUTE] = settings.collective_permute_overlap_limit
    free[Resource.COPY] = settings.copy_overlap_limit
    free[Resource.REDUCE_SCATTER] = settings.reduce_scatter_overlap_limit
    free[Resource.SEND_RECV] = settings.send_recv_overlap_limit
    free[Resource.SEND_HOST] = settings.send_recv_host_overlap_limit
    free[Resource.RECV_HOST] = settings.send_recv_host_overlap_limit
    free[Resource.COLLECTIVE_BROADCAST] = settings.collective_broadcast_overlap_limit
    free[Resource.RAGGED_ALL_TO_ALL] = settings.ragged_all_to_all_overlap_limit
    if settings.flavour == "tpu":
        calls = settings.sparse_core_overlap_limit
        for resource in range(Resource.SPARSE_CORE_0, Resource.SPARSE_CORE_3 + 1):
            free[resource] = UNLIMITED if calls is None else calls
        if settings.sparse_core_queue:
            for resource in _QUEUED_KINDS:
                free[resource] = UNLIMITED
    if settings.flavour == "gpu":
        for resource in range(Resource.GPU_COLLECTIVES_P2P, Resource.GPU_COLLECTIVES):
            free[resource] = _GPU_P2P_LIMIT
        free[Resource.GPU_COLLECTIVES] = settings.parallel_collective_overlap_limit
        free[Resource.GPU_COMPUTES] = settings.parallel_async_compute_limit
        free[Resource.GPU_MEMCPY] = _GPU_MEMCPY_LIMIT
    return free
