"""XLA's HLO modules in pure Python: read, verify, rewrite, print.

module = hlo_passes.parse(text, filename="m.hlo")
hlo_passes.verify(module)
result = hlo_passes.Pipeline.parse("collective-permute-combiner").run(module)
print(module.to_text())
"""

# ruff: noqa: E402 - an interrupt during the imports below must find this done.
from hlo_passes.early_interrupt import end_quietly as _end_quietly

_end_quietly()

from hlo_passes.connections import connect as _connect
from hlo_passes.errors import (
    HloError,
    ParseError,
    PassError,
    PipelineSpecError,
    UnsupportedHloError,
    UsageError,
    VerificationError,
)
from hlo_passes.ir.computation import Computation
from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.module import Module
from hlo_passes.ir.shape_parser import parse_shape
from hlo_passes.ir.shapes import Layout, Shape, array_shape, tuple_shape
from hlo_passes.passes.framework.base import ComputationPass, Pass, PassContext, Report
from hlo_passes.passes.framework.pipeline import Pipeline, PipelineResult
from hlo_passes.pricing import Pricing
from hlo_passes.text.reader import parse
from hlo_passes.verify.verifier import verify

__all__ = [
    "Computation",
    "ComputationPass",
    "HloError",
    "Instruction",
    "Layout",
    "Module",
    "ParseError",
    "Pass",
    "PassContext",
    "PassError",
    "Pipeline",
    "PipelineResult",
    "PipelineSpecError",
    "Pricing",
    "Report",
    "Shape",
    "UnsupportedHloError",
    "UsageError",
    "VerificationError",
    "array_shape",
    "parse",
    "parse_shape",
    "tuple_shape",
    "verify",
]

_connect()
