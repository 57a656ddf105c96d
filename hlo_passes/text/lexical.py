"""Words and names: the smallest pieces of the grammar."""

from __future__ import annotations

import re
from typing import Final

from hlo_passes.ir.shapes import PRIMITIVE_TYPES

#: A name with or without `%`; group 1 is the name alone.
NAME: Final = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*)")
WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

#: Words that are names only behind a `%`.
RESERVED_WORDS: Final = PRIMITIVE_TYPES.union(
    (
        "true false inf nan HloModule ENTRY ROOT FileNames FunctionNames "
        "FileLocations StackFrames maximal replicated manual unknown unreduced "
        "last_tile_dim_replicate shard_as shard_like"
    ).split()
)
