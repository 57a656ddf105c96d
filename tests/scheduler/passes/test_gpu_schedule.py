"""The pipeline around the scheduler: what it consists of, and how options reach it."""

from __future__ import annotations

import gzip
import json

import pytest

import hlo_passes
from hlo_passes.cli.main import main
from hlo_passes.ir.async_form import is_start
from hlo_passes.passes.asynchrony.async_collective_annotator import (
    AsyncCollectiveAnnotator,
)
from hlo_passes.passes.asynchrony.async_collective_creator import AsyncCollectiveCreator
from hlo_passes.scheduler.latency_hiding.latency_hiding_scheduler import (
    LatencyHidingScheduler,
)
from hlo_passes.scheduler.passes.execution_stream_assignment import (
    ExecutionStreamAssignment,
)
from hlo_passes.scheduler.passes.gpu_schedule import GpuSchedule
from hlo_passes.scheduler.passes.scheduler_memory_fencing import SchedulerMemoryFencing
from tests.modules import REPOSITORY

GOLDEN = REPOSITORY / "corpus" / "golden" / "0.10.2"

RELEASED = [
    "async-collective-creator",
    "async-collective-annotator",
    "stream-attribute-annotator",
    "async-stream-attribute-wrapper",
    "explicit-stream-annotation-async-wrapper",
    "explicit-collectives-group-async-wrapper",
    "collectives-schedule-linearizer",
    "hlo-memory-scheduler",
    "legalize-scheduling-annotations",
    "latency-hiding-scheduler",
    "scheduling-instruction-annotator",
    "gpu-convert-async-collectives-to-sync",
    "stream-attribute-annotator",
    "execution-stream-assignment",
]


def names(text: str) -> list[str]:
    return [p.name for p in hlo_passes.Pipeline.parse(text).passes]


def member(text: str, kind: type) -> object:
    (found,) = (
        p for p in hlo_passes.Pipeline.parse(text).passes if isinstance(p, kind)
    )
    return found


def test_it_stands_for_its_passes() -> None:
    assert names("gpu-schedule") == RELEASED
    assert names("hlo-cse,gpu-schedule,hlo-dce") == ["hlo-cse", *RELEASED, "hlo-dce"]
    assert [p.name for p in hlo_passes.Pipeline((GpuSchedule(),)).passes] == RELEASED


@pytest.mark.parametrize(
    ("options", "gone", "new"),
    [
        (
            "enable-latency-hiding-scheduler=false",
            RELEASED[8:11],
            [],
        ),
        ("stream-annotation=false", RELEASED[4:5], []),
        ("multi-streamed-windowed-einsum=false", RELEASED[2:4], []),
        ("assign-streams=false", RELEASED[-1:], []),
        ("enable-pipelined-p2p=true", [], ["latency-hiding-scheduler-preparation"]),
        (
            "scheduler-memory-fencing-threshold-bytes=0",
            [],
            ["scheduler-memory-fencing"],
        ),
    ],
)
def test_its_own_options_choose_passes(
    options: str, gone: list[str], new: list[str]
) -> None:
    found = names(f"gpu-schedule{{{options}}}")
    assert sorted(found) == sorted([*RELEASED, *new], key=str) if not gone else True
    left = list(RELEASED)
    for name in gone:
        left.remove(name)
    assert [name for name in found if name not in new] == left
    assert set(new) <= set(found)


def test_options_go_to_every_pass_that_has_them() -> None:
    text = (
        "gpu-schedule{xla=0.12,parallel-collective-overlap-limit=4,"
        "disable-async-collectives=ALLREDUCE ALLGATHER,memory-limit-bytes=1000,"
        "scheduler-memory-fencing-threshold-bytes=7,enable-pipelined-p2p=true}"
    )
    creator = member(text, AsyncCollectiveCreator)
    assert isinstance(creator, AsyncCollectiveCreator)
    assert creator.xla == "0.12"
    annotator = member(text, AsyncCollectiveAnnotator)
    assert isinstance(annotator, AsyncCollectiveAnnotator)
    assert annotator.disable_async_collectives == ("ALLREDUCE", "ALLGATHER")
    scheduler = member(text, LatencyHidingScheduler)
    assert isinstance(scheduler, LatencyHidingScheduler)
    assert scheduler.parallel_collective_overlap_limit == 4
    assert scheduler.memory_limit_bytes == 1000
    assert scheduler.enable_pipelined_p2p
    assert scheduler.xla == "0.12"
    fencing = member(text, SchedulerMemoryFencing)
    assert isinstance(fencing, SchedulerMemoryFencing)
    assert fencing.memory_limit_bytes == 1000
    assert fencing.scheduler_memory_fencing_threshold_bytes == 7
    streams = member(text, ExecutionStreamAssignment)
    assert isinstance(streams, ExecutionStreamAssignment)
    assert streams.parallel_collective_overlap_limit == 4
    assert streams.number_of_communication_streams == 1


def test_multi_streaming_has_two_streams_unless_told_otherwise() -> None:
    flag = "enable-collective-multi-streaming=true"
    streams = member(f"gpu-schedule{{{flag}}}", ExecutionStreamAssignment)
    assert isinstance(streams, ExecutionStreamAssignment)
    assert streams.number_of_communication_streams == 2
    told = member(
        f"gpu-schedule{{{flag},number-of-communication-streams=3}}",
        ExecutionStreamAssignment,
    )
    assert isinstance(told, ExecutionStreamAssignment)
    assert told.number_of_communication_streams == 3


@pytest.mark.parametrize(
    ("text", "code", "hint"),
    [
        ("gpu-schedule{xl=0.12}", "U012", "did you mean xla?"),
        ("gpu-schedule{stream-annotation=perhaps}", "U013", "expected true or false"),
        ("gpu-schedule{xla=0.9}", "U013", "expected 0.10.2 or 0.11 or 0.12"),
        ("gpu-schedule{parallel-collective-overlap-limit=0}", "U013", ""),
        (
            "execution-stream-assignment{parallel-collective-overlap-limit=-1}",
            "U013",
            "",
        ),
        (
            "scheduler-memory-fencing{memory-limit-slop-factor=-1}",
            "U013",
            "",
        ),
        ("gpu-schedul", "U011", "did you mean gpu-schedule?"),
        ("gpu-schedule(hlo-cse)", "U010", ""),
    ],
)
def test_wrong_options_are_usage_errors(text: str, code: str, hint: str) -> None:
    with pytest.raises(hlo_passes.PipelineSpecError) as refused:
        hlo_passes.Pipeline.parse(text)
    assert refused.value.code == code
    assert hint in refused.value.hint


def test_in_a_fixed_point_its_passes_run_too() -> None:
    (each,) = hlo_passes.Pipeline.parse("fixed-point(gpu-schedule)").passes
    inside = getattr(each, "passes", ())
    assert [p.name for p in inside] == RELEASED


def test_it_is_listed_with_what_it_stands_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["passes"]
    (row,) = (r for r in listed if r["name"] == "gpu-schedule")
    assert row["passes"] == list(GpuSchedule.members)
    assert "handed-on" not in {o["name"] for o in row["options"]}
    assert main(["list"]) == 0
    assert f"= {','.join(GpuSchedule.members)}" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["moe", "halo_exchange", "control_flow"])
def test_programs_come_out_scheduled_with_streams(name: str) -> None:
    file = GOLDEN / name / "async-collective-creator.before.hlo.gz"
    module = hlo_passes.parse(gzip.decompress(file.read_bytes()).decode())
    result = hlo_passes.Pipeline.parse("gpu-schedule{estimator=gpu-approximate}").run(
        module, verify_each=True
    )
    assert result.changed
    assert module.is_scheduled
    assert [run.name for run in result.passes] == RELEASED
    statistics = result.passes[-1].statistics
    starts = sum(statistics.values())
    assert starts == sum(
        is_start(i) for c in module.computations for i in c.instructions
    )
    # A schedule that is there is where the scheduler starts from.
    again = module.clone()
    second = hlo_passes.Pipeline.parse("gpu-schedule{estimator=gpu-approximate}")
    remarks = second.run(again).remarks
    assert "not ordered: the module is scheduled already" in remarks
