"""Write corpus/schedules: what XLA's scheduler does, in many settings.

    python corpus/record_schedules.py                      # every input
    python corpus/record_schedules.py moe grouped_loop     # some inputs
    python corpus/record_schedules.py --large --out=DIR    # also what is not kept

An archive `schedules/<jax release>/<input>.tar.xz` has a folder for each setting,
`<topology>.<variant>`, laid out as a golden folder (README.md) with the scheduler
alone. Inputs are `programs`, `handwritten` and `held_out`; nobody develops on the last.
What is over `KEPT_BYTES` is left out of the repository: `schedules/left_out.json` has
its sha256, and `--large --out=DIR` makes it again.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import io
import json
import lzma
import pathlib
import re
import sys
import tarfile

import jax
from compile_gpu import SCHEDULER, Job, Recording, compile_all, recorded_texts
from lower import CORPUS, functions

#: As XLA was run. To it the second one is 16 GPUs in one NVLink domain.
TOPOLOGIES = ("1x1x8", "1x2x8")
#: An archive above this is made again rather than kept.
KEPT_BYTES = 400_000

_OVERLAP = "xla_gpu_experimental_parallel_collective_overlap_limit"
_COMPUTE = "xla_gpu_experimental_parallel_async_compute_limit"
_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
_STREAMS = "xla_gpu_experimental_enable_collective_multi_streaming"
_SLOP = "xla_gpu_memory_limit_slop_factor"
_APPROXIMATE = "xla_gpu_enable_analytical_sol_latency_estimator=false"

#: Variant -> flags. The first five are the ones recorded for public modules too.
VARIANTS = {
    "sol": (),
    "approx": (_APPROXIMATE,),
    "approx_overlap4": (_APPROXIMATE, f"{_OVERLAP}=4"),
    "start_delay": (f"{_OVERLAP}=4", f"{_EARLY}=true"),
    "tight_memory": (f"{_SLOP}=55",),
    "multi_streaming": (f"{_OVERLAP}=2", f"{_STREAMS}=true"),
    "async_compute1": (f"{_COMPUTE}=1", _APPROXIMATE),
}
TIGHT = "tight_memory"
_SLOP_FACTOR = 0.55
#: XLA plans with this share of a device's memory.
_USABLE = 0.8
#: The limit of `TIGHT`, as a share of the peak without one.
_TIGHTNESS = 0.7


def inputs(*names: str) -> dict[str, str]:
    """Name -> what `compile_gpu` takes, all or those named."""
    found = {}
    for folder in ("programs", "held_out"):
        for file in sorted((CORPUS / folder).glob("*.py")):
            found |= {name: f"{file}:{name}" for name in functions(file)}
    found |= {f.stem: str(f) for f in sorted((CORPUS / "handwritten").glob("*.hlo"))}
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.exit(f"no such input: {', '.join(unknown)}; there are {', '.join(found)}")
    return {n: i for n, i in found.items() if not names or n in names}


def tight_memory_bytes(recording: Recording) -> int | None:
    """Device memory with which `TIGHT` leaves less than this recording's peak."""
    peaks = [
        rows["memory pressure peak (bytes)"]
        for rows in recording.log.statistics["after"].values()
        if "memory pressure peak (bytes)" in rows
    ]
    if not peaks or SCHEDULER not in recording.dumps:
        return None
    header = recording.dumps[SCHEDULER][0].partition("\n")[0]
    limit = _TIGHTNESS * max(peaks)
    return int((limit / _SLOP_FACTOR + _signature_bytes(header)) / _USABLE)


def _signature_bytes(header: str) -> int:
    """Bytes of the entry's parameters and results; donated results count once."""
    layout = re.search(
        r"entry_computation_layout=\{\((.*)\)->(.*?)\}(?:, \w+=|$)", header
    )
    if layout is None:
        return 0
    parameters, results = (_bytes(part) for part in layout.groups())
    donated = "input_output_alias" in header
    return parameters + (0 if donated else results)


def _bytes(shapes: str) -> int:
    total = 0
    for kind, dimensions in re.findall(
        r"\b([a-z]+\d+|pred)(?:e\d\w*)?\[([\d,]*)\]", shapes
    ):
        width = int(re.sub(r"\D", "", kind) or 8)
        size = max(width // 8, 1)
        for dimension in filter(None, dimensions.split(",")):
            size *= int(dimension)
        total += size
    return total


def record(source: str) -> dict[str, dict[str, str]]:
    """Setting -> file name -> text, of one input."""
    jobs = {
        f"{topology}.{variant}": Job(
            source, topology=topology, flags=flags, with_elements=True
        )
        for topology in TOPOLOGIES
        for variant, flags in VARIANTS.items()
        if variant != TIGHT
    }
    found = dict(zip(jobs, compile_all([*jobs.values()], decisions=True), strict=True))
    tight = {}
    for topology in TOPOLOGIES:
        memory = tight_memory_bytes(found[f"{topology}.sol"])
        if memory is not None:
            job = dataclasses.replace(
                jobs[f"{topology}.sol"],
                flags=VARIANTS[TIGHT],
                device_memory_bytes=memory,
            )
            tight[f"{topology}.{TIGHT}"] = job
    found |= zip(tight, compile_all([*tight.values()], decisions=True), strict=True)
    jobs |= tight
    return {
        setting: recorded_texts(
            jobs[setting], recording, passes=(SCHEDULER,), decisions=True
        )
        for setting, recording in sorted(found.items())
        if SCHEDULER in recording.dumps
    }


def packed(folders: dict[str, dict[str, str]]) -> bytes:
    """A tar.xz of the folders: the same texts, the same bytes."""
    raw = io.BytesIO()
    # Settings of one file lie side by side: they have most of their text in common.
    entries = sorted((name, folder) for folder in folders for name in folders[folder])
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, folder in entries:
            data = folders[folder][name].encode()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("inputs", nargs="*", metavar="INPUT")
    parser.add_argument("--large", action="store_true", help="write large ones too")
    parser.add_argument("--out", type=pathlib.Path, default=CORPUS / "schedules")
    options = parser.parse_args()
    folder = options.out / jax.__version__
    folder.mkdir(parents=True, exist_ok=True)
    left_out_file = options.out / "left_out.json"
    left_out = json.loads(left_out_file.read_text()) if left_out_file.exists() else {}
    for name, source in inputs(*options.inputs).items():
        folders = record(source)
        file = folder / f"{name}.tar.xz"
        file.unlink(missing_ok=True)
        key = f"{jax.__version__}/{file.name}"
        left_out.pop(key, None)
        if not folders:
            print(f"{name}: nothing reached the scheduler", flush=True)
            continue
        data = packed(folders)
        if options.large or len(data) <= KEPT_BYTES:
            file.write_bytes(data)
        else:
            digest = hashlib.sha256(data).hexdigest()
            left_out[key] = {"bytes": len(data), "sha256": digest}
        print(f"{name}: {len(folders)} settings, {len(data)} bytes", flush=True)
    left_out_file.unlink(missing_ok=True)
    if left_out:
        text = json.dumps(left_out, indent=1, sort_keys=True)
        left_out_file.write_text(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
