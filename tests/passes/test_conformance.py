"""Every pass on every golden pair of the corpus; options from recorded flags."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import pytest

from hlo_passes import xla_flags
from hlo_passes.cli.list_passes import describe
from hlo_passes.conformance.judge import Pair, find_pairs, judge
from hlo_passes.conformance.recorded_flags import is_switched_off, recorded_options
from hlo_passes.errors import UsageError
from hlo_passes.passes.framework.registry import find_pass, pass_targets
from hlo_passes.passes.framework.spec import option_values, value_text
from hlo_passes.xla_flags import FLAG_OPTIONS
from tests.modules import CORPUS, REPOSITORY

_JAXLIB = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2]))
#: Passes of XLA's GPU pipeline that are here.
_RECORDED = {
    "async-collective-annotator",
    "async-collective-creator",
    "collective-permute-combiner",
    "gpu-all-gather-combiner",
    "gpu-all-reduce-combiner",
    "gpu-convert-async-collectives-to-sync",
    "gpu-reduce-scatter-combiner",
    "latency-hiding-scheduler",
}


@pytest.mark.parametrize("release", ["0.10.2", "0.11.2", "0.12.0.1"])
def test_every_golden_pair(release: str) -> None:
    """All pairs of a release come out as XLA's, and no pass changed nothing at all."""
    pairs, _ = find_pairs(CORPUS / "golden" / release)
    verdicts = [judge(pair) for pair in pairs]
    wrong = {str(v.pair.before): v.difference for v in verdicts if not v.is_equal}
    assert wrong == {}
    assert {v.pair.pass_name for v in verdicts if v.xla_changed} == _RECORDED


def _record(folder: pathlib.Path, *flags: str) -> pathlib.Path:
    (folder / "oracle.json").write_text(json.dumps({"flags": flags}))
    return folder


def test_flags_steer_their_pass_alone(tmp_path: pathlib.Path) -> None:
    """A threshold of one combiner, a count of all, a list, a flag of the scheduler."""
    folder = _record(
        tmp_path,
        "xla_gpu_all_gather_combine_threshold_bytes=4096",
        "xla_gpu_collective_combine_threshold_count=2",
        "xla_gpu_disable_async_collectives=ALLREDUCE,ALLTOALL",
        "xla_gpu_experimental_parallel_collective_overlap_limit=4",
        "xla_gpu_enable_approx_costly_collectives=true",
        "xla_gpu_experimental_pipeline_parallelism_opt_level="
        "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
    )
    found = {name: recorded_options(folder, name) for name in sorted(_RECORDED)}
    count = {"threshold-count": "2"}
    assert found == {
        "async-collective-annotator": {
            "disable-async-collectives": "ALLREDUCE ALLTOALL"
        },
        "async-collective-creator": {},
        "collective-permute-combiner": count,
        "gpu-all-gather-combiner": {"threshold-bytes": "4096", **count},
        "gpu-all-reduce-combiner": count,
        "gpu-convert-async-collectives-to-sync": {},
        "gpu-reduce-scatter-combiner": count,
        "latency-hiding-scheduler": {
            "enable-approx-costly-collectives": "true",
            "pipeline-parallelism-opt-level": "ENABLE",
            "estimator": "gpu-approximate",
            "parallel-collective-overlap-limit": "4",
        },
    }


def test_the_scheduler_is_given_what_xla_had(tmp_path: pathlib.Path) -> None:
    """XLA's own costs where its analytical estimator answered; the machine."""
    record = {"target": "b200", "topology": "1x2x8", "device_memory_bytes": 4096}
    (tmp_path / "oracle.json").write_text(json.dumps(record))
    machine = {"target": "b200", "topology": "1x2x8", "device-memory-bytes": "4096"}
    costs = tmp_path / "costs.json"
    for text, found in (
        ('{"node_cost_us": {"a": 1.5}}', {"costs": str(costs)}),
        ('{"node_cost_us": {}}', {"estimator": "gpu-approximate"}),
    ):
        costs.write_text(text)
        options = recorded_options(tmp_path, "latency-hiding-scheduler")
        assert options == {**machine, **found}


def test_every_flag_names_an_option_that_is_there() -> None:
    """The table against the passes."""
    values = {
        "disable-async-collectives": "ALLREDUCE",
        "reduce-scatter": "true",
        "combine-by-dim": "true",
        "reassociate-converted": "true",
        "pipeline-parallelism-opt-level": "ENABLE",
        "ragged-all-to-all-use-barrier-with-nccl": "true",
        "all-gather-mode": "peer",
        "collective-permute-mode": "symmetric",
        "use-collective-kernels": "ALL_GATHER",
        "alltoall-windowed-einsum": "true",
        "past-dependence": "true",
    }
    switches = ("enable-", "collective-start-")
    for passes, option in FLAG_OPTIONS.values():
        for name in passes:
            text = "true" if option.startswith(switches) else values.get(option, "2")
            assert option_values(find_pass(name), name, ((option, text),))


def test_every_option_that_a_flag_stands_for_is_there() -> None:
    """Also of passes and files that no recording sets."""
    shown = [
        (name, option["name"], option["xla_flag"])
        for name in pass_targets()
        for option in describe(find_pass(name))["options"]
        if option["xla_flag"]
    ]
    assert len(shown) == len(xla_flags.all_flags())
    combiner = "collective-permute-combiner"
    flag = "xla_gpu_collective_permute_combine_threshold_bytes"
    assert (combiner, "threshold-bytes", flag) in shown
    setting = xla_flags.flag_setting(
        "latency-hiding-scheduler", "pipeline-parallelism-opt-level", "ENABLE"
    )
    assert setting == (
        "--xla_gpu_experimental_pipeline_parallelism_opt_level"
        "=PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE"
    )


def test_an_option_is_a_flag_in_every_pass_or_in_none() -> None:
    flags = xla_flags.all_flags()
    of_flags = {option for _, option in flags}
    for name in pass_targets():
        for option in describe(find_pass(name))["options"]:
            if option["name"] in of_flags:
                assert (name, option["name"]) in flags


def test_xla_knows_every_flag() -> None:
    """XLA ends a process whose XLA_FLAGS it does not know, and names them."""
    settings = []
    for (name, option), flag in xla_flags.all_flags().items():
        first = xla_flags.FIRST_RELEASE.get(flag, "0")
        if tuple(map(int, first.split("."))) > _JAXLIB:
            continue
        fields = {
            f.name.replace("_", "-"): f for f in dataclasses.fields(find_pass(name))
        }
        default = value_text(fields[option].default) or "ALLREDUCE"
        # A switch that each release sets as it likes.
        default = "false" if default == "none" else default
        settings.append(xla_flags.flag_setting(name, option, default))
    done = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "XLA_FLAGS": " ".join(settings), "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("text", ["{", '{"flags": 3}', "[]", '{"flags": [1]}'])
def test_a_record_that_is_none(tmp_path: pathlib.Path, text: str) -> None:
    """Refused with U031, not a traceback."""
    (tmp_path / "oracle.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        recorded_options(tmp_path, "hlo-dce")
    assert caught.value.code == "U031"


def test_options_file_wins(tmp_path: pathlib.Path) -> None:
    """PASS.options replaces what would follow from flags and folder names."""
    case = CORPUS / "golden" / "0.10.2" / "count_limit.count_2"
    name = "collective-permute-combiner"
    for file in case.glob(f"{name}.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "oracle.json").write_bytes((case / "oracle.json").read_bytes())
    (pair,), _ = find_pairs(tmp_path)
    assert judge(pair).is_equal
    options = tmp_path / f"{name}.options"
    options.write_text("threshold-count=3\n")
    assert not judge(pair).is_equal
    options.write_text("threshold-count=2\n")
    assert judge(pair).is_equal


@pytest.mark.parametrize("release", ["0.10.2", "0.12.0.1"])
def test_recorded_modules_say_the_release(tmp_path: pathlib.Path, release: str) -> None:
    """Where no folder's name says it, the installed jaxlib must not decide."""
    case = CORPUS / "golden" / release / "fsdp_mlp"
    for file in case.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    pairs, _ = find_pairs(tmp_path)
    assert any(pair.pass_name == "async-collective-creator" for pair in pairs)
    assert [judge(pair).difference for pair in pairs] == [""] * len(pairs)


def _compiled(folder: pathlib.Path, name: str, before: str, after: str) -> Pair:
    """A recorded pair."""
    for half, text in (("before", before), ("after", after)):
        (folder / f"{name}.{half}.hlo").write_text(text)
    (pair,), _ = find_pairs(folder)
    return pair


_REDUCED = """HloModule m, num_partitions=8, frontend_attributes={xla.sdy.meshes={}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (p: f32[64]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  ROOT %r = f32[64]{0} all-reduce(%p), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%add
}
"""


@pytest.mark.parametrize(("topology", "is_kernel"), [("1x1x8", True), ("2x1x4", False)])
def test_a_pass_is_judged_on_the_machine_of_the_record(
    tmp_path: pathlib.Path, topology: str, is_kernel: bool
) -> None:
    """XLA's kernel for all-reduces is for devices that NVLink joins."""
    record = {"target": "h100_sxm", "topology": topology, "flags": []}
    folder = tmp_path / "0.12.0.1"
    folder.mkdir()
    (folder / "oracle.json").write_text(json.dumps(record))
    name = "collective-kernel-strategy-annotator"
    verdict = judge(_compiled(folder, name, _REDUCED, _REDUCED))
    assert verdict.is_equal == (not is_kernel), verdict.difference


def test_a_pass_whose_flag_is_off_does_nothing(tmp_path: pathlib.Path) -> None:
    name = "dus-accumulator-zero-init-elimination"
    flag = "xla_gpu_enable_dus_accumulator_zero_init_elimination"
    for flags, is_off in (
        ([], True),
        ([f"{flag}=true"], False),
        ([f"{flag}=false"], True),
    ):
        (tmp_path / "oracle.json").write_text(json.dumps({"flags": flags}))
        assert is_switched_off(tmp_path, name) == is_off
    assert not is_switched_off(tmp_path, "hlo-dce")
    assert not is_switched_off(tmp_path / "without", name)


def test_modes_and_rules_come_from_flags(tmp_path: pathlib.Path) -> None:
    folder = _record(
        tmp_path,
        "xla_gpu_all_gather_mode=COLLECTIVES_SYMMETRIC_MEMORY",
        "xla_gpu_collective_permute_mode=peer",
        "xla_enable_enzyme_comms_opt=true",
    )
    assert recorded_options(folder, "collective-backend-assigner") == {
        "all-gather-mode": "symmetric",
        "collective-permute-mode": "peer",
    }
    found = recorded_options(folder, "collective-permute-combiner")
    assert found == {"past-dependence": "true"}


@pytest.mark.parametrize("folder", ["0.10.2", "0.12.0.1"])
@pytest.mark.parametrize("named", ["", ",xla=0.10.2"])
def test_options_follow_the_release_of_the_folder(
    folder: str, named: str, tmp_path: pathlib.Path
) -> None:
    """0.10.2 gives each new collective a channel of its own."""
    source = REPOSITORY / "tests/passes/xla_pairs/0.10.2/making_reduces_tree"
    place = tmp_path / folder / "case"
    place.mkdir(parents=True)
    name = "all-reduce-blueconnect"
    for file in source.glob(f"{name}.*.hlo.gz"):
        (place / file.name).write_bytes(file.read_bytes())
    (place / f"{name}.options").write_text(f"devices-per-host=4{named}\n")
    (pair,), _ = find_pairs(tmp_path)
    assert judge(pair).is_equal == (folder == "0.10.2" or bool(named))
