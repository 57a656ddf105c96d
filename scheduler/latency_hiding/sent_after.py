"""Which of two dones comes from a start that sends what is computed from the other's.

    %s1 = permute-start(%a)       %b = add(%a, %c)       %s2 = permute-start(%b)

The done of %s2 comes after that of %s1: %b is computed from %a, which %s1 sends. What
is computed counts through any number of instructions. A producer that both starts share
says nothing, nor does a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class SentAfter:
    """The relation, asked pair by pair.

    Attributes:
        speaks: whether it holds for any pair.
    """

    def __init__(
        self,
        preds: Sequence[Sequence[int]],
        starts: Mapping[int, int],
        given: bytearray,
    ) -> None:
        """Find out which starts can be in the relation at all.

        Args:
            preds: predecessors by node.
            starts: by done.
            given: whether a node is a parameter, by node.
        """
        self._preds, self._starts, self._given = preds, starts, given
        self._known: dict[tuple[int, int], bool] = {}
        sent = {p for s in starts.values() for p in preds[s] if not given[p]}
        # A start can be later only if what it sends is below something that is sent.
        below = bytearray(len(preds))
        work = [n for n, near in enumerate(preds) if any(p in sent for p in near)]
        users: dict[int, list[int]] = {}
        for n, near in enumerate(preds):
            for p in near:
                users.setdefault(p, []).append(n)
        while work:
            n = work.pop()
            if not below[n]:
                below[n] = 1
                work += users.get(n, ())
        self._below = below
        self.speaks = any(any(below[p] for p in preds[s]) for s in starts.values())

    def compare(self, a: int, b: int) -> int:
        """1 if done `a` comes after `b`, -1 for the opposite, 0 for neither."""
        one, other = self._starts.get(a), self._starts.get(b)
        if one is None or other is None:
            return 0
        return self._is_after(one, other) - self._is_after(other, one)

    def _is_after(self, start: int, other: int) -> bool:
        """Whether a start sends what is computed from what another sends."""
        key = start, other
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._find(start, other)
        return known

    def _find(self, start: int, other: int) -> bool:
        own = self._preds[start]
        wanted = {p for p in self._preds[other] if not self._given[p] and p not in own}
        if not wanted:
            return False
        # Walk upwards, only through what is below something that is sent.
        seen = set(own)
        work = [p for p in own if self._below[p]]
        while work:
            for p in self._preds[work.pop()]:
                if p in wanted:
                    return True
                if p not in seen:
                    seen.add(p)
                    if self._below[p]:
                        work.append(p)
        return False
