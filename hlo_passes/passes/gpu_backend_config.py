"""The GPU back end's JSON behind an instruction, written as XLA writes it.

    backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":
    true,...},"force_earliest_schedule":false,"reification_cost":[],"device_type":...}

XLA reads the JSON into a message and prints all its plain fields, in order of
declaration; so setting one field of a config that was not there writes the others too.

Source: openxla/xla `xla/service/gpu/backend_configs.proto`; field lists and defaults as
jax 0.10 and 0.12 print them.
"""

from __future__ import annotations

from typing import Any, Final

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import BackendConfig

#: Fields in front of and behind the one-of, with the defaults that are printed.
_FIRST: Final[dict[str, Any]] = {"operation_queue_id": "0"}
_LAST: Final[dict[str, Any]] = {
    "force_earliest_schedule": False,
    "reification_cost": [],
    "device_type": "DEVICE_TYPE_INVALID",
}
_COLLECTIVE: Final[dict[str, Any]] = {
    "is_sync": False,
    "is_pipelined": False,
    "backend": "DEFAULT",
    "collectives_mode": "COLLECTIVES_MODE_INVALID",
    "kernel_strategy": "KERNEL_STRATEGY_DEFAULT",
}


def has_gpu_config(instruction: Instruction) -> bool:
    """Whether there is no config, or one that is a JSON dict."""
    config = instruction.backend_config
    return config is None or (config.is_json_dict and isinstance(config.json(), dict))


def collective_config(instruction: Instruction) -> dict[str, Any]:
    """The `collective_backend_config` as it stands; {} where there is none."""
    config = instruction.backend_config
    if config is None or not config.is_json_dict:
        return {}
    found = config.json().get("collective_backend_config", {})
    return found if isinstance(found, dict) else {}


def set_collective_fields(instruction: Instruction, **values: Any) -> None:
    """Set fields of `collective_backend_config`; the rest keeps its value.

    Requires `has_gpu_config`.
    """
    config = instruction.backend_config
    outer: dict[str, Any] = {} if config is None else config.json()
    inner = {**_COLLECTIVE, **collective_config(instruction), **values}
    middle = {
        name: value
        for name, value in outer.items()
        if name not in _FIRST and name not in _LAST
    }
    middle["collective_backend_config"] = inner
    instruction.backend_config = BackendConfig.of_json(
        {name: outer.get(name, default) for name, default in _FIRST.items()}
        | middle
        | {name: outer.get(name, default) for name, default in _LAST.items()}
    )


def set_common_fields(instruction: Instruction) -> None:
    """Write the config with the defaults of all common fields, as XLA does."""
    config = instruction.backend_config
    outer: dict[str, Any] = {} if config is None else config.json()
    instruction.backend_config = BackendConfig.of_json(
        {name: outer.get(name, default) for name, default in _FIRST.items()}
        | {n: v for n, v in outer.items() if n not in _FIRST and n not in _LAST}
        | {name: outer.get(name, default) for name, default in _LAST.items()}
    )
