"""Which numbers a GPU backend config has, and where: XLA reads nothing else there.

    {"known_init_step":{"init":"0","step":"1"}}       as XLA writes it
    {"known_init_step":{"init":"zero"}}               no config: "zero" is no number

Only fields that somebody reads are named. XLA writes 64-bit numbers as strings, and
reads them as numbers, too.

Source: openxla/xla `xla/service/gpu/backend_configs.proto`, `xla/xla_data.proto`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}")
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1

_INT: Final = "integer"
_REAL: Final = "real"
_INTS: Final = [_INT]
_LINE: Final = {"tuple_index": _INT, "init": _INT, "step": _INT}
_PLACE: Final = {"loop_index": _INT, "byte_offset": _INT, "byte_stride": _INT}
_GEMM: Final = {
    "dot_dimension_numbers": {
        "lhs_batch_dimensions": _INTS,
        "lhs_contracting_dimensions": _INTS,
        "rhs_batch_dimensions": _INTS,
        "rhs_contracting_dimensions": _INTS,
    }
}
#: Fields by name: a kind of number, a list of what it holds, or a message's fields.
_FIELDS: Final[Mapping[str, Any]] = {
    "known_init_step": _LINE,
    "known_induction_variable": _LINE,
    "dynamic_variables": [_LINE],
    "dynamic_slice_config": {**_PLACE, "linear": _PLACE},
    "reification_cost": [{"compute_time_us": _REAL, "memory_access_time_us": _REAL}],
    "gemm_backend_config": _GEMM,
    "grouped_gemm_backend_config": {"gemm_backend_config": _GEMM},
}


def has_known_forms(config: Mapping[str, Any]) -> bool:
    """Whether every field that is read has the form in which XLA writes it."""
    return _fits(config, _FIELDS)


def _fits(value: Any, form: Any) -> bool:
    if form == _INT:
        return not isinstance(value, bool | float) and _is_integer(str(value))
    if form == _REAL:
        return _is_real(value)
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(each, form[0]) for each in value)
    return isinstance(value, dict) and all(
        _fits(value[name], form[name]) for name in form.keys() & value.keys()
    )


def _is_integer(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and _LEAST <= int(text) <= _MOST


def _is_real(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    try:
        return not math.isnan(float(value))
    except (TypeError, ValueError, OverflowError):
        return False
