"""XLA's HLO modules in pure Python: read, verify, rewrite, print.

module = hlo_passes.parse(text, filename="m.hlo")
print(module.to_text())
"""

from hlo_passes.errors import HloError, ParseError, UnsupportedHloError, UsageError
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shapes import Layout, Shape, array_shape, tuple_shape
from hlo_passes.text.reader import parse
from hlo_passes.text.shape_parser import parse_shape

__all__ = [
    "Computation",
    "HloError",
    "Instruction",
    "Layout",
    "Module",
    "ParseError",
    "Shape",
    "UnsupportedHloError",
    "UsageError",
    "array_shape",
    "parse",
    "parse_shape",
    "tuple_shape",
]
