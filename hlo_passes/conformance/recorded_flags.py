"""Options of a pass from the compiler flags with which its golden pair was recorded.

    FOLDER/oracle.json   {"flags": ["xla_gpu_all_gather_combine_threshold_bytes=170"]}
        ->  gpu-all-gather-combiner{threshold-bytes=170}

The scheduler also receives what XLA's pass had from elsewhere: the machine, and the
costs that XLA's estimator logged (`costs.json`), so that only its choices are judged.
Flags for which no pass of ours has an option are ignored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from hlo_passes.errors import UsageError
from hlo_passes.files import opened
from hlo_passes.pricing import DEFAULT_TARGET, Pricing
from hlo_passes.xla_flags import FLAG_OPTIONS, SCHEDULER, SWITCHES, option_text

#: The file next to the pairs that says what was compiled, and how.
RECORD: Final = "oracle.json"
#: Costs and latencies as XLA logged them; empty where it used its coarse estimator.
COSTS: Final = ("costs.json", "costs.json.gz")
_RECORD_HINT: Final = '{"flags": ["xla_gpu_collective_combine_threshold_count=2"]}'
_ANALYTICAL_OFF: Final = "xla_gpu_enable_analytical_sol_latency_estimator=false"
#: Keys of a record -> options of the scheduler: the machine.
_MACHINE: Final = {
    "target": "target",
    "topology": "topology",
    "device_memory_bytes": "device-memory-bytes",
}


def recorded_options(folder: Path, pass_name: str) -> dict[str, str]:
    """Option texts by name; {} where the folder has no record.

    Raises UsageError U031 for a record that is not one.
    """
    record = _read_dict(folder / RECORD)
    flags = _flags(folder / RECORD, record)
    options: dict[str, str] = {}
    for flag in flags:
        name, _, value = flag.partition("=")
        passes, option = FLAG_OPTIONS.get(name, ((), ""))
        if pass_name in passes:
            options[option] = option_text(value)
    if pass_name == SCHEDULER and record:
        options |= _costs(folder, flags)
        options |= {o: str(record[k]) for k, o in _MACHINE.items() if k in record}
    return options


def recorded_pricing(folder: Path) -> Pricing:
    """The machine that XLA compiled for; the usual one where the folder has no record.

    Raises UsageError U031 for a record that is not one.
    """
    record = _read_dict(folder / RECORD)
    target = str(record.get("target", DEFAULT_TARGET))
    return Pricing(target, str(record.get("topology", "")))


def is_switched_off(folder: Path, pass_name: str) -> bool:
    """Whether XLA ran a pass without the flag that makes it do something.

    Raises UsageError U031 for a record that is not one.
    """
    record = _read_dict(folder / RECORD)
    switch = SWITCHES.get(pass_name)
    if switch is None or not record:
        return False
    return f"{switch}=true" not in _flags(folder / RECORD, record)


def _costs(folder: Path, flags: list[str]) -> dict[str, str]:
    """XLA's own costs, or the estimator that it used in their place."""
    if _ANALYTICAL_OFF not in flags:
        for file in (folder / name for name in COSTS):
            if any(_read_dict(file).values()):
                return {"costs": str(file)}
    return {"estimator": "gpu-approximate"}


def _read_dict(file: Path) -> dict[str, Any]:
    """A JSON object, compressed or not; {} if the file is missing."""
    if not file.is_file():
        return {}
    try:
        data = file.read_bytes()
        found = json.loads(opened(data))
    except (ValueError, OSError, RecursionError) as problem:
        # It is neither JSON, UTF-8 nor gzip, or nested too deeply.
        raise UsageError(
            f"{file}: no JSON can be read here: {problem}", code="U031"
        ) from problem
    if not isinstance(found, dict):
        raise UsageError(f"{file}: expected a dict", code="U031", hint=_RECORD_HINT)
    return found


def _flags(file: Path, record: dict[str, Any]) -> list[str]:
    flags = record.get("flags", [])
    if not isinstance(flags, list) or not all(isinstance(f, str) for f in flags):
        raise UsageError(
            f"{file}: expected flags to be a list of texts",
            code="U031",
            hint=_RECORD_HINT,
        )
    return flags
