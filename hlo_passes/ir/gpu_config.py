"""The GPU back end's JSON in `backend_config`, read once per distinct text.

    backend_config={"operation_queue_id":"0","collective_backend_config":{"is_sync":
    true,...},"force_earliest_schedule":false,"reification_cost":[],"device_type":...}

Blanks, the order of keys, quotes around the whole and a comma after the last entry make
no difference, as in XLA. A config that is not a JSON dict, which other back ends write,
reads like an empty one, and so does one with fields of other forms than XLA's.
`passes/gpu_backend_config.py` writes configs.

Source: openxla/xla `xla/service/gpu/backend_configs.proto`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from hlo_passes.errors import ParseError
from hlo_passes.ir.config_fields import has_known_forms
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import parse_backend_config

#: Kinds of custom fusions: a kernel that communicates by itself, and one of cuDNN.
#: Source: openxla/xla `xla/service/gpu/ir_emission_utils.h`, `cublas_cudnn.cc`.
COLLECTIVE_KERNEL: Final = "__triton_collective"
CUDNN_KERNEL: Final = "__cudnn$fusion"

_log = logging.getLogger("hlo_passes")
_NONE: Final[Mapping[str, Any]] = {}
_REMEMBERED_TEXTS: Final = 1 << 14
#: Letters that are shown of a config that cannot be read.
_SHOWN_LETTERS: Final = 60
#: Opcodes whose configs may have any form: that of their target.
_FREE_CONFIGS: Final = frozenset({"custom-call"})
#: A number in a field of 64 bits.
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
#: A string, which is kept, or a comma after the last entry.
_LAST_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=[ \t\r\n]*[}\]])')


def gpu_config(instruction: Instruction) -> Mapping[str, Any]:
    """The whole config, not to be changed; empty without one that is a JSON dict."""
    if not instruction.mentions("backend_config"):
        return _NONE
    text = instruction.attributes.get("backend_config")
    if text is None:
        return _NONE
    found = _read(text)
    if found is None and instruction.opcode not in _FREE_CONFIGS:
        _tell_unreadable(text)
    return found or _NONE


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _tell_unreadable(text: str) -> None:
    """Say once of a config in braces that XLA cannot read it: nothing in it counts.

    XLA's GPU compiler stops there.
    """
    try:
        config = parse_backend_config(text)
    except ParseError:
        return
    if config.is_json_dict:
        _log.warning(
            "a backend config is not JSON as XLA writes it, and nothing in it counts: "
            "%s",
            config.value[:_SHOWN_LETTERS],
        )


def has_gpu_config(instruction: Instruction) -> bool:
    """Whether there is no config, or one that is a JSON dict."""
    text = instruction.attributes.get("backend_config")
    return text is None or _read(text) is not None


@lru_cache(maxsize=_REMEMBERED_TEXTS)
def _read(text: str) -> Mapping[str, Any] | None:
    """The JSON dict that the attribute's text spells; None where it is none."""
    try:
        value = parse_backend_config(text).value
    except ParseError:
        return None
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        kept = _LAST_COMMA.sub(lambda m: "" if m[0] == "," else m[0], value)
        try:
            found = json.loads(kept)
        except (ValueError, RecursionError):
            return None
    if not isinstance(found, dict):
        return None
    if "null" in value:
        found = _set_fields(found)
    return found if has_known_forms(found) else None


def _set_fields(value: Any) -> Any:
    """The same without fields that are null, which are not set."""
    if isinstance(value, dict):
        return {k: _set_fields(v) for k, v in value.items() if v is not None}
    return [_set_fields(v) for v in value] if isinstance(value, list) else value


def _part(instruction: Instruction, name: str) -> Mapping[str, Any]:
    # Most configs have another part, and their text shows it.
    if not instruction.mentions(name):
        return _NONE
    found = gpu_config(instruction).get(name)
    return found if isinstance(found, dict) else _NONE


# -- collectives and streams ---------------------------------------------------


def collective_config(instruction: Instruction) -> Mapping[str, Any]:
    """`collective_backend_config`; empty where there is none."""
    return _part(instruction, "collective_backend_config")


def is_marked_sync(start: Instruction) -> bool:
    """Whether the compiler decided not to overlap a collective."""
    return collective_config(start).get("is_sync") is True


def operation_queue_id(instruction: Instruction) -> int:
    """The number of the queue that it runs on; 0 (the default queue) without one."""
    if not instruction.mentions("operation_queue_id"):
        return 0
    found = gpu_config(instruction).get("operation_queue_id", 0)
    return int(found) if _NUMBER.fullmatch(str(found)) else 0


# -- loops ---------------------------------------------------------------------


def known_trip_count(loop: Instruction) -> int | None:
    """How often a loop's body runs, in 64 bits as XLA keeps it; None: nobody noted."""
    known = gpu_config(loop).get("known_trip_count")
    count = known.get("n") if isinstance(known, dict) else known
    return int(str(count)) if _NUMBER.fullmatch(str(count)) else None


# -- fusions -------------------------------------------------------------------


def fusion_config(fusion: Instruction) -> Mapping[str, Any]:
    """`fusion_backend_config`; empty where there is none."""
    return _part(fusion, "fusion_backend_config")


def fusion_kind(instruction: Instruction) -> str:
    """What a fusion of kind `kCustom` says it is: '__triton_gemm'; '' otherwise."""
    if instruction.opcode != "fusion" or not instruction.mentions("kCustom"):
        return ""
    if instruction.attributes.get("kind") != "kCustom":
        return ""
    return str(fusion_config(instruction).get("kind", ""))


def is_collective_fusion(instruction: Instruction) -> bool:
    """Whether it is a custom fusion around a collective, run as one kernel."""
    return fusion_kind(instruction) == COLLECTIVE_KERNEL


def is_convolution_fusion(instruction: Instruction) -> bool:
    """Whether it is a custom fusion that cuDNN runs."""
    return fusion_kind(instruction) == CUDNN_KERNEL


def triton_tiles(fusion: Instruction) -> tuple[tuple[int, ...], int] | None:
    """(tile of the first result, warps) of a Triton fusion; None when not noted."""
    tiled = fusion_config(fusion).get("block_level_fusion_config")
    if not isinstance(tiled, dict):
        return None
    try:
        sizes = tuple(int(size) for size in tiled["output_tiles"][0]["sizes"])
        return sizes, int(tiled["num_warps"])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
