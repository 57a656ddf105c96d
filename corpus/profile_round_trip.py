"""Steer XLA's scheduler by our costs: does it take them, and do we schedule alike?

    python corpus/profile_round_trip.py                     # the programs of `PROGRAMS`
    python corpus/profile_round_trip.py moe --topology=1x2x8 --target=b200

    XLA's module  ->  our `sol` costs  ->  profile.pb, profile.pbtxt (PGLE)
    profile       ->  XLA's scheduler (xla_gpu_pgle_profile_file_or_directory_path)
    profile       ->  ours (`profile` estimator)

Compared, once a form of the profile: every instruction of it is one that XLA's log says
it found in that module, it missed none there, and XLA's strict check passes; order,
every decision and all statistics of both schedulers. The exit status is 1 where
anything differs. Needs the plug-in that `compile_gpu` needs.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from dataclasses import dataclass

import jax
from compile_gpu import SCHEDULER, Job, Recording, compile_all, recorded_texts
from record_schedules import TOPOLOGIES, inputs

import hlo_passes
from hlo_passes.ir.module import Module
from hlo_passes.pricing import Pricing
from hlo_passes.scheduler.estimators.choice import make_estimator
from hlo_passes.scheduler.estimators.profile import (
    BINARY_SUFFIX,
    TEXT_SUFFIX,
    Profile,
    read_profile,
)
from hlo_passes.scheduler.written_profile import profile_of
from tests.scheduler.conformance import recordings
from tests.scheduler.conformance.judge import Verdict, judge

PROGRAMS = (
    "fsdp_mlp",
    "moe",
    "moe_grad",
    "pipeline_training",
    "ring_attention",
    "scan_layers_train",
    "tensor_parallel_mlp",
    "transformer_unrolled",
)
FORMS = (TEXT_SUFFIX, BINARY_SUFFIX)
#: XLA refuses a profile that lacks an instruction of the entry or a loop.
_STRICT = "xla_gpu_pgle_accuracy_checker=PGLE_STRICTNESS_LEVEL_ERROR"
_FLAG = "xla_gpu_pgle_profile_file_or_directory_path"


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What became of one profile.

    Attributes:
        name: input, topology and form.
        given: instructions of the profile.
        found: of them, those that XLA says it found.
        missed: instructions of the module whose cost XLA missed in it.
        refusal: what XLA's strict check says against it, '' for nothing.
        verdict: of the schedules.
    """

    name: str
    given: int
    found: int
    missed: tuple[str, ...]
    refusal: str
    verdict: Verdict

    @property
    def is_whole(self) -> bool:
        """Whether XLA took all, and nothing differs."""
        taken = self.found == self.given and not (self.missed or self.refusal)
        return taken and not self.verdict.differences

    def row(self) -> str:
        """A line of the table."""
        v = self.verdict
        parts = [d.part for d in v.differences]
        figures = parts.count("statistic") + parts.count("peak")
        return (
            f"{self.name:44} {self.found:5}/{self.given:<5} {len(self.missed):6} "
            f"{v.in_order:4}/{v.scheduled:<4} {v.equal_decisions:6}/{v.decisions:<6} "
            f"{figures or 'equal'}"
        )


HEAD = (
    f"{'input, topology, form':44} {'found':>5}/{'given':<5} {'missed':>6} "
    f"{'in order':9} {'decisions':>13} statistics"
)


def our_profile(module: Module, target: str, topology: str) -> Profile:
    """Our costs of a module, as XLA's scheduler is to have them."""
    on = Pricing(target=target, topology=topology, xla=jax.__version__)
    return profile_of(module, make_estimator("sol", on), with_constants=True)


def round_trips(name: str, job: Job) -> list[RoundTrip]:
    """Both forms of one input's profile; [] where nothing reaches the scheduler."""
    (alone,) = compile_all([job])
    if SCHEDULER not in alone.dumps:
        print(f"{name}: {alone.outcome}", flush=True)
        return []
    module = hlo_passes.parse(alone.dumps[SCHEDULER][0])
    profile = our_profile(module, job.target, job.topology)
    if not profile.costs:
        print(f"{name}: no computation with asynchronous operations", flush=True)
        return []
    with tempfile.TemporaryDirectory(prefix="hlo-passes-") as folder:
        files = [pathlib.Path(folder) / f"profile{form}" for form in FORMS]
        for file in files:
            if file.suffix == TEXT_SUFFIX:
                file.write_text(profile.to_text())
            else:
                file.write_bytes(profile.to_bytes())
        if any(read_profile(str(file)) != profile for file in files):
            sys.exit(f"{name}: a profile is not read back as it was written")
        jobs = [
            Job(
                job.input,
                job.target,
                job.topology,
                flags=(f"{_FLAG}={file}", _STRICT),
                with_elements=True,
            )
            for file in files
        ]
        steered = compile_all(jobs, decisions=True)
    return [
        _judged(f"{name} {form}", one, recording, profile, module.name)
        for form, one, recording in zip(FORMS, jobs, steered, strict=True)
    ]


def _judged(
    name: str, job: Job, recording: Recording, profile: Profile, module: str
) -> RoundTrip:
    texts = recorded_texts(job, recording, passes=(SCHEDULER,), decisions=True)
    texts[recordings.PROFILE_FILE] = profile.to_text()
    # The check runs before the scheduler, which then is not reached.
    refused = SCHEDULER not in recording.dumps
    log = recording.log
    return RoundTrip(
        name,
        given=len(profile.costs),
        found=len(log.profile_found.get(module, set()) & profile.costs.keys()),
        missed=tuple(sorted(log.profile_missed.get(module, ()))),
        refusal=recording.outcome if refused else "",
        verdict=Verdict(name, "profile")
        if refused
        else judge(recordings.Recording(name, texts)),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="INPUT", default=PROGRAMS)
    parser.add_argument("--topology", action="append", choices=TOPOLOGIES)
    parser.add_argument("--target", default="h100_sxm")
    options = parser.parse_args()
    found = []
    print(f"jax {jax.__version__}\n{HEAD}")
    for name, source in inputs(*options.inputs).items():
        for topology in options.topology or TOPOLOGIES:
            job = Job(source, options.target, topology, with_elements=True)
            for trip in round_trips(f"{name} {topology}", job):
                found.append(trip)
                print(trip.row(), flush=True)
                if trip.refusal:
                    print(f"    {trip.refusal}")
                for instruction in trip.missed:
                    print(f"    XLA missed {instruction}")
                for difference in trip.verdict.differences:
                    print(f"    {difference}")
    whole = sum(trip.is_whole for trip in found)
    print(f"{whole} of {len(found)} profiles taken whole, with the same schedule")
    return 0 if found and whole == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
