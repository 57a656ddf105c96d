"""An order that needs too much memory, changed until it fits.

    %s2 = all-gather-start     one gather more than fits: it goes below the peak,
    %x  = fusion    <- peak    or what ends a buffer comes above it
    %d1 = all-gather-done

In each turn the cap is just below the present peak, so that only moves that lower the
peak can touch it. All other moves are free, as in any round of the search.
"""

from __future__ import annotations

import random
from typing import Final

from hlo_passes.scheduler.improver.annealing import THRESHOLDS, Budget
from hlo_passes.scheduler.improver.moves import Moves
from hlo_passes.scheduler.improver.window import Window

#: Moves of a turn; then the peak is counted again.
_TURN: Final = 128
#: The search ends after so many turns that do not lower the peak.
_IDLE_TURNS: Final = 16
#: The temperature of a turn after one that did not.
_WARMING: Final = 2.0
#: Share of the moves that go across the peak; the rest are those of the search.
_ACROSS: Final = 0.7


def squeeze(
    window: Window, *, moves: int, seed: int, temperature_us: float, budget: Budget
) -> bool:
    """Change the window's order until it is within its cap; whether that worked.

    Args:
        window: with an order within the limits.
        moves: to be drawn at most.
        seed: of the random numbers.
        temperature_us: by how much a move may lengthen the step, more or less; it
            rises as long as the peak stays.
        budget: of the run.
    """
    cap = window.cap_bytes
    draw = random.Random(seed).random
    proposer = Moves(window, draw)
    least, idle, heat = window.peak_bytes, 0, temperature_us
    top, is_exposed = 0, False
    for k in range(moves):
        if k % _TURN == 0:
            window.set_order(list(window.order))
            lower = k == 0 or window.peak_bytes < least
            idle, heat = (0, temperature_us) if lower else (idle + 1, heat * _WARMING)
            least = min(least, window.peak_bytes)
            if window.peak_bytes <= cap or idle > _IDLE_TURNS or budget.look():
                break
            window.cap_bytes = window.peak_bytes - 1
            top = max(range(len(window.order)), key=window.usage.__getitem__)
            is_exposed = proposer.look()
        # The moves of the search are about pairs that are exposed.
        if not is_exposed or draw() < _ACROSS:
            move = proposer.propose_across(top)
        else:
            move = proposer.propose()
        if move is None:
            continue
        budget.tried += 1
        threshold = heat * THRESHOLDS[int(draw() * len(THRESHOLDS))]
        budget.taken += window.try_window(move[0], move[1], threshold)
    window.cap_bytes = cap
    window.set_order(list(window.order))
    return window.peak_bytes <= cap
