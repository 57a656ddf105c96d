"""Write corpus/modules: every program at every stage, for the jax that runs this.

    python corpus/lower.py                    # all programs, all stages
    python corpus/lower.py moe fsdp_mlp       # some programs

Files are `modules/<jax release>/<program>.<stage>.hlo`, packed where large. The stage
`gpu-scheduled` needs the GPU plug-in of the same release (`jax-cuda12-plugin` and
`jax-cuda12-pjrt`; no GPU) and is left out without it.
"""

from __future__ import annotations

import gzip
import importlib.util
import inspect
import os
import pathlib
import re
import sys
from collections.abc import Callable
from typing import Any

CORPUS = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(CORPUS.parent))

import jax  # noqa: E402
from jax._src import source_info_util  # noqa: E402

from hlo_passes import runtime  # noqa: E402

#: FUNCTION(devices) -> (jitted function, arguments).
Program = Callable[[Any], tuple[Any, tuple[Any, ...]]]

DEVICES = 8
TARGET, TOPOLOGY = "h100_sxm", f"1x1x{DEVICES}"
#: Larger files are packed.
LARGE_BYTES = 20_000


def functions(file: pathlib.Path) -> dict[str, Program]:
    """Name -> FUNCTION(devices) of one file, in the order of the file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and [*inspect.signature(value).parameters] == ["devices"]
    }


def programs(*names: str) -> dict[str, Program]:
    """The functions of corpus/programs, all or those named."""
    found: dict[str, Program] = {}
    for file in sorted((CORPUS / "programs").glob("*.py")):
        found |= functions(file)
    unknown = [name for name in names if name not in found]
    if unknown:
        sys.exit(f"no such program: {', '.join(unknown)}; there are {', '.join(found)}")
    return {n: f for n, f in found.items() if not names or n in names}


def write_module(file: pathlib.Path, text: str) -> pathlib.Path:
    """Write text as `file`, or packed as `file`.gz; the same text, the same bytes."""
    packed = file.with_name(file.name + ".gz")
    data = text.encode()
    large = len(data) > LARGE_BYTES
    (file if large else packed).unlink(missing_ok=True)
    if large:
        packed.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))
        return packed
    file.write_bytes(data)
    return file


def stable_locations() -> None:
    """Let metadata name the programs, from the repository's root, and nothing else."""
    root = f"{CORPUS.parent}{os.sep}"
    jax.config.update("jax_hlo_source_file_canonicalization_regex", re.escape(root))
    # The caller is not a part of the program: its lines would change the modules.
    source_info_util.register_exclusion(__file__)
    source_info_util.register_exclusion(f"{root}runtime{os.sep}")


def gpu_devices() -> Any:
    """Devices of GPUs that are not there; None without the plug-in."""
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        return None
    from jax.experimental import topologies

    target = CORPUS.parent / "scheduler" / "data" / "gpu_targets" / f"{TARGET}.txtpb"
    return topologies.get_topology_desc(
        platform="cuda", target_config=target.read_text(), topology=TOPOLOGY
    ).devices


def main() -> None:
    runtime.emulate(DEVICES)
    stable_locations()
    folder = CORPUS / "modules" / jax.__version__
    folder.mkdir(parents=True, exist_ok=True)
    cpus, gpus = jax.devices(), gpu_devices()
    for name, program in programs(*sys.argv[1:]).items():
        stages = {"before-optimizations": cpus, "partitioned": cpus, "scheduled": cpus}
        if gpus is not None:
            stages["gpu-scheduled"] = gpus
        for stage, devices in stages.items():
            jitted, arguments = program(devices)
            module = runtime.lower(jitted, *arguments, stage=stage)
            file = write_module(folder / f"{name}.{stage}.hlo", module.to_text())
            print(f"{file.relative_to(CORPUS)}: {module.instruction_count}")


if __name__ == "__main__":
    main()
