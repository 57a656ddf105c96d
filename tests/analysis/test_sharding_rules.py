"""Which dimensions belong together, checked by computing parts and putting them together.

Where operands are divided over an index, each device computes its part of the result of
its own parts alone; NumPy says that the parts are those of the whole result.
"""

from __future__ import annotations

import numpy as np
import pytest

import hlo_passes
from hlo_passes.analysis.sharding_rules import handed_over, rule_of
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.sharding import TileSharding, parse_sharding
from hlo_passes.ir.sharding_splits import Splits, splits_of

HEADER = "HloModule rules, num_partitions=4\n\nENTRY %main {\n"


def instruction(lines: str) -> Instruction:
    """The root of a computation."""
    return hlo_passes.parse(f"{HEADER}{lines}\n}}\n").entry.root


def splits(text: str, rank: int) -> Splits:
    sharding = parse_sharding(text)
    assert isinstance(sharding, TileSharding)
    found = splits_of(sharding, rank, 4)
    assert found is not None
    return found


def suggested(lines: str, operand: int, text: str) -> str:
    """What a division of one operand suggests for the result."""
    root = instruction(lines)
    rule = rule_of(root)
    assert rule is not None
    source = splits(text, root.operands[operand].shape.rank)
    have, want = rule.operands[operand], rule.results[0]
    found = handed_over(source, have, want, rule, mirror=True)
    return Splits(4, tuple(found)).to_sharding().to_text()


ROWS = "{devices=[4,1]<=[4]}"
COLUMNS = "{devices=[1,4]<=[4]}"
DOT = """\
  %a = f32[8,16] parameter(0)
  %b = f32[16,12] parameter(1)
  ROOT %d = f32[8,12] dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""


@pytest.mark.parametrize(
    ("lines", "operand", "given", "result"),
    [
        (DOT, 0, ROWS, ROWS),
        (DOT, 0, COLUMNS, "{replicated}"),
        (DOT, 1, COLUMNS, COLUMNS),
        (
            "  %x = f32[24] parameter(0)\n  ROOT %r = f32[4,6] reshape(%x)",
            0, "{devices=[4]<=[4]}", ROWS,
        ),
        (
            "  %x = f32[8,6] parameter(0)\n  ROOT %r = f32[2,24] reshape(%x)",
            0, ROWS, "{devices=[2,2]<=[4]}",
        ),
        (
            "  %x = f32[2,24] parameter(0)\n  ROOT %r = f32[8,6] reshape(%x)",
            0, "{devices=[2,2]<=[2,2]T(1,0)}", "{devices=[4,1]<=[2,2]T(1,0)}",
        ),
        (
            "  %x = f32[4,6] parameter(0)\n  ROOT %r = f32[24] reshape(%x)",
            0, COLUMNS, "{replicated}",
        ),
        (
            "  %x = f32[8,16] parameter(0)\n"
            "  ROOT %r = f32[8,16] reverse(%x), dimensions={1}",
            0, COLUMNS, "{devices=[1,4]3,2,1,0}",
        ),
        (
            "  %x = f32[8,10] parameter(0)\n"
            "  ROOT %r = f32[8,10] reverse(%x), dimensions={1}",
            0, COLUMNS, "{replicated}",
        ),
        (
            "  %x = f32[8,16] parameter(0)\n  %i = s32[] constant(0)\n"
            "  ROOT %r = f32[8,4] dynamic-slice(%x, %i, %i), dynamic_slice_sizes={8,4}",
            0, COLUMNS, "{replicated}",
        ),
        (
            "  %x = f32[8,16] parameter(0)\n  %i = s32[] constant(0)\n"
            "  ROOT %r = f32[8,4] dynamic-slice(%x, %i, %i), dynamic_slice_sizes={8,4}",
            0, ROWS, ROWS,
        ),
    ],
)  # fmt: skip
def test_what_operands_suggest(
    lines: str, operand: int, given: str, result: str
) -> None:
    assert suggested(lines, operand, given) == result


def test_other_operands_know_a_summed_index() -> None:
    rule = rule_of(instruction(DOT))
    assert rule is not None
    found = handed_over(
        splits(COLUMNS, 2), rule.operands[0], rule.operands[1], rule, mirror=False
    )
    assert Splits(4, tuple(found)).to_sharding().to_text() == ROWS


def test_each_device_has_what_its_part_of_a_product_needs() -> None:
    a = np.arange(8 * 16).reshape(8, 16)
    b = np.arange(16 * 12).reshape(16, 12)
    left, right = (
        splits("{devices=[2,1,2]<=[4] last_tile_dim_replicate}", 2),
        splits("{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", 2),
    )
    rule = rule_of(instruction(DOT))
    assert rule is not None
    rows = handed_over(left, rule.operands[0], rule.results[0], rule, mirror=True)
    columns = handed_over(right, rule.operands[1], rule.results[0], rule, mirror=True)
    result = Splits(4, (rows[0], columns[1]))
    assert result.is_even
    for device in range(4):
        mine = a[left.block_of(device, a.shape)] @ b[right.block_of(device, b.shape)]
        assert np.array_equal(mine, (a @ b)[result.block_of(device, (8, 12))])


def test_lookups_hand_on_rows_and_whole_columns() -> None:
    lines = (
        "  %table = f32[100,32] parameter(0)\n  %where = s32[64,1] parameter(1)\n"
        "  ROOT %g = f32[64,32] gather(%table, %where), offset_dims={1}, "
        "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,32}"
    )
    assert suggested(lines, 0, COLUMNS) == COLUMNS
    assert suggested(lines, 0, ROWS) == "{replicated}"
    assert suggested(lines, 1, ROWS) == ROWS


def test_no_rule_for_tuples_and_other_opcodes() -> None:
    array = "  %x = f32[8,8] parameter(0)\n"
    pair = "  %x = (f32[8], f32[8]) parameter(0)\n"
    for lines in (
        f"{array}  ROOT %c = f32[8,8] cholesky(%x), lower=true",
        f"{pair}  ROOT %g = f32[8] get-tuple-element(%x), index=0",
    ):
        assert rule_of(instruction(lines)) is None
