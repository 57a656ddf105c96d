"""A stream of the GPU, and where an instruction says which stream it is on.

    frontend_attributes={_xla_stream_annotation="2"}     what XLA's runtime follows
    backend_config={"operation_queue_id":"6",...}        0 is the default stream
    backend_config={..."is_sync":true...}                not asynchronous: the default
    Stream.parse("communication_stream[1]")              XLA's log
    Stream.parse("P2P1")                                 the kinds of older runtimes

Queue ids: 0, then the compute streams, then the communication streams.
Source: openxla/xla `xla/backends/gpu/runtime/execution_stream_id.h`,
`xla/service/gpu/execution_stream_assignment.cc`, `backend_configs.proto` (Aug 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from hlo_passes.analysis import transfer_attributes
from hlo_passes.analysis.followed_release import followed_release
from hlo_passes.errors import ParseError, PassError
from hlo_passes.ir.async_form import is_collective, is_start, is_transfer, start_of
from hlo_passes.ir.gpu_config import is_marked_sync, operation_queue_id
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import Shape
from hlo_passes.scheduler.passes.send_recv import owner_of_transfer
from hlo_passes.whole_numbers import whole_number
from hlo_passes.xla_release import XlaRelease

#: Copies between host and device may have two streams of their own.
CopyKind = Literal["memcpy-d2h", "memcpy-h2d"]
#: A TPU has more: its SparseCores, copies between HBM and VMEM, and the network between
#: slices, each way.
StreamKind = Literal[
    "default",
    "compute",
    "communication",
    "memcpy-d2h",
    "memcpy-h2d",
    "sparsecore",
    "dma",
    "dcn-in",
    "dcn-out",
]

#: Frontend attribute with the number of a stream, or the word 'collective'.
STREAM_ANNOTATION: Final = "_xla_stream_annotation"
#: Marks an asynchronous call whose collectives are launched as one.
COLLECTIVES_GROUP: Final = "_collectives_group"
_COLLECTIVE: Final = "collective"
#: Number of the host's memory in a layout: S(5). Source: `xla/layout.h` there.
HOST_MEMORY: Final = 5
#: XLA's numbers of streams; with `collective_multi_streaming` it has two of the second.
DEFAULT_COMPUTE_STREAMS: Final = 4
DEFAULT_COMMUNICATION_STREAMS: Final = 1
#: The largest stream annotation: XLA reads it as a signed 32-bit number.
_LARGEST_NUMBER: Final = (1 << 31) - 1

#: Older runtimes numbered kinds of streams: number on the communication side.
_OLD_KINDS: Final = {"collective": 0, "p2p0": 1, "p2p1": 2, "memcpyp2p": 3}
_COPIES: Final[dict[str, CopyKind]] = {
    "memcpy-d2h": "memcpy-d2h",
    "memcpy-h2d": "memcpy-h2d",
}
_OLD_KIND: Final = re.compile(r"(?:k|async_stream_kind_)?(\w+)")
_NUMBERED: Final = re.compile(
    r"(?P<kind>comput|communication)(?:e|ation)?(?:[ _]stream)?[ \[]?(?P<n>\d+)\]?"
)


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """One stream: the default one, a numbered one, or one for copies."""

    kind: StreamKind
    number: int = 0

    def __str__(self) -> str:
        """'default', 'compute 0', 'communication 1'."""
        return f"{self.kind} {self.number}" if self.is_numbered else self.kind

    @property
    def is_numbered(self) -> bool:
        """Whether there are several of its kind."""
        return self.kind in ("compute", "communication")

    def queue_id(self, compute_streams: int = DEFAULT_COMPUTE_STREAMS) -> int | None:
        """The `operation_queue_id`: default 0, compute from 1 on, then communication.

        It is None for the streams of copies.

        Explicit numbers may exceed `compute_streams`; the ids of two streams are then
        the same number, and the stream annotation distinguishes them.
        """
        if self.kind == "default":
            return 0
        if not self.is_numbered:
            return None
        first = 1 if self.kind == "compute" else 1 + compute_streams
        return first + self.number

    @staticmethod
    def of_queue_id(
        queue: int, kind: StreamKind, compute_streams: int = DEFAULT_COMPUTE_STREAMS
    ) -> Stream:
        """The stream of an `operation_queue_id` on an instruction of this kind."""
        first = 1 + compute_streams if kind == "communication" else 1
        if queue == 0 or kind == "default":
            return DEFAULT_STREAM
        return Stream(kind, max(queue - first, 0))

    @staticmethod
    def parse(text: str) -> Stream:
        """A stream as printed here, in XLA's log, or by older runtimes' kinds.

        Raises ParseError P270 for anything else.
        """
        word = text.strip().lower()
        if word == "default":
            return DEFAULT_STREAM
        copies = _COPIES.get(word.removesuffix("_stream").replace("_", "-"))
        if copies is not None:
            return Stream(copies)
        numbered = _NUMBERED.fullmatch(word)
        if numbered:
            is_compute = numbered["kind"] == "comput"
            number = whole_number(numbered["n"])
            if number is not None:
                return Stream("compute" if is_compute else "communication", number)
        old = _OLD_KIND.fullmatch(word)
        if old and old[1] in _OLD_KINDS:
            return Stream("communication", _OLD_KINDS[old[1]])
        raise ParseError(
            f"{text!r} is not a stream",
            code="P270",
            hint="use 'default', 'compute 1', 'communication_stream[0]' or 'P2P1'",
        )


DEFAULT_STREAM: Final = Stream("default")


def scope_start(instruction: Instruction) -> Instruction:
    """The start whose stream a half is on; anything else itself."""
    if is_transfer(instruction):
        return owner_of_transfer(instruction)
    return start_of(instruction)


def scope_kind(instruction: Instruction, release: XlaRelease) -> StreamKind | None:
    """The kind of stream that a start uses; None if it starts nothing asynchronous.

    A send or recv that is pipelined through a loop starts nothing itself (see
    `owner_of_transfer`). Source: as the module, and where a release differs, its log.
    """
    if not is_start(instruction):
        return None
    if is_transfer(instruction):
        owns = owner_of_transfer(instruction) is instruction
        return "communication" if owns else None
    if communicates(instruction) and (
        release.groups_communicate or not _is_group_alone(instruction)
    ):
        return "communication"
    copies = _copy_kind(instruction) if release.copies_have_streams else None
    return copies or "compute"


def communicates(start: Instruction) -> bool:
    """Whether what a start begins is communication, wherever it runs."""
    if not is_start(start) or start.opcode == "copy-start":
        return False
    if is_transfer(start):
        return owner_of_transfer(start) is start
    return _is_collective(start) or COLLECTIVES_GROUP in start.frontend_attributes


def _is_collective(start: Instruction) -> bool:
    return is_collective(start) or is_collective_annotation(start)


def _is_group_alone(start: Instruction) -> bool:
    """Whether it communicates as a group of collectives and as nothing else."""
    return not _is_collective(start)


def _copy_kind(start: Instruction) -> CopyKind | None:
    """The direction of a copy or slice between host and device; None for others."""
    # copy-start: (to, from, context); async-start: ((from, ...), to, context).
    element = 0 if start.opcode == "copy-start" else 1
    to_host = _is_in_host_memory(start.shape.elements[element])
    from_host = bool(start.operands) and _is_in_host_memory(start.operands[0].shape)
    if to_host:
        return "memcpy-d2h"
    return "memcpy-h2d" if from_host else None


def _is_in_host_memory(shape: Shape) -> bool:
    return shape.layout is not None and shape.layout.memory_space == HOST_MEMORY


def is_collective_annotation(instruction: Instruction) -> bool:
    """Whether its stream annotation is the word 'collective', in any case."""
    text = instruction.frontend_attributes.get(STREAM_ANNOTATION, "")
    return text.lower() == _COLLECTIVE


def annotated_number(instruction: Instruction) -> int | None:
    """The number in its stream annotation; None without one, or with 'collective'.

    Raises PassError E020 for anything else (XLA aborts there).
    """
    text = instruction.frontend_attributes.get(STREAM_ANNOTATION)
    if text is None or is_collective_annotation(instruction):
        return None
    number = whole_number(text.strip())
    if number is None or number > _LARGEST_NUMBER:
        raise PassError(
            f"%{instruction.name}: {STREAM_ANNOTATION}={text!r} is not a stream",
            code="E020",
            location=instruction.location,
            hint="use a number of 0 or more, or collective",
        )
    return number


def runs_synchronously(
    instruction: Instruction, *, parallel_collective_overlap_limit: int = 1
) -> bool:
    """Whether XLA emits a start on the default stream.

    It does so for collectives marked `is_sync`, unless several may be in flight.
    """
    return parallel_collective_overlap_limit <= 1 and is_marked_sync(instruction)


def stream_of(
    instruction: Instruction,
    *,
    compute_streams: int = DEFAULT_COMPUTE_STREAMS,
    release: XlaRelease | None = None,
) -> Stream | None:
    """The stream written on an instruction (for a done: on its start).

    It is None if nothing is written; the stream that XLA will choose then depends on
    the whole module, see `hlo_passes.scheduler.passes.streams.assign_streams`.

    Args:
        instruction: a start, a done, a send or a recv.
        compute_streams: at least 1; XLA: 4.
        release: of XLA; None: as `followed_release` finds it.

    Raises PassError E020 for an invalid stream annotation.
    """
    start = scope_start(instruction)
    if release is None:
        release = followed_release(start.computation.module)
    kind = scope_kind(start, release)
    if kind is None:
        return None
    if runs_synchronously(start):
        return DEFAULT_STREAM
    number = annotated_number(start)
    if number is not None:
        return Stream(kind, number)
    queue = operation_queue_id(start)
    # Beyond the compute streams it is the mark of XLA's stream-attribute-annotator.
    if queue and (kind == "communication" or queue <= compute_streams):
        return Stream.of_queue_id(queue, kind, compute_streams)
    if (
        start.frontend_attributes.get(transfer_attributes.STREAM)
        == transfer_attributes.P2P
    ):
        second = start.frontend_attributes.get(transfer_attributes.PIPELINE) == "1"
        return Stream.parse("P2P1" if second else "P2P0")
    return None
