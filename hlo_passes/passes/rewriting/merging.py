"""The attributes that a combined instruction inherits from its members.

    op_name      "f/a", "f/b"      ->  "f/(a:b)"
    source       a.py:3, b.py:7    ->  source_file="a.py:3,b.py:7"
    frontend     {k="1"}, {k="0"}  ->  {k="0,1"}

Source: openxla/xla `xla/service/collective_combiner_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_passes.ir.instruction import Instruction
from hlo_passes.ir.metadata import FrontendAttributes, Metadata


def merged_metadata(members: Sequence[Instruction]) -> Metadata:
    """The first member's metadata, with the places and names of all in batch order."""
    all_metadata = [m.metadata for m in members]
    merged = all_metadata[0]
    if len(members) == 1:
        return merged
    places = [f"{m.source_file}:{m.source_line}" for m in all_metadata if m.source_file]
    names = [m.op_name for m in all_metadata if m.op_name]
    if places:
        merged = merged.replace(
            source_file=",".join(places), source_line=0, source_end_line=0
        )
    if names:
        merged = merged.replace(op_name=merged_op_name(names))
    return merged


def merged_op_name(names: Sequence[str]) -> str:
    """`prefix/(a:b:c)`; the name itself if all are equal."""
    if all(name == names[0] for name in names):
        return names[0]
    # Characters, not path components: the prefix is then cut back to a '/'.
    low, high = min(names), max(names)
    shared = next(
        (k for k, (a, b) in enumerate(zip(low, high, strict=False)) if a != b),
        min(len(low), len(high)),
    )
    prefix = low[: low.rfind("/", 0, shared) + 1]
    return f"{prefix}({':'.join(name[len(prefix) :] for name in names)})"


def merged_frontend_attributes(members: Sequence[Instruction]) -> FrontendAttributes:
    """All names; the distinct values of each, sorted as bytes and joined by commas."""
    values: dict[str, set[str]] = {}
    for member in members:
        if "frontend_attributes" in member.attributes:
            for name, value in member.frontend_attributes.items():
                values.setdefault(name, set()).add(value)
    return FrontendAttributes.of(
        {
            name: ",".join(sorted(found, key=str.encode))
            for name, found in values.items()
        }
    )


def merged_attributes(members: Sequence[Instruction]) -> dict[str, str]:
    """Texts of the two merged attributes, in print order; empty ones are left out."""
    found: dict[str, str] = {}
    frontend = merged_frontend_attributes(members)
    if frontend:
        found["frontend_attributes"] = frontend.to_text()
    metadata = merged_metadata(members).to_text()
    if metadata:
        found["metadata"] = metadata
    return found
