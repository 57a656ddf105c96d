"""Parts of a report's first line: what was priced on what, and what limits it.

priced_on("h100_sxm", "2x1x8", "2 hosts of 8 GPUs", "0.12")
beware(("XLA has no model for gb200", "no price for 3 operations"))
"""

from __future__ import annotations

from collections.abc import Sequence


def priced_on(target: str, topology: str, machine: str, xla: str) -> str:
    """'h100_sxm 2x1x8 (2 hosts of 8 GPUs), XLA 0.12'."""
    return f"{target} {topology} ({machine}), XLA {xla}"


def beware(remarks: Sequence[str]) -> str:
    """The end of the line, as in '; beware: no price for 3 operations'."""
    return f"; beware: {'; '.join(remarks)}" if remarks else ""
