"""What XLA's own parser and printer, inside jaxlib, make of a text."""

from __future__ import annotations

import pytest

import hlo_passes

_hlo = pytest.importorskip("jaxlib._hlo")

_BODY = """HloModule m
add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT r = f32[] add(x, y)
}
ENTRY e {
  a = f32[4,4] parameter(0)
  z = f32[] constant(0)
  ROOT q = %s
}
"""


def xla_prints(text: str) -> str:
    """The module as XLA prints it, large constants included; ValueError if refused."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    try:
        return _hlo.hlo_module_from_text(text).to_string(options)
    except Exception as problem:
        raise ValueError(str(problem)) from None


def xla_attribute(instruction: str, name: str) -> str | None:
    """Attribute `name` of the root instruction as XLA prints it; None if it does not.

    The operands `a` (f32[4,4]) and `z` (f32[]) and the computation `add` are there.
    """
    module = hlo_passes.parse(xla_prints(_BODY % instruction))
    assert module.entry.root is not None
    return module.entry.root.attributes.get(name)


def xla_literal(text: str, shape: str) -> str:
    """A constant's literal as XLA prints it."""
    printed = xla_prints(
        f"HloModule m\nENTRY e {{ ROOT c = {shape} constant({text}) }}\n"
    )
    return printed.split(" constant(", 1)[1].rsplit(")\n}", 1)[0]
