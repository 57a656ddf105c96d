"""Lets a windowed loop scale its 8-bit operands itself.

    Before:  %x = f32[4,3] multiply(convert(%q), broadcast(%scale))
             while(tuple(%x, ...)):  collective-permute(%x)   dot(%x, %y)
    After:   while(tuple(%q, ..., %scale)):  collective-permute(%q)
                                     dot(multiply(convert(%q), broadcast(%scale)), ...)

A quarter of the bytes travels, and the product can be one of 8-bit numbers. The values
are the same if all devices have one scale: what is sent and what selects elements does
not round. The order of the text is up to the caller.

Source: openxla/xla `xla/backends/gpu/transforms/windowed_einsum_handler.cc`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.shapes import tuple_shape
from hlo_passes.passes.framework.base import Report
from hlo_passes.passes.loops.windowed_sums import append_to_state
from hlo_passes.passes.rewriting.cloning import clone_instruction, element_of

#: Types of operands for which the GPU has a product: one of them may be a wide e5m2.
_PRODUCTS: Final = frozenset(
    {
        ("f8e4m3fn", "f8e4m3fn"),
        ("f8e4m3fn", "f8e5m2"),
        ("f8e5m2", "f8e4m3fn"),
        ("f8e4m3fnuz", "f8e4m3fnuz"),
        ("f8e4m3fnuz", "f8e5m2fnuz"),
        ("f8e5m2fnuz", "f8e4m3fnuz"),
    }
)
_EIGHT_BITS: Final = frozenset(t for pair in _PRODUCTS for t in pair)
_WIDE: Final = frozenset({"bf16", "f16", "f32"})
#: What may be between the scaling and the loop.
_BETWEEN: Final = frozenset({"bitcast", "broadcast", "copy", "reshape", "transpose"})
#: The elements of the state that are multiplied, and how many a loop has in all.
_FACTORS: Final = (0, 1)
_STATE: Final = 5
#: Operands of a dynamic-update-slice of three dimensions.
_STORE: Final = 5


@dataclass(frozen=True, slots=True)
class Scaled:
    """A wide array that is an 8-bit one times, or divided by, a number.

    Attributes:
        narrow: the 8-bit array.
        scale: the number.
        opcode: `multiply` or `divide`.
        wide: the type of the result.
    """

    narrow: Instruction
    scale: Instruction
    opcode: str
    wide: str


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a loop's body does with its two factors.

    Attributes:
        elements: the factors.
        dots: the two products.
        slices: of the first factor, where the loop scatters.
        permutes: of the first factor, where it gathers; the second reads the first.
    """

    elements: tuple[Instruction, Instruction]
    dots: tuple[Instruction, Instruction]
    slices: tuple[Instruction, ...] = ()
    permutes: tuple[Instruction, ...] = ()


def scaled(instruction: Instruction) -> Scaled | None:
    """The form `convert(q) * broadcast(scale)`, either way round, or a quotient."""
    if instruction.opcode not in ("multiply", "divide"):
        return None
    left, right = instruction.operands
    if instruction.opcode == "multiply" and left.opcode == "broadcast":
        left, right = right, left
    if left.opcode != "convert" or right.opcode != "broadcast":
        return None
    (narrow,), (scale,) = left.operands, right.operands
    wide = instruction.shape.element_type
    return Scaled(narrow, scale, instruction.opcode, wide)


def is_of_eight_bits(form: Scaled) -> bool:
    """Whether an 8-bit array is scaled by one number, to a type of the usual ones."""
    return (
        form.scale.shape.is_scalar
        and form.narrow.shape.element_type in _EIGHT_BITS
        and form.wide in _WIDE
    )


def scale_again(form: Scaled, narrow: Instruction) -> Instruction:
    """Scale another 8-bit array of the same computation as the form does."""
    return _scaled_by(form, narrow, form.scale)[0]


def scale_in_loop(
    loop: Instruction, report: Report, is_same: Callable[[Instruction], bool]
) -> bool:
    """Let a loop scale its 8-bit factors; whether it does now.

    `is_same`: whether a scale is the same on all devices, so that what arrives may be
    scaled by the one that is there.
    """
    (state,) = loop.operands
    if state.opcode != "tuple" or len(state.operands) != _STATE:
        return False
    forms: list[Scaled] = []
    chains: list[list[Instruction]] = []
    for k in _FACTORS:
        factor, chain = state.operands[k], []
        while factor.opcode in _BETWEEN:
            chain.append(factor)
            (factor,) = factor.operands
        form = scaled(factor)
        if form is None:
            return False
        forms.append(form)
        chains.append(chain[::-1])
    types = tuple(form.narrow.shape.element_type for form in forms)
    body = loop.called_computations[0]
    parts = _parts(body)
    if types not in _PRODUCTS or not all(is_of_eight_bits(form) for form in forms):
        reason = "its factors are not 8-bit numbers times a scalar"
    elif state.user_count != 1:
        reason = "something else reads its start"
    elif loop.is_root or any(u.tuple_index_or_none in (None, 0, 1) for u in loop.users):
        reason = "something reads its factors after it"
    elif parts is None:
        reason = "its body uses them in another way"
    elif parts.permutes and not is_same(forms[0].scale):
        reason = "devices may scale what travels differently"
    else:
        _scale(loop, body, forms, chains, parts)
        report.count("loops-scaling")
        return True
    report.remark(f"not scaled in %{loop.name}: {reason}")
    return False


def _parts(body: Computation) -> _Parts | None:
    root = body.root
    if root.opcode != "tuple" or len(root.operands) != _STATE:
        return None
    parts = _gathering(root) or _scattering(root)
    if parts is None:
        return None
    # Nothing else reads what changes its type.
    allowed = {root, *parts.dots, *parts.slices, *parts.permutes}
    for instruction in (*parts.elements, *parts.permutes):
        if not allowed.issuperset(instruction.users):
            return None
    return parts


def _gathering(root: Instruction) -> _Parts | None:
    """The first factor travels twice; each product is stored."""
    second, right, stored = root.operands[:3]
    first = _operand(second, "collective-permute")
    left = _operand(first, "collective-permute")
    if first is None or left is None or not _are_factors(left, right):
        return None
    if stored.opcode != "dynamic-update-slice" or len(stored.operands) != _STORE:
        return None
    before, dot1 = stored.operands[:2]
    if before.opcode != "dynamic-update-slice":
        return None
    dot0 = before.operands[1]
    if dot0.opcode != "dot" or dot1.opcode != "dot":
        return None
    if dot0.operands != (left, right) or dot1.operands[1] is not right:
        return None
    return _Parts((left, right), (dot0, dot1), permutes=(first, second))


def _scattering(root: Instruction) -> _Parts | None:
    """Slices of the first factor are multiplied, and products added up on the way."""
    left, right, sum0, sent = root.operands[:4]
    sum1 = _operand(sent, "collective-permute")
    if sum1 is None or not _are_factors(left, right):
        return None
    dots = tuple(d for s in (sum0, sum1) for d in _product_of_slice(s)[:1])
    if len(dots) != len(_FACTORS) or any(d.operands[1] is not right for d in dots):
        return None
    slices = tuple(dot.operands[0] for dot in dots)
    return _Parts((left, right), (dots[0], dots[1]), slices=slices)


def _product_of_slice(total: Instruction) -> list[Instruction]:
    return [
        dot
        for dot in total.operands
        if total.opcode == "add"
        and dot.opcode == "dot"
        and dot.operands[0].opcode == "dynamic-slice"
    ]


def _operand(instruction: Instruction | None, opcode: str) -> Instruction | None:
    """What an instruction of that opcode reads."""
    if instruction is None or instruction.opcode != opcode:
        return None
    return instruction.operands[0]


def _are_factors(*elements: Instruction) -> bool:
    return all(
        element.opcode == "get-tuple-element"
        and element.operands[0].opcode == "parameter"
        and element.tuple_index == k
        for k, element in enumerate(elements)
    )


def _scale(
    loop: Instruction,
    body: Computation,
    forms: list[Scaled],
    chains: list[list[Instruction]],
    parts: _Parts,
) -> None:
    outside = loop.computation
    (state,) = loop.operands
    # The narrow factors, through what was between, and the scales go into the loop.
    narrow: list[Instruction] = []
    for form, chain in zip(forms, chains, strict=True):
        value = form.narrow
        for step in chain:
            copy = clone_instruction(step, outside, (value,))
            outside.set_shape(
                copy, step.shape.with_element_type(value.shape.element_type)
            )
            value = copy
        narrow.append(value)
    outside.set_operands(state, (*narrow, *state.operands[len(narrow) :]))
    for form in forms:
        append_to_state(loop, form.scale)
    # In the body each factor is scaled where it is multiplied or sliced.
    (parameter,) = body.parameters
    root = body.root
    results = list(root.operands)
    for k, form in enumerate(forms):
        element = parts.elements[k]
        factor = element_of(parameter, k)
        if results[k] is element:
            results[k] = factor
        scale = element_of(parameter, _STATE + k)
        results.append(scale)
        wide, spread = _scaled_by(form, factor, scale)
        for reader in (*parts.dots, *parts.slices):
            if reader.operands[k if reader.opcode == "dot" else 0] is element:
                body.replace_operand(reader, element, wide)
        if parts.permutes and k == 0:
            # What travels is narrow, and is scaled on arrival.
            first, second = (
                _narrowed(p, factor.shape.element_type) for p in parts.permutes
            )
            body.set_operands(first, (factor,))
            body.set_operands(second, (first,))
            arrived, _ = _scaled_by(form, first, scale, spread)
            body.set_operands(parts.dots[1], (arrived, *parts.dots[1].operands[1:]))
            results[0] = second
    body.set_operands(root, results)
    body.set_shape(root, tuple_shape([r.shape for r in results]))
    for instruction in (*reversed(parts.permutes), *parts.elements):
        body.remove(instruction)


def _narrowed(permute: Instruction, element_type: str) -> Instruction:
    """A copy that sends an array of another type."""
    copy = clone_instruction(permute, permute.computation, permute.operands)
    copy.computation.set_shape(copy, permute.shape.with_element_type(element_type))
    return copy


def _scaled_by(
    form: Scaled,
    narrow: Instruction,
    scale: Instruction,
    spread: Instruction | None = None,
) -> tuple[Instruction, Instruction]:
    """The scaled array, and the scale as an array."""
    computation = narrow.computation
    shape = narrow.shape.with_element_type(form.wide)
    wide = computation.new("convert", shape, (narrow,))
    if spread is None:
        spread = computation.new("broadcast", shape, (scale,), {"dimensions": "{}"})
    return computation.new(form.opcode, shape, (wide, spread)), spread
