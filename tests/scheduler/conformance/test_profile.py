"""A recording with a profile is judged by it; what XLA's log says of one is read.

`python corpus/profile_round_trip.py` gives profiles of ours to XLA itself.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import sys
from types import ModuleType

import hlo_passes
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import make_estimator
from hlo_passes.scheduler.estimators.profile import Profile, read_profile
from hlo_passes.scheduler.written_profile import profile_of
from tests.modules import CORPUS
from tests.scheduler.conformance.judge import judge
from tests.scheduler.conformance.recordings import (
    PROFILE_FILE,
    Recording,
    find_recordings,
)
from tests.scheduler.conformance.setting import setting_of

LOG = [
    "I1 10:00:00.0 7 gpu_hlo_schedule.cc:537] Found profile for module gemm_fusion.2, "
    "using profile guided latency estimator",
    "I1 10:00:00.0 7 profile_guided_latency_estimator.cc:150] PGLE missed cost for: "
    "ag-done",
    "I1 10:00:00.1 7 gpu_hlo_schedule.cc:537] Found profile for module jit_f, "
    "using profile guided latency estimator",
    "I1 10:00:00.1 7 profile_guided_latency_estimator.cc:146] PGLE found cost for: a.1",
    "I1 10:00:00.1 7 profile_guided_latency_estimator.cc:123] PGLE found latency for "
    "async op ag-start and (assumed)ag-done in instruction costs",
    "I1 10:00:00.1 7 profile_guided_latency_estimator.cc:150] PGLE missed cost for: b",
    "I1 10:00:00.1 7 profile_guided_latency_estimator.cc:130] PGLE did not find "
    "relevant profiling info for 'a.1', and 'b'.",
]


def recording(name: str = "moe", setting: str = "1x1x8.sol") -> Recording:
    archive = CORPUS / "schedules" / "0.10.2" / f"{name}.tar.xz"
    return next(r for r in find_recordings(archive) if r.name.endswith(setting))


def own_profile(recorded: Recording) -> Profile:
    on = Pricing(target=recorded.target, topology=recorded.topology)
    module = hlo_passes.parse(recorded.before)
    return profile_of(module, make_estimator("sol", on), with_constants=True)


def estimator_log() -> ModuleType:
    """The corpus's reader of logs, which is a script beside its users."""
    spec = importlib.util.spec_from_file_location(
        "estimator_log", CORPUS / "estimator_log.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_log_of_a_profile() -> None:
    """By module: what a side module of the autotuner lacks is not the profile's."""
    log = estimator_log().read_log(LOG)
    assert log.profile_found == {"jit_f": {"a.1", "ag-start"}}
    assert log.profile_missed == {"gemm_fusion.2": {"ag-done"}, "jit_f": {"b"}}


def test_both_forms_of_our_costs_are_read_back(tmp_path: pathlib.Path) -> None:
    profile = own_profile(recording())
    assert len(profile.costs) > 20
    text, binary = tmp_path / "p.pbtxt", tmp_path / "p.pb"
    text.write_text(profile.to_text())
    binary.write_bytes(profile.to_bytes())
    assert read_profile(str(text)) == read_profile(str(binary)) == profile


def test_a_recording_with_a_profile_is_judged_by_it() -> None:
    """Our costs are XLA's, so its order under its model is ours under the profile."""
    recorded = recording()
    profile = own_profile(recorded)
    given = dataclasses.replace(
        recorded, texts=recorded.texts | {PROFILE_FILE: profile.to_text()}
    )
    verdict = judge(given, figures=False)
    assert verdict.estimator_name == "profile"
    assert verdict.in_order == verdict.logged_in_order == verdict.scheduled > 0
    estimator = setting_of(given).estimator
    module = hlo_passes.parse(recorded.before)
    dear = max(profile.costs, key=profile.costs.__getitem__)
    (instruction,) = [
        i for c in module.computations for i in c.instructions if i.name == dear
    ]
    found = estimator.node_cost(instruction)
    assert found is not None
    assert found.model == "profile"
