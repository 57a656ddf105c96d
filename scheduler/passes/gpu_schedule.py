"""Does everything that XLA's GPU compiler does around scheduling, in its order.

    Before:  %g = f32[16] all-gather(%x), ...           (no schedule)
             %f = f32[8] fusion(%y), ...
    After:   %s = (f32[8], f32[16]) all-gather-start(%x), ...
             %f = f32[8] fusion(%y), ...
             %g = f32[16] all-gather-done(%s)           is_scheduled=true

The sequence leaves out what XLA does in between: tuning, copy insertion, the fusion of
single instructions, rematerialization.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from hlo_passes.passes.framework.base import Pass
from hlo_passes.passes.framework.sequence import PassSequence

_MULTI_STREAMING: Final = "enable-collective-multi-streaming"
#: Communication streams of XLA's runtime with that flag.
_STREAMS_OF_MULTI_STREAMING: Final = 2


@dataclass(frozen=True, slots=True)
class GpuSchedule(PassSequence):
    """Make collectives asynchronous, schedule, and undo pairs without work in between.

    `gpu-schedule` runs `async-collective-creator`, `async-collective-annotator`,
    `stream-attribute-annotator`, `async-stream-attribute-wrapper`,
    `explicit-stream-annotation-async-wrapper`,
    `explicit-collectives-group-async-wrapper`, `collectives-schedule-linearizer`,
    `latency-hiding-scheduler-preparation`, `hlo-memory-scheduler`,
    `legalize-scheduling-annotations`, `scheduler-memory-fencing`,
    `latency-hiding-scheduler`, `schedule-improver` (only with `improve=true`),
    `scheduling-instruction-annotator`, `gpu-convert-async-collectives-to-sync`,
    `stream-attribute-annotator` and `execution-stream-assignment`.

    `gpu-schedule` accepts every option of these passes, and gives it to all passes that
    have it: `gpu-schedule{parallel-collective-overlap-limit=4,xla=0.12}`. With
    `enable-collective-multi-streaming=true`, there are two communication streams.

    If a module already has a schedule, scheduling starts from that order. (XLA leaves
    such a module alone.)

    Source: openxla/xla `xla/service/gpu/gpu_compiler.cc`,
    `xla/service/gpu/gpu_hlo_schedule.cc` (Aug 2026).

    Attributes:
        enable_latency_hiding_scheduler: if false, the order that needs the least memory
            stays.
        enable_pipelined_p2p: first order sends and recvs, with
            `latency-hiding-scheduler-preparation`.
        multi_streamed_windowed_einsum: wrap instructions that have their own queue,
            with `async-stream-attribute-wrapper`.
        stream_annotation: wrap instructions with `_xla_stream_annotation`, with
            `explicit-stream-annotation-async-wrapper`.
        scheduler_memory_fencing_threshold_bytes: fence buffers of at least this size;
            0: a hundredth of the memory limit; below 0: none.
        improve: look for an order with a shorter step than XLA's schedule, with
            `schedule-improver`.
        assign_streams: write streams, with `execution-stream-assignment`.
    """

    name: ClassVar[str] = "gpu-schedule"
    members: ClassVar[tuple[str, ...]] = (
        "async-collective-creator",
        "async-collective-annotator",
        "stream-attribute-annotator",
        "async-stream-attribute-wrapper",
        "explicit-stream-annotation-async-wrapper",
        "explicit-collectives-group-async-wrapper",
        "collectives-schedule-linearizer",
        "latency-hiding-scheduler-preparation",
        "hlo-memory-scheduler",
        "legalize-scheduling-annotations",
        "scheduler-memory-fencing",
        "latency-hiding-scheduler",
        "schedule-improver",
        "scheduling-instruction-annotator",
        "gpu-convert-async-collectives-to-sync",
        "stream-attribute-annotator",
        "execution-stream-assignment",
    )

    enable_latency_hiding_scheduler: bool = True
    enable_pipelined_p2p: bool = False
    multi_streamed_windowed_einsum: bool = True
    stream_annotation: bool = True
    scheduler_memory_fencing_threshold_bytes: int = -1
    improve: bool = False
    assign_streams: bool = True

    def passes(self) -> tuple[Pass, ...]:
        """The passes that the options leave, in XLA's order."""
        left_out = self._left_out()
        names = [name for name in GpuSchedule.members if name not in left_out]
        if not self.multi_streamed_windowed_einsum:
            names.remove("stream-attribute-annotator")  # the first one
        return tuple(self.member(name, **self._fixed(name)) for name in names)

    def _left_out(self) -> set[str]:
        out: set[str] = set()
        if not self.multi_streamed_windowed_einsum:
            out.add("async-stream-attribute-wrapper")
        if not self.stream_annotation:
            out.add("explicit-stream-annotation-async-wrapper")
        if not self.enable_pipelined_p2p:
            out.add("latency-hiding-scheduler-preparation")
        if not self.enable_latency_hiding_scheduler:
            out |= {
                "legalize-scheduling-annotations",
                "scheduler-memory-fencing",
                "latency-hiding-scheduler",
                "schedule-improver",
                "scheduling-instruction-annotator",
            }
        if not self.improve:
            out.add("schedule-improver")
        if self.scheduler_memory_fencing_threshold_bytes < 0:
            out.add("scheduler-memory-fencing")
        if not self.assign_streams:
            out.add("execution-stream-assignment")
        return out

    def _fixed(self, name: str) -> dict[str, object]:
        """The options that a pass receives in addition to those that it shares."""
        given = dict(self.handed_on)
        if name == "hlo-memory-scheduler":
            return {"keep_schedule": True}
        if name == "latency-hiding-scheduler":
            return {"enable_pipelined_p2p": True} if self.enable_pipelined_p2p else {}
        if name == "scheduler-memory-fencing":
            return {
                "scheduler_memory_fencing_threshold_bytes": (
                    self.scheduler_memory_fencing_threshold_bytes
                )
            }
        if (
            name == "execution-stream-assignment"
            and given.get(_MULTI_STREAMING, "").lower() == "true"
        ):
            return {
                "number_of_communication_streams": _STREAMS_OF_MULTI_STREAMING,
                "xla_communication_streams": _STREAMS_OF_MULTI_STREAMING,
            }
        return {}
