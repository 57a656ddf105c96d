"""The GPU back end's JSON of an instruction, written as XLA writes it.

    backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":
    true,...},"force_earliest_schedule":false,"reification_cost":[],"device_type":...}

XLA reads the JSON into a message and prints all its plain fields; so setting one field
of a config that was not there writes the others too. Which fields there are and their
order depend on the release. `ir/gpu_config.py` reads
it.

Source: openxla/xla `xla/service/gpu/backend_configs.proto`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hlo_passes.ir.gpu_config import collective_config, gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig
from hlo_passes.xla_release import XlaRelease

_COLLECTIVE: Final = "collective_backend_config"
_FUSION: Final = "fusion_backend_config"
#: Frontend attribute, and later field of the config, of what the partitioner made.
_SPMD_GENERATED: Final = "is_spmd_generated"
#: Fields that are always printed, with their defaults; `None` marks where those go that
#: are printed only when set.
_OUTER: Final[dict[str, Any]] = {
    "operation_queue_id": "0",
    "": None,
    "force_earliest_schedule": False,
    "reification_cost": [],
    "device_type": "DEVICE_TYPE_INVALID",
}


def set_collective_fields(
    instruction: Instruction, release: XlaRelease, **values: Any
) -> None:
    """Set fields of `collective_backend_config`; the rest keeps its value.

    Without values only the common fields are written. Requires `has_gpu_config`.
    """
    if values:
        inner = dict(release.collective_fields)
        inner |= {**collective_config(instruction), **values}
        _write(instruction, release, {_COLLECTIVE: _in_print_order(inner, release)})
    else:
        _write(instruction, release, {})


def set_fusion_config(
    instruction: Instruction, release: XlaRelease, config: Mapping[str, Any]
) -> None:
    """Make it the config of a fusion: `fusion_backend_config` in place of others.

    Requires `has_gpu_config`.
    """
    _write(instruction, release, {_COLLECTIVE: None, _FUSION: config})


def set_operation_queue_id(
    instruction: Instruction, release: XlaRelease, queue: int
) -> None:
    """Set `operation_queue_id`. Requires `has_gpu_config`."""
    # A 64-bit number in a proto's JSON is a string.
    _write(instruction, release, {"operation_queue_id": str(queue)})


def set_force_earliest_schedule(
    instruction: Instruction, release: XlaRelease, *, value: bool
) -> None:
    """Set `force_earliest_schedule`. Requires `has_gpu_config`."""
    _write(instruction, release, {"force_earliest_schedule": value})


def whole_collective_config(
    instruction: Instruction, release: XlaRelease
) -> dict[str, Any]:
    """The config of a collective with all fields that XLA prints, by name."""
    outer = {name: value for name, value in _OUTER.items() if name}
    inner = {**dict(release.collective_fields), **collective_config(instruction)}
    return {**outer, **gpu_config(instruction), _COLLECTIVE: inner}


def is_spmd_generated(collective: Instruction) -> bool:
    """Whether the partitioner made it: it is marked so, or combined from such."""
    marked = (
        "frontend_attributes" in collective.attributes
        and collective.frontend_attributes.get(_SPMD_GENERATED) == "true"
    )
    return marked or bool(collective_config(collective).get(_SPMD_GENERATED))


def _write(
    instruction: Instruction, release: XlaRelease, values: Mapping[str, Any]
) -> None:
    """Set fields of the whole config, and print it as XLA prints a message.

    A field whose value is None is taken away.
    """
    outer = {**gpu_config(instruction), **values}
    outer = {name: value for name, value in outer.items() if value is not None}
    written: dict[str, Any] = {}
    for name, default in _OUTER.items():
        if name:
            written[name] = outer.pop(name, default)
        else:
            written |= {n: v for n, v in outer.items() if n not in _OUTER}
    # The same values in another spelling are not a change.
    if written != gpu_config(instruction):
        instruction.backend_config = BackendConfig.of_json(
            _in_print_order(written, release)
        )


def _in_print_order(
    fields: Mapping[str, Any], release: XlaRelease
) -> Mapping[str, Any]:
    return dict(sorted(fields.items())) if release.config_is_alphabetical else fields
