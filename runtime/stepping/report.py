"""What `hlo-passes run --sync` prints beside the results.

steps: 12, values looked at: 40
same on the devices that must agree: all 6 such values
38 of 40 values are in other.hlo too, with the same name; 3 differ, first
  m.hlo:7: %b = f32[8] multiply, model.py:12, iteration 3 of %while
  other.hlo:7 has 0.5, not 0.25, on device 3 at [0]
  its operands are the same: look at the instruction itself
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text_lines(
    steps: Mapping[str, Any], name: str, other_name: str | None
) -> list[str]:
    """What `run --sync` prints beside the results."""
    lines = [f"steps: {steps['programs']}, values looked at: {steps['values']}"]
    apart = steps["not_the_same"]
    if apart:
        first = apart[0]
        one, two = first["devices"]
        lines += [
            f"beware: {len(apart)} of {steps['must_be_same']} values that must be the "
            "same on several devices are not, first",
            f"  {_where(first, name)}: devices {one} and {two} have different values",
        ]
    elif steps["must_be_same"]:
        lines.append(
            f"same on the devices that must agree: all {steps['must_be_same']} such "
            "values"
        )
    if other_name is None:
        return lines
    first = steps["first_difference"]
    compared = f"{steps['compared']} of {steps['values']} values are in {other_name}"
    if first is None:
        return [*lines, f"{compared} too, with the same name; none differs"]
    lines += [
        f"{compared} too, with the same name; {steps['different']} differ, first",
        f"  {_where(first, name)}",
        f"  {other_name}:{first['other_line'] or '?'} has {first['there']}, not "
        f"{first['here']}, on device {first['device']} at {first['index']}",
    ]
    operands = first["operands"]
    differing = [f"%{o}" for o, verdict in operands.items() if verdict == "differs"]
    unknown = [f"%{o}" for o, verdict in operands.items() if not verdict]
    if differing:
        lines.append(f"  operands that differ as well: {', '.join(differing)}")
    elif unknown:
        lines.append(f"  operands that were not compared: {', '.join(unknown)}")
    elif operands:
        lines.append("  its operands are the same: look at the instruction itself")
    return lines


def _where(row: Mapping[str, Any], name: str) -> str:
    """'m.hlo:7: %b = f32[8] all-reduce, train.py:12, iteration 3 of %while'."""
    text = f"{name}:{row['line'] or '?'}: %{row['name']} = {row['shape']} "
    text += row["opcode"]
    if row["source"]:
        text += f", {row['source']['file']}:{row['source']['line']}"
    elif row["op_name"]:
        text += f", {row['op_name']}"
    for each in row["iterations"]:
        text += f", iteration {each['iteration']} of %{each['name']}"
    return text
