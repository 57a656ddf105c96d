"""The arguments of a command that name a program to compile.

FILE.py:FUNCTION | MODULE:FUNCTION | FILE.mlir    [--args=NAME | --args='f32[8],s32[]']
"""

from __future__ import annotations

import argparse


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the program, and the arguments of a function that is jitted itself."""
    parser.add_argument(
        "function", metavar="PROGRAM",
        help="FILE.py:FUNCTION or MODULE:FUNCTION, where FUNCTION(devices) returns "
        "(jitted function, arguments) or is jitted itself, with --args; or FILE.mlir, "
        "StableHLO as jitted.lower(...).as_text() gives it",
    )  # fmt: skip
    parser.add_argument(
        "--args", default="", metavar="ARGS",
        help="what a jitted FUNCTION is called with: the NAME of a function (with the "
        "devices as its parameter, or none) or of a tuple in the same file, or shapes "
        "as in 'f32[8,128],s32[]' or '{w: f32[8,8]},(f32[8],None)'",
    )  # fmt: skip
