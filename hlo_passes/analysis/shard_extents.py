"""How many rows each device has of an array that does not divide among devices.

    9 rows on 4 devices: each has 3, of which 3, 3, 3, 0 are rows of the array
    5 rows on 4 devices: each has 2, of which 2, 2, 1, 0 are

SPMD programs give every device an array of one shape, ceil(rows / devices) rows long.
What it holds after the array's own rows is padding, whose value nobody may rely on.
Whoever gathers such parts cuts the padding off again:

    %g = f32[12] all-gather(%part), dimensions={0}
    %a = f32[9] slice(%g), slice={[0:9]}                  9 rows of %g are read
"""

from __future__ import annotations

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.windows import parse_slice


def shard_rows(rows: int, devices: int) -> int:
    """Rows that each device holds of an array, padding included."""
    return -(-rows // devices)


def shard_extent(rows: int, devices: int, position: int) -> int:
    """Rows of an array that a device holds, without padding.

    Args:
        rows: of the whole array.
        devices: that share it, at least one.
        position: of the device among them.
    """
    each = shard_rows(rows, devices)
    return min(max(rows - position * each, 0), each)


def rows_read(value: Instruction, dimension: int) -> int:
    """Rows of an array, from its first one, after which nobody reads any."""
    rows = value.shape.dimensions[dimension]
    users = value.users
    if value.is_root or not users or any(u.opcode != "slice" for u in users):
        return rows
    ranges = (parse_slice(user.attributes["slice"]).dimensions for user in users)
    return max(each[dimension][1] for each in ranges)
