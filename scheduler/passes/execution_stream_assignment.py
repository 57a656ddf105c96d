"""Writes GPU streams on the instructions that start asynchronous work.

    Before:  %s = (f32[8], f32[16]) all-gather-start(%x), ...
             %r = f32[8] all-reduce-start(%y), ...
    After:   %s = ..., backend_config={"operation_queue_id":"5",...}
             %r = ..., frontend_attributes={_xla_stream_annotation="1"},
                  backend_config={"operation_queue_id":"6",...}

Queue 0 is the default stream, and queues 1 to 4 are the compute streams. The queues of
the communication streams follow (`hlo_passes.scheduler.passes.streams`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hlo_passes.ir.gpu_config import has_gpu_config, operation_queue_id
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.passes.framework.base import Pass, PassContext, Report
from hlo_passes.passes.rewriting.gpu_backend_config import set_operation_queue_id
from hlo_passes.scheduler.passes.stream_values import (
    DEFAULT_COMMUNICATION_STREAMS,
    DEFAULT_COMPUTE_STREAMS,
    STREAM_ANNOTATION,
    Stream,
    annotated_number,
    is_collective_annotation,
)
from hlo_passes.scheduler.passes.streams import StreamAssignment, assign_streams
from hlo_passes.xla_release import XlaRelease

#: The annotations of a module after they are written.
Annotations = Literal["changed", "all", "none"]


@dataclass(frozen=True, slots=True)
class ExecutionStreamAssignment(Pass):
    """Write the stream of every asynchronous start into its backend config.

    The pass assigns the streams of each kind round-robin, as XLA does: from the entry
    on, breadth first, in post order. A stream annotation overrides this assignment.
    Collectives marked `is_sync` stay on the default stream. If two collectives run at
    the same time and share two or more devices, the pass keeps them on one stream,
    because on two streams they could wait for each other in a cycle. A remark says so.

    XLA's runtime assigns streams round-robin itself. It obeys `_xla_stream_annotation`,
    but not the queue id. So `annotate=changed` writes the annotation where the runtime
    would choose another stream.

    Ensures: a second run changes nothing.
    Complexity: linear in instructions, and in pairs of collectives in flight together.
    Source: openxla/xla `xla/service/gpu/execution_stream_assignment.cc`; keeping
    collectives on one stream is not XLA's.

    Attributes:
        number_of_communication_streams: at least 1; XLA has 2 with
            `enable-collective-multi-streaming`.
        number_of_compute_streams: at least 1.
        parallel_collective_overlap_limit: above 1, collectives marked `is_sync` get
            streams too.
        guard_cyclic_waits: keep collectives that could wait for each other in a cycle
            on one stream.
        annotate: where to write `_xla_stream_annotation`: `changed`: where XLA's
            runtime would choose another stream; `all`: at all starts; `none`: nowhere.
        xla_communication_streams: the number of streams that XLA's runtime will use.
        xla: the release of XLA to follow; none: the release that the run follows. XLA
            0.10.2 counts groups of collectives as compute. Later releases have streams
            for copies to and from the host, and the pass then leaves these copies
            alone.
    """

    name: ClassVar[str] = "execution-stream-assignment"
    needs_collectives: ClassVar[bool] = True

    number_of_communication_streams: int = DEFAULT_COMMUNICATION_STREAMS
    number_of_compute_streams: int = DEFAULT_COMPUTE_STREAMS
    parallel_collective_overlap_limit: int = 1
    guard_cyclic_waits: bool = True
    annotate: Annotations = "changed"
    xla_communication_streams: int = DEFAULT_COMMUNICATION_STREAMS
    xla: str = ""

    def __post_init__(self) -> None:
        """Refuse numbers of streams and an overlap limit below 1 (U013)."""
        for number in (
            self.number_of_communication_streams,
            self.number_of_compute_streams,
            self.xla_communication_streams,
        ):
            if number < 1:
                raise ValueError(f"{number} streams, but each kind has at least 1")
        if self.parallel_collective_overlap_limit < 1:
            raise ValueError("parallel-collective-overlap-limit must be 1 or more")

    def run(self, module: Module, context: PassContext, report: Report) -> bool:
        """Visit all reachable computations together."""
        version = module.version
        release = context.release_for(module, self.xla)
        assigned = assign_streams(
            module,
            communication_streams=self.number_of_communication_streams,
            compute_streams=self.number_of_compute_streams,
            parallel_collective_overlap_limit=self.parallel_collective_overlap_limit,
            guard=self.guard_cyclic_waits,
            release=release,
        )
        for moved in assigned.moved:
            report.remark(moved.to_text())
        for start in assigned:
            self._write_queue(start, assigned[start], release, report)
        self._annotate(module, assigned, release, report)
        return module.version != version

    def _write_queue(
        self, start: Instruction, stream: Stream, release: XlaRelease, report: Report
    ) -> None:
        report.count(f"on-{str(stream).replace(' ', '-')}")
        queue = stream.queue_id(self.number_of_compute_streams)
        if queue is None or operation_queue_id(start) == queue:
            return
        if not has_gpu_config(start):
            report.remark(
                f"not written: the backend config of %{start.name} is not JSON"
            )
            return
        set_operation_queue_id(start, release, queue)

    def _annotate(
        self,
        module: Module,
        assigned: StreamAssignment,
        release: XlaRelease,
        report: Report,
    ) -> None:
        """Annotate starts for which XLA's runtime would choose another stream.

        An annotation takes its start out of XLA's round-robin; so if one is needed, all
        starts in the round-robin are annotated.
        """
        if self.annotate == "none":
            return
        unannotated = [
            start
            for start in assigned
            if annotated_number(start) is None
            and start not in assigned.synchronous
            and assigned[start].is_numbered
        ]
        if self.annotate == "changed":
            chosen_by_xla = assign_streams(
                module,
                communication_streams=self.xla_communication_streams,
                parallel_collective_overlap_limit=self.parallel_collective_overlap_limit,
                guard=False,
                release=release,
            )
            if chosen_by_xla.scopes == assigned.scopes:
                return
        for start in unannotated:
            if is_collective_annotation(start):
                report.remark(
                    f"not annotated: %{start.name} is annotated as a collective"
                )
                continue
            number = str(assigned[start].number)
            start.frontend_attributes = start.frontend_attributes.with_value(
                STREAM_ANNOTATION, number
            )
            report.count("starts-annotated")
