"""Names of a sweep, the passes that they mean, and the pipelines made from them."""

from __future__ import annotations

import pytest

from hlo_passes import Pipeline, UsageError
from hlo_passes.scheduler.sweep.options import (
    SweptOption,
    combinations,
    count_of,
    parse_sweep,
    pipeline_of,
    simulator_options,
)

PIPELINE = (
    "collective-permute-combiner{threshold-bytes=7},"
    "fixed-point{max-iterations=3}(hlo-cse,hlo-dce),"
    "latency-hiding-scheduler"
)
TWO = "gpu-all-gather-combiner,gpu-all-reduce-combiner"


def test_names_find_their_pass() -> None:
    swept = parse_sweep(
        "threshold-bytes=1,2,parallel-collective-overlap-limit=1,2,4", PIPELINE
    )
    assert swept == (
        SweptOption(("collective-permute-combiner",), "threshold-bytes", ("1", "2")),
        SweptOption(
            ("latency-hiding-scheduler",),
            "parallel-collective-overlap-limit",
            ("1", "2", "4"),
        ),
    )
    assert count_of(swept) == 6


def test_a_sequence_has_the_options_of_its_passes() -> None:
    text = "parallel-collective-overlap-limit=1,2,stream-annotation=true,false"
    swept = parse_sweep(text, "gpu-schedule{rerun=1}")
    assert [each.passes for each in swept] == [("gpu-schedule",)] * 2
    made = pipeline_of("gpu-schedule{rerun=1}", swept, ("2", "false"))
    assert made == (
        "gpu-schedule{rerun=1,parallel-collective-overlap-limit=2,"
        "stream-annotation=false}"
    )
    assert Pipeline.parse(made)
    with pytest.raises(UsageError, match=r"no pass .* has the option handed-on"):
        parse_sweep("handed-on=1", "gpu-schedule")


def test_the_last_option_varies_fastest() -> None:
    swept = parse_sweep("threshold-bytes=1,2,max-iterations=8,9", PIPELINE)
    choices = list(combinations(swept))
    assert choices == [("1", "8"), ("1", "9"), ("2", "8"), ("2", "9")]


def test_values_replace_what_the_pipeline_says() -> None:
    swept = parse_sweep("threshold-bytes=5,max-iterations=8", PIPELINE)
    assert pipeline_of(PIPELINE, swept, ("5", "8")) == (
        "collective-permute-combiner{threshold-bytes=5},"
        "fixed-point{max-iterations=8}(hlo-cse,hlo-dce),"
        "latency-hiding-scheduler"
    )


def test_a_pass_that_stands_twice_is_set_twice() -> None:
    twice = "collective-permute-combiner,hlo-dce,collective-permute-combiner"
    swept = parse_sweep("threshold-bytes=5", twice)
    text = pipeline_of(twice, swept, ("5",))
    assert text.count("{threshold-bytes=5}") == 2


def test_quoted_values_hold_commas() -> None:
    text = "latency-hiding-scheduler.latency-options='nccl_op_launch_us=1,rtt_us=2'"
    swept = parse_sweep(text, PIPELINE)
    assert swept[0].values == ("nccl_op_launch_us=1,rtt_us=2",)
    assert "latency-options='nccl_op_launch_us=1,rtt_us=2'" in pipeline_of(
        PIPELINE, swept, swept[0].values
    )


def test_the_simulators_streams() -> None:
    swept = parse_sweep("streams=1,2", PIPELINE)
    assert swept[0].passes == ("simulate",)
    assert simulator_options(swept, ("2",)) == {"streams": "2"}
    assert pipeline_of("hlo-dce", swept, ("2",)) == "hlo-dce"


def _error(text: str, pipeline: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse_sweep(text, pipeline)
    return caught.value.render()


def test_error_an_option_of_two_passes() -> None:
    assert _error("threshold-bytes=1", TWO).splitlines() == [
        "error[U222]: --sweep: threshold-bytes is an option of 2 passes",
        "  help: say which: gpu-all-gather-combiner.threshold-bytes or "
        "gpu-all-reduce-combiner.threshold-bytes; or "
        "*.threshold-bytes for all of them",
    ]


def test_one_of_them_and_all_of_them() -> None:
    (one,) = parse_sweep("gpu-all-reduce-combiner.threshold-bytes=1", TWO)
    assert one.passes == ("gpu-all-reduce-combiner",)
    (both,) = parse_sweep("*.threshold-bytes=1", TWO)
    assert both.passes == ("gpu-all-gather-combiner", "gpu-all-reduce-combiner")
    assert pipeline_of(TWO, (both,), ("1",)).count("{threshold-bytes=1}") == 2


def test_error_no_such_option_names_the_nearest() -> None:
    assert _error("treshold-bytes=1", PIPELINE).splitlines() == [
        "error[U222]: --sweep: no pass of the pipeline has the option treshold-bytes",
        "  help: did you mean threshold-bytes?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2", "'1' has no option before it"),
        ("threshold-bytes=1,,2", "threshold-bytes has an empty value"),
        ("threshold-bytes=", "threshold-bytes has an empty value"),
        ("threshold-bytes='1", "cannot read"),
        ("threshold-bytes=1,threshold-bytes=2", "is given twice"),
        (
            "threshold-bytes=1,*.threshold-bytes=2",
            "collective-permute-combiner.threshold-bytes is given twice",
        ),
    ],
)
def test_error_text_of_another_form(text: str, said: str) -> None:
    assert said in _error(text, PIPELINE)


def test_error_too_many_combinations() -> None:
    values = ",".join(map(str, range(200)))
    text = f"threshold-bytes={values},max-iterations={values}"
    assert "40000 combinations" in _error(text, PIPELINE)
