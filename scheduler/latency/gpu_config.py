"""What the GPU compiler noted behind an instruction, read without complaint.

    backend_config={"fusion_backend_config":{"kind":"__triton_gemm",...},...}

Source: openxla/xla `xla/service/gpu/backend_configs.proto`.
"""

from __future__ import annotations

from typing import Any, Final

from hlo_passes.errors import ParseError
from hlo_passes.ir.instruction import Instruction

_FUSION: Final = "fusion_backend_config"


def gpu_config(instruction: Instruction) -> dict[str, Any]:
    """The backend config; {} for one that is no JSON, as other back ends write."""
    config = instruction.backend_config
    if config is None or not config.is_json_dict:
        return {}
    try:
        view = config.json()
    except ParseError:
        return {}
    return view if isinstance(view, dict) else {}


def fusion_config(fusion: Instruction) -> dict[str, Any]:
    """`fusion_backend_config`; {} where there is none."""
    text = fusion.attributes.get("backend_config", "")
    if _FUSION not in text:  # most configs of other back ends
        return {}
    inner = gpu_config(fusion).get(_FUSION)
    return inner if isinstance(inner, dict) else {}


def fusion_kind(fusion: Instruction) -> str:
    """`fusion_backend_config.kind`, '' where there is none."""
    return str(fusion_config(fusion).get("kind", ""))


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
