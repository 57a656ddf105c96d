"""The GPU back end's JSON of an instruction, written as XLA writes it.

    backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":
    true,...},"force_earliest_schedule":false,"reification_cost":[],"device_type":...}

XLA reads the JSON into a message and prints all its plain fields; so setting one field
of a config that was not there writes the others too. The XLA of jax 0.10 prints fields
in order of declaration, that of jax 0.12 in alphabetical order.
`ir/gpu_config.py` reads it.

Source: openxla/xla `xla/service/gpu/backend_configs.proto`; field lists and defaults as
the two releases print them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from hlo_passes.ir.gpu_config import collective_config, gpu_config
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig

#: The jax whose XLA is followed where the two differ.
JaxRelease = Literal["0.10", "0.12"]

_COLLECTIVE: Final = "collective_backend_config"
#: Fields that are always printed, with their defaults; `None` marks where those go that
#: are printed only when set.
_OUTER: Final[dict[str, Any]] = {
    "operation_queue_id": "0",
    "": None,
    "force_earliest_schedule": False,
    "reification_cost": [],
    "device_type": "DEVICE_TYPE_INVALID",
}
_INNER: Final[dict[JaxRelease, dict[str, Any]]] = {
    "0.10": {
        "is_sync": False,
        "is_pipelined": False,
        "backend": "DEFAULT",
        "collectives_mode": "COLLECTIVES_MODE_INVALID",
        "kernel_strategy": "KERNEL_STRATEGY_DEFAULT",
    },
    "0.12": {
        "backend": "DEFAULT",
        "collectives_mode": "COLLECTIVES_MODE_INVALID",
        "communication_domain": "COLLECTIVE_COMMUNICATION_DOMAIN_UNSPECIFIED",
        "is_pipelined": False,
        "is_spmd_generated": False,
        "is_sync": False,
        "kernel_strategy": "KERNEL_STRATEGY_DEFAULT",
    },
}


def set_collective_fields(
    instruction: Instruction, release: JaxRelease, **values: Any
) -> None:
    """Set fields of `collective_backend_config`; the rest keeps its value.

    Without values only the common fields are written. Requires `has_gpu_config`.
    """
    if values:
        inner = {**_INNER[release], **collective_config(instruction), **values}
        _write(
            instruction,
            release,
            {_COLLECTIVE: _sorted(inner) if release == "0.12" else inner},
        )
    else:
        _write(instruction, release, {})


def set_operation_queue_id(
    instruction: Instruction, release: JaxRelease, queue: int
) -> None:
    """Set `operation_queue_id`. Requires `has_gpu_config`."""
    # A 64-bit number in a proto's JSON is a string.
    _write(instruction, release, {"operation_queue_id": str(queue)})


def set_force_earliest_schedule(
    instruction: Instruction, release: JaxRelease, *, value: bool
) -> None:
    """Set `force_earliest_schedule`. Requires `has_gpu_config`."""
    _write(instruction, release, {"force_earliest_schedule": value})


def _write(
    instruction: Instruction, release: JaxRelease, values: Mapping[str, Any]
) -> None:
    """Set fields of the whole config, and print it as XLA prints a message."""
    outer = {**gpu_config(instruction), **values}
    written: dict[str, Any] = {}
    for name, default in _OUTER.items():
        if name:
            written[name] = outer.pop(name, default)
        else:
            written |= {n: v for n, v in outer.items() if n not in _OUTER}
    instruction.backend_config = BackendConfig.of_json(
        _sorted(written) if release == "0.12" else written
    )


def _sorted(fields: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(fields.items()))
