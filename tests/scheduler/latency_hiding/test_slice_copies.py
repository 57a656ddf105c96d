"""Which fusions the GPU runs as one copy of memory; XLA's dynamic_slice_copy.cc."""

from __future__ import annotations

import pytest

import hlo_passes
from hlo_passes.scheduler.latency_hiding.slice_copies import is_slice_copy

_CONFIG = (
    ', backend_config={"dynamic_slice_config":{"byte_offset":"0","byte_stride":"32"}}'
)
_HEAD = """  %x = f32[4,8] parameter(0)
  %i = s32[] parameter(1)
  %u = f32[1,8] parameter(2)
  %zero = s32[] constant(0)
"""
_SLICE = "dynamic-slice(%x, %i, %zero), dynamic_slice_sizes={1,8}"
_UPDATE = "dynamic-update-slice(%x, %u, %i, %zero)"
#: Body of the fusion -> whether it is one copy.
BODIES = {
    "a row": (f"ROOT %r = f32[1,8] {_SLICE}{_CONFIG}", True),
    "a row of unknown place": (f"ROOT %r = f32[1,8] {_SLICE}", False),
    "a row seen through a bitcast": (
        f"%s = f32[1,8] {_SLICE}{_CONFIG}\n  ROOT %r = f32[8] bitcast(%s)", True,
    ),
    "a row and arithmetic": (
        f"%s = f32[1,8] {_SLICE}{_CONFIG}\n  ROOT %r = f32[1,8] negate(%s)", False,
    ),
    "a row of what is computed": (
        "%n = f32[4,8] negate(%x)\n"
        f"  ROOT %r = f32[1,8] {_SLICE.replace('%x', '%n')}{_CONFIG}", False,
    ),
    "a row of a bitcast": (
        "%b = f32[4,8] bitcast(%x)\n"
        f"  ROOT %r = f32[1,8] {_SLICE.replace('%x', '%b')}{_CONFIG}", True,
    ),
    "an update": (f"ROOT %r = f32[4,8] {_UPDATE}{_CONFIG}", True),
    "an update of unknown place": (f"ROOT %r = f32[4,8] {_UPDATE}", False),
    "an update of what is computed": (
        "%n = f32[4,8] negate(%x)\n"
        f"  ROOT %r = f32[4,8] {_UPDATE.replace('%x', '%n')}{_CONFIG}", False,
    ),
    "an update with what is computed": (
        "%n = f32[1,8] negate(%u)\n"
        f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%n')}{_CONFIG}", False,
    ),
    "an update with a row": (
        f"%s = f32[1,8] {_SLICE}{_CONFIG}\n"
        f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%s')}{_CONFIG}", True,
    ),
    "an update with a row of unknown place": (
        f"%s = f32[1,8] {_SLICE}\n"
        f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%s')}{_CONFIG}", False,
    ),
    "an update with a static row": (
        "%s = f32[1,8] slice(%x), slice={[2:3], [0:8]}\n"
        f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%s')}{_CONFIG}", True,
    ),
    "an update with a column": (
        "%s = f32[4,1] slice(%x), slice={[0:4], [2:3]}\n"
        "  ROOT %r = f32[4,8] dynamic-update-slice(%x, %s, %i, %zero)" + _CONFIG, False,
    ),
    "an update with every other row": (
        "%s = f32[2,8] slice(%x), slice={[0:4:2], [0:8]}\n"
        "  ROOT %r = f32[4,8] dynamic-update-slice(%x, %s, %i, %zero)" + _CONFIG, False,
    ),
    "an update with three of every other": (
        "%s = f32[1,3] slice(%x), slice={[0:1], [0:6:2]}\n"
        "  ROOT %r = f32[4,8] dynamic-update-slice(%x, %s, %i, %zero)" + _CONFIG, False,
    ),
    "an update with one of a step": (
        "%s = f32[1,8] slice(%x), slice={[1:3:2], [0:8]}\n"
        f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%s')}{_CONFIG}", True,
    ),
    "an update with part of a row": (
        "%s = f32[1,3] slice(%x), slice={[1:2], [2:5]}\n"
        "  ROOT %r = f32[4,8] dynamic-update-slice(%x, %s, %i, %zero)" + _CONFIG, True,
    ),
    "two rows of three columns": (
        "%s = f32[2,3] slice(%x), slice={[1:3], [2:5]}\n"
        "  ROOT %r = f32[4,8] dynamic-update-slice(%x, %s, %i, %zero)" + _CONFIG, False,
    ),
    "a copy": ("ROOT %r = f32[4,8] copy(%x)", False),
    "a static row": ("ROOT %r = f32[1,8] slice(%x), slice={[2:3], [0:8]}", False),
}  # fmt: skip


def fusion(body: str, kind: str = "kLoop", config: str = "") -> hlo_passes.Instruction:
    shape = body.rpartition("ROOT %r = ")[2].split()[0]
    module = hlo_passes.parse(f"""HloModule m

%fused {{
{_HEAD}  {body}
}}

ENTRY %main {{
  %p = f32[4,8] parameter(0)
  %j = s32[] parameter(1)
  %v = f32[1,8] parameter(2)
  ROOT %f = {shape} fusion(%p, %j, %v), kind={kind}, calls=%fused{config}
}}
""")
    return module.entry.root


@pytest.mark.parametrize("case", BODIES)
def test_one_copy(case: str) -> None:
    body, expected = BODIES[case]
    assert is_slice_copy(fusion(body)) is expected
    assert not is_slice_copy(fusion(body, "kCustom"))


def test_only_fusions_are_copies() -> None:
    whole = fusion(f"ROOT %r = f32[4,8] {_UPDATE}{_CONFIG}")
    assert not is_slice_copy(whole.computation.parameters[0])


_CUSTOM = (
    ', backend_config={"fusion_backend_config":{"kind":"__custom_fusion",'
    '"custom_fusion_config":{"name":"%s"}}}'
)


@pytest.mark.parametrize(
    ("body", "name", "expected"),
    [
        ("ROOT %r = f32[4,8] copy(%x)", "dynamic_slice_fusion", True),
        ("ROOT %r = f32[4,8] copy(%x)", "address_computation", False),
        ("ROOT %r = f32[4,8] negate(%x)", "dynamic_slice_fusion", False),
        (
            f"%s = f32[1,8] {_SLICE}\n  %c = f32[1,8] copy(%s)\n"
            f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%c')}",
            "dynamic_slice_fusion", True,
        ),
        # What computes an offset is not what the fusion is about.
        (
            "%k = s32[] add(%i, %i)\n"
            f"  %s = f32[1,8] {_SLICE.replace('%i', '%k')}\n"
            "  ROOT %r = f32[1,8] copy(%s)", "dynamic_slice_fusion", True,
        ),
        (
            "%k = s32[] add(%i, %i)\n  %c = f32[1,8] copy(%u)\n"
            f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%c').replace('%i', '%k')}",
            "dynamic_slice_fusion", True,
        ),
        (
            "%n = f32[1,8] negate(%u)\n  %c = f32[1,8] copy(%n)\n"
            f"  ROOT %r = f32[4,8] {_UPDATE.replace('%u', '%c')}",
            "dynamic_slice_fusion", False,
        ),
        (f"ROOT %r = f32[1,8] {_SLICE}", "dynamic_slice_fusion", False),
    ],
)  # fmt: skip
def test_a_custom_fusion_around_a_copy(body: str, name: str, expected: bool) -> None:
    assert is_slice_copy(fusion(body, "kCustom", _CUSTOM % name)) is expected
    assert not is_slice_copy(fusion(body, "kCustom"))
