"""Collectives of equal layers taken together, in order of what they cost a step.

    32 x params['layers'][*]['mlp']['up']  all-gather of 112 MiB, 41.0 ms exposed

A group holds collectives of one kind and size whose names in the user's program differ
only in the number of a layer. One that has no such name is a group by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hlo_passes.analysis.layer_names import without_layers
from hlo_passes.scheduler.simulation.timeline_data import CollectiveRow
from hlo_passes.scheduler.sums import sequential_sum


@dataclass(frozen=True, slots=True)
class CollectiveGroup:
    """Collectives that do the same for equal layers.

    Attributes:
        label: what they transfer, '*' for the number of the layer if there are several;
            '' if unknown.
        rows: most exposed first, at least one.
    """

    label: str
    rows: tuple[CollectiveRow, ...]

    @property
    def worst(self) -> CollectiveRow:
        """The one that costs the step most."""
        return self.rows[0]

    @property
    def count(self) -> float:
        """How often a step runs one of them, loops multiplied."""
        return sequential_sum(row.executions for row in self.rows)

    @property
    def total_exposed_us(self) -> float:
        """Their exposure in the whole step."""
        return sequential_sum(row.total_exposed_us for row in self.rows)

    @property
    def overlap(self) -> str:
        """Their class if it is one, else how many there are of each."""
        counts = Counter(row.overlap for row in self.rows)
        if len(counts) == 1:
            return self.worst.overlap
        return ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))

    def to_json(self) -> dict[str, Any]:
        """The entry of `simulate --json`."""
        return {
            "label": self.label,
            "opcode": self.worst.opcode,
            "bytes": self.worst.bytes,
            "count": self.count,
            "total_exposed_us": self.total_exposed_us,
            "source": self.worst.place.to_json()["source"],
            "collectives": [row.name for row in self.rows],
        }


def groups_of(rows: Iterable[CollectiveRow]) -> list[CollectiveGroup]:
    """Groups of all rows, most exposed first; of equal ones the first in the text."""
    rows = list(rows)
    labels = without_layers(row.place.label for row in rows)
    members: dict[tuple[object, ...], list[CollectiveRow]] = {}
    for place, row in enumerate(rows):
        label = labels[row.place.label]
        key = (label, row.opcode, row.bytes) if label else (place,)
        members.setdefault(key, []).append(row)
    groups = [
        CollectiveGroup(
            labels[found[0].place.label] if len(found) > 1 else found[0].place.label,
            tuple(sorted(found, key=lambda row: -row.total_exposed_us)),
        )
        for found in members.values()
    ]
    return sorted(groups, key=lambda group: -group.total_exposed_us)
