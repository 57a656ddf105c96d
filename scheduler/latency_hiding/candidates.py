"""The list of candidates, which NumPy sees as an array too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

#: Nodes, or numbers by node.
Array = npt.NDArray[np.int64]


class Candidates(list[int]):
    """Nodes in the order of a scan; that order decides between equals.

    Only `add` and `take` change it, so that `nodes` always agrees.
    """

    __slots__ = ("_class_of", "_classes", "_nodes", "_slots")

    def __init__(self, nodes: Iterable[int] = ()) -> None:
        """These, in this order."""
        super().__init__(nodes)
        self._nodes = np.zeros(max(64, 2 * len(self)), np.int64)
        self._nodes[: len(self)] = self
        self._slots = {n: slot for slot, n in enumerate(self)}
        self._class_of: Sequence[int] | None = None
        self._classes = self._nodes

    @property
    def nodes(self) -> Array:
        """The nodes, as a view that later changes invalidate."""
        return self._nodes[: len(self)]

    def classes(self, of: Sequence[int]) -> Array:
        """Classes of the nodes, as such a view; kept up to date once asked for.

        Args:
            of: class by node, always the same sequence.
        """
        if of is not self._class_of:
            self._class_of = of
            self._classes = np.zeros_like(self._nodes)
            self._classes[: len(self)] = [of[n] for n in self]
        return self._classes[: len(self)]

    def slot(self, n: int) -> int:
        """Where a candidate is."""
        return self._slots[n]

    def among(self, nodes: Iterable[int]) -> list[int]:
        """Those of some nodes that are candidates, in list order."""
        slots = self._slots
        return sorted((n for n in nodes if n in slots), key=slots.__getitem__)

    def add(self, n: int) -> None:
        """Append a candidate."""
        slot = len(self)
        if slot == len(self._nodes):
            more = np.zeros_like(self._nodes)
            self._nodes = np.concatenate((self._nodes, more))
            self._classes = np.concatenate((self._classes, more))
        self._nodes[slot] = n
        self._slots[n] = slot
        if self._class_of is not None:
            self._classes[slot] = self._class_of[n]
        self.append(n)

    def take(self, slot: int) -> int:
        """Remove the candidate in a slot; the last one takes its place."""
        n = self[slot]
        last = self.pop()
        del self._slots[n]
        if slot < len(self):
            self[slot] = self._nodes[slot] = last
            self._slots[last] = slot
            if self._class_of is not None:
                self._classes[slot] = self._class_of[last]
        return n
