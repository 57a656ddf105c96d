"""Write corpus/costs: what XLA's analytical estimator answers on more machines.

    python corpus/record_costs.py                      # every input
    python corpus/record_costs.py moe --out=DIR        # some inputs, elsewhere

`costs/<jax release>.tar.xz` has a folder `<input>/<target>.<topology>` for each input
of `record_schedules` and each machine of `MACHINES`: the module that XLA's scheduler
was given, the costs that its estimator logged, and `oracle.json`. What h100_sxm costs
lies in `schedules`, with all that the scheduler did. `costs/left_out.json` names the
inputs that never reached the scheduler, h100_sxm included, with XLA's reason.

    python -m tests.scheduler.costs_conformance        # our estimates against both
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tarfile
from typing import TypeVar

import jax
from compile_gpu import SCHEDULER, Job, compile_all, recorded_texts
from lower import CORPUS
from record_schedules import TOPOLOGIES, inputs, packed

#: (target, topology) for which XLA turns its model on, besides h100_sxm.
MACHINES = (("h200", "1x1x8"), ("b200", "1x1x8"))
BASE_TARGET = "h100_sxm"
_T = TypeVar("_T")
_KEPT = (f"{SCHEDULER}.before.hlo", "costs.json", "oracle.json")


def jobs(sources: dict[str, str]) -> dict[str, Job]:
    """'<input>/<target>.<topology>' -> the compilation."""
    found = {}
    for name, source in sources.items():
        schedules = CORPUS / "schedules" / jax.__version__ / f"{name}.tar.xz"
        known = unpacked(schedules)
        machines = [
            (BASE_TARGET, topology)
            for topology in TOPOLOGIES
            if f"{topology}.sol" not in known
        ]
        for target, topology in (*machines, *MACHINES):
            found[f"{name}/{target}.{topology}"] = Job(
                source, target=target, topology=topology, with_elements=True
            )
    return found


def unpacked(file: pathlib.Path) -> dict[str, dict[str, str]]:
    """Folder -> file name -> text of an archive; {} where there is none."""
    folders: dict[str, dict[str, str]] = {}
    if file.exists():
        with tarfile.open(file, "r:xz") as archive:
            for entry in archive:
                data = archive.extractfile(entry)
                assert data is not None
                folder, _, name = entry.name.rpartition("/")
                folders.setdefault(folder, {})[name] = data.read().decode()
    return folders


def record(
    sources: dict[str, str],
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Folder -> file name -> text, and folder -> why there is none."""
    wanted = jobs(sources)
    found, left_out = {}, {}
    for (folder, job), recording in zip(
        wanted.items(), compile_all([*wanted.values()]), strict=True
    ):
        if SCHEDULER not in recording.dumps:
            left_out[folder] = recording.outcome
            continue
        texts = recorded_texts(job, recording, passes=(SCHEDULER,))
        found[folder] = {name: texts[name] for name in _KEPT}
    return found, left_out


def _of_others(known: dict[str, _T], sources: dict[str, str]) -> dict[str, _T]:
    """What is known of inputs that were not compiled again."""
    return {f: v for f, v in known.items() if f.partition("/")[0] not in sources}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="INPUT")
    parser.add_argument("--out", type=pathlib.Path, default=CORPUS / "costs")
    options = parser.parse_args()
    sources = inputs(*options.inputs)
    folders, left_out = record(sources)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{jax.__version__}.tar.xz"
    folders |= _of_others(unpacked(file), sources)
    data = packed(folders)
    file.write_bytes(data)
    left_out_file = options.out / "left_out.json"
    known = json.loads(left_out_file.read_text()) if left_out_file.exists() else {}
    left_out |= _of_others(known.get(jax.__version__, {}), sources)
    known[jax.__version__] = left_out
    left_out_file.write_text(f"{json.dumps(known, indent=1, sort_keys=True)}\n")
    print(f"{file.name}: {len(folders)} recordings, {len(data)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
