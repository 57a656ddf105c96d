"""Which collectives XLA's CPU back end can run, and in which types they move."""

from __future__ import annotations

import itertools

import pytest

from hlo_passes.errors import UnsupportedHloError
from hlo_passes.runtime.plain.builder import PlainModule
from hlo_passes.runtime.plain.legalize import plain_module
from hlo_passes.text.reader import parse

_GROUPS = "replica_groups={{0,1}}"


def _plain(text: str) -> PlainModule:
    return plain_module(parse(f"HloModule m, replica_count=2\n\n{text}"))


def _all_reduce(opcode: str, *types: str, body: str = "") -> str:
    """An all-reduce of one array per type, by an opcode or another body."""
    kind = types[0]
    body = body or f"  ROOT %r = {kind}[] {opcode}(%a, %b)\n"
    arrays = [f"{t}[4]{{0}}" for t in types]
    shape = arrays[0] if len(types) == 1 else f"({', '.join(arrays)})"
    parameters = "".join(
        f"  %p{k} = {array} parameter({k})\n" for k, array in enumerate(arrays)
    )
    operands = ", ".join(f"%p{k}" for k in range(len(types)))
    return (
        f"%f {{\n  %a = {kind}[] parameter(0)\n  %b = {kind}[] parameter(1)\n{body}}}\n\n"
        f"ENTRY %e {{\n{parameters}"
        f"  ROOT %s = {shape} all-reduce({operands}), {_GROUPS}, to_apply=%f\n}}\n"
    )


#: What the CPU back end reduces: arithmetic, for pred also logic; no order of complex
#: numbers; nothing narrower than a byte, and no f8.
_ARITHMETIC = {"add", "multiply", "minimum", "maximum"}
_ALLOWED = {
    "pred": _ARITHMETIC | {"and", "or"},
    "f32": _ARITHMETIC, "f16": _ARITHMETIC, "bf16": _ARITHMETIC, "f64": _ARITHMETIC,
    "s8": _ARITHMETIC, "u8": _ARITHMETIC, "s32": _ARITHMETIC, "u64": _ARITHMETIC,
    "c64": {"add", "multiply"}, "c128": {"add", "multiply"},
    "s4": set(), "u4": set(), "f4e2m1fn": set(), "f8e5m2": set(), "f8e4m3fn": set(),
}  # fmt: skip


@pytest.mark.parametrize(
    ("element_type", "opcode"),
    [
        *itertools.product(
            _ALLOWED, ("add", "multiply", "minimum", "maximum", "and", "or", "subtract")
        )
    ],
)
def test_which_reductions_run(element_type: str, opcode: str) -> None:
    text = _all_reduce(opcode, element_type)
    if opcode in _ALLOWED[element_type]:
        (one,) = _plain(text).collectives
        assert one.reduction == opcode
        # bf16 is reduced as f32.
        moved = "f32" if element_type == "bf16" else element_type
        assert one.element_type == moved
    else:
        with pytest.raises(UnsupportedHloError):
            _plain(text)


@pytest.mark.parametrize(
    ("body", "is_plain"),
    [
        ("  ROOT %r = f32[] add(%b, %a)\n", True),
        ("  ROOT %r = f32[] add(%a, %a)\n", False),
        ("  %n = f32[] negate(%b)\n  ROOT %r = f32[] add(%a, %n)\n", False),
        ("  %n = f32[] copy(%b)\n  ROOT %r = f32[] add(%a, %n)\n", True),
        (
            "  %c = bf16[] convert(%a)\n  %d = bf16[] convert(%b)\n"
            "  %t = bf16[] add(%c, %d)\n  ROOT %r = f32[] convert(%t)\n",
            True,
        ),
        ("  %t = f32[] add(%a, %b)\n  ROOT %r = f32[] negate(%t)\n", False),
    ],
)
def test_a_reduction_is_one_operation_on_both_parameters(
    body: str, is_plain: bool
) -> None:
    text = _all_reduce("", "f32", body=body)
    if is_plain:
        assert [c.reduction for c in _plain(text).collectives] == ["add"]
    else:
        with pytest.raises(UnsupportedHloError, match="reduces across devices by"):
            _plain(text)


def test_arrays_of_several_types_are_not_reduced_together() -> None:
    with pytest.raises(UnsupportedHloError, match="several types"):
        _plain(_all_reduce("add", "f32", "s32"))
    assert len(_plain(_all_reduce("add", "f32", "f32")).collectives) == 1


@pytest.mark.parametrize(
    ("element_type", "carrier"),
    [
        ("pred", "pred"), ("s8", "s8"), ("u8", "u8"), ("f16", "f16"), ("bf16", "bf16"),
        ("s16", "s16"), ("f32", "f32"), ("f64", "f64"), ("c64", "c64"),
        ("f8e5m2", "u8"), ("f8e4m3fn", "u8"), ("s4", "s8"), ("u4", "u8"), ("s2", "s8"),
        ("u2", "u8"), ("f4e2m1fn", "f32"),
    ],
)  # fmt: skip
def test_in_which_type_an_array_moves(element_type: str, carrier: str) -> None:
    (one,) = _plain(
        f"ENTRY %e {{\n  %p = {element_type}[4]{{0}} parameter(0)\n"
        f"  ROOT %g = {element_type}[8]{{0}} all-gather(%p), {_GROUPS}, "
        "dimensions={0}\n}\n"
    ).collectives
    assert one.element_type == carrier


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_exchange_has_a_tuple_however_few_it_has(count: int) -> None:
    """One array alone is an exchange that XLA's CPU back end knows as a tuple."""
    arrays = ", ".join(["f32[4]{0}"] * count)
    operands = ", ".join(["%p"] * count)
    groups = ",".join(map(str, range(count)))
    plain = plain_module(
        parse(
            f"HloModule m, replica_count={count}\n\nENTRY %e {{\n"
            "  %p = f32[4]{0} parameter(0)\n"
            f"  ROOT %x = ({arrays}) all-to-all({operands}), "
            f"replica_groups={{{{{groups}}}}}\n}}\n"
        )
    )
    calls = [
        i
        for c in plain.module.computations
        for i in c.instructions
        if i.opcode == "custom-call"
    ]
    assert [c.shape.is_tuple for c in calls] == [True]
    assert len(calls[0].shape.elements) == count


@pytest.mark.parametrize(
    ("count", "parts"), [(1, [1]), (2, [2]), (3, [3]), (4, [3, 1]), (5, [5]), (8, [8])]
)
def test_four_arrays_are_permuted_in_two_parts(count: int, parts: list[int]) -> None:
    """A permute of four is taken by jaxlib 0.10.2 for one into a part of an array."""
    shape = f"({', '.join(['f32[4]{0}'] * count)})" if count > 1 else "f32[4]{0}"
    lines = "".join(f"  %p{k} = f32[4]{{0}} parameter({k})\n" for k in range(count))
    operands = ", ".join(f"%p{k}" for k in range(count))
    plain = _plain(
        f"ENTRY %e {{\n{lines}  ROOT %x = {shape} collective-permute({operands}), "
        "source_target_pairs={{0,1},{1,0}}\n}\n"
    )
    calls = [
        i
        for c in plain.module.computations
        for i in c.instructions
        if i.opcode == "custom-call"
    ]
    assert [len(call.operands) for call in calls] == parts
    names = [operand.name for call in calls for operand in call.operands]
    assert len(set(names)) == count
