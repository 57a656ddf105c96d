"""StableHLO is read or refused, however it is nested."""

from __future__ import annotations

import pytest

from hlo_passes import ParseError
from hlo_passes.runtime.stablehlo import MAXIMUM_NESTING, read_module

MODULE = """module @m {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    return %a : tensor<4xf32>
  }
}
"""


@pytest.mark.parametrize("brackets", ["()", "[]", "{}", "<>"])
def test_brackets_that_would_end_the_process_are_refused(brackets: str) -> None:
    nested = brackets[0] * 30_000 + "f32" + brackets[1] * 30_000
    text = MODULE.replace("%a: tensor<4xf32>)", f"%a: {nested})")
    with pytest.raises(ParseError, match=r"m.mlir:2:\d+: error\[P011\]: brackets"):
        read_module(text.encode(), "m.mlir")


def test_brackets_in_strings_and_comments_do_not_count() -> None:
    many = "(" * (MAXIMUM_NESTING + 1)
    text = MODULE.replace("@m {", f'@m attributes {{mhlo.a = "{many}\\22{many}"}} {{')
    text = f"// {many}\n{text}" + "// ->\n" * MAXIMUM_NESTING
    assert read_module(text.encode(), "m.mlir").entry.parameters


def test_arrows_close_nothing() -> None:
    types = "(" + ", ".join(["() -> ()"] * MAXIMUM_NESTING) + ") -> ()"
    inner = "(" * (MAXIMUM_NESTING - 1) + "f32" + ")" * (MAXIMUM_NESTING - 1)
    for text, code in ((f"{types} {inner}", "P042"), (f"{types} ({inner}(", "P042")):
        with pytest.raises(ParseError, match=code):
            read_module(text.encode(), "m.mlir")
    with pytest.raises(ParseError, match="P011"):
        read_module(f"{types} ((({inner}".encode(), "m.mlir")


def test_a_result_beyond_all_memory_is_refused() -> None:
    """MLIR's parser would make room for two thousand million results."""
    text = MODULE.replace("return %a", "return %a#2147483648")
    with pytest.raises(ParseError, match=r"m.mlir:3:12: error\[P042\]: no operation"):
        read_module(text.encode(), "m.mlir")
    quoted = MODULE.replace("@m {", '@m attributes {mhlo.a = "%a#2147483648"} {')
    assert read_module(quoted.encode(), "m.mlir").entry.parameters


def test_bytes_that_are_no_text_are_refused() -> None:
    """A message of jaxlib that quotes them would end the process."""
    start, end = MODULE.encode().split(b"f32", 1)
    line = start.count(b"\n") + 1
    with pytest.raises(ParseError, match=rf"m.mlir:{line}:.*error\[P040\]"):
        read_module(start + b"\xa0" + end, "m.mlir")
