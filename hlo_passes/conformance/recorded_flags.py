"""Options of a pass from the compiler flags with which its golden pair was recorded.

    FOLDER/oracle.json   {"flags": ["xla_gpu_all_gather_combine_threshold_bytes=170"]}
        ->  gpu-all-gather-combiner{threshold-bytes=170}

Flags that no pass of ours has an option for are the scheduler's and are left aside.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from hlo_passes.errors import UsageError

#: Beside the pairs: what was compiled, and how.
RECORD: Final = "oracle.json"

_COMBINERS: Final = (
    "collective-permute-combiner",
    "gpu-all-gather-combiner",
    "gpu-all-reduce-combiner",
    "gpu-reduce-scatter-combiner",
)
#: Flag -> (passes that it steers, their option).
#: Source: openxla/xla `xla/xla.proto`, `xla/service/gpu/gpu_compiler.cc`.
FLAG_OPTIONS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "xla_gpu_collective_permute_combine_threshold_bytes": (
        ("collective-permute-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_all_gather_combine_threshold_bytes": (
        ("gpu-all-gather-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_all_reduce_combine_threshold_bytes": (
        ("gpu-all-reduce-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_reduce_scatter_combine_threshold_bytes": (
        ("gpu-reduce-scatter-combiner",),
        "threshold-bytes",
    ),
    "xla_gpu_collective_combine_threshold_count": (_COMBINERS, "threshold-count"),
    "xla_gpu_enable_all_gather_combine_by_dim": (
        ("gpu-all-gather-combiner",),
        "combine-by-dim",
    ),
    "xla_gpu_enable_reduce_scatter_combine_by_dim": (
        ("gpu-reduce-scatter-combiner",),
        "combine-by-dim",
    ),
    "xla_gpu_disable_async_collectives": (
        ("async-collective-annotator",),
        "disable-async-collectives",
    ),
}


def recorded_options(folder: Path, pass_name: str) -> dict[str, str]:
    """Option texts by name; {} where the folder has no record.

    Raises UsageError U031 for a record that is not one.
    """
    options: dict[str, str] = {}
    for flag in _recorded_flags(folder / RECORD):
        name, _, value = flag.partition("=")
        passes, option = FLAG_OPTIONS.get(name, ((), ""))
        if pass_name in passes:
            # A list has commas in a flag and blanks in an option.
            options[option] = value.replace(",", " ")
    return options


def _recorded_flags(record: Path) -> list[str]:
    if not record.is_file():
        return []
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
    except ValueError as problem:  # neither JSON nor UTF-8
        raise UsageError(
            f"{record}: this is no JSON: {problem}", code="U031"
        ) from problem
    flags = found.get("flags", []) if isinstance(found, dict) else None
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise UsageError(
            f"{record}: expected a dict whose flags are a list of texts",
            code="U031",
            hint='{"flags": ["xla_gpu_collective_combine_threshold_count=2"]}',
        )
    return flags
