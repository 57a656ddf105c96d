"""One round: random moves, taken if they help, or by chance if they hardly hurt.

    change of the step <= temperature x a random threshold      taken
    temperature: 64 steps from T0 down to T0 / 1000

The budget is a number of moves. Nothing in the loop depends on a clock (unless a
deadline is given), on the order of a set, or on a C library's `exp`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_passes.scheduler.improver.moves import Moves
from hlo_passes.scheduler.improver.window import Window

#: Steps of the temperature in a round, and the factor of each: 0.001 ** (1 / 64).
_STEPS: Final = 64
_COOLING: Final = 0.897687
#: -ln of (k + 0.5) / 4096, rounded so that every C library gives the same numbers.
THRESHOLDS: Final = tuple(round(-math.log((k + 0.5) / 4096), 6) for k in range(4096))
#: Moves between two looks at what is exposed, and at the clock.
_LOOK: Final = 128
#: A new best is at least this much better, us.
_BETTER_US: Final = 1e-6
#: Moves between two questions for an opinion: so many after a negative one, and one for
#: so many atoms, since an answer takes a walk over all of them.
_PATIENCE: Final = 16
_ATOMS_PER_MOVE: Final = 64

#: Whether an order of atoms is acceptable for other reasons than its time.
Opinion = Callable[[Sequence[int]], bool]


@dataclass(slots=True)
class Budget:
    """What a run may spend, and what it has spent.

    Attributes:
        deadline: of `time.monotonic`, None for none.
        tried: moves so far.
        taken: of them.
        is_over: whether the deadline has passed.
    """

    deadline: float | None = None
    tried: int = 0
    taken: int = 0
    is_over: bool = False

    def look(self) -> bool:
        """Whether the deadline has passed."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self.is_over = True
        return self.is_over


@dataclass(slots=True)
class Best:
    """The best acceptable order that was seen.

    Attributes:
        us: its step.
        order: of atoms.
    """

    us: float
    order: list[int]


def anneal(
    window: Window,
    best: Best,
    *,
    moves: int,
    seed: int,
    temperature_us: float,
    budget: Budget,
    enough_us: float = 0.0,
    opinion: Opinion | None = None,
) -> None:
    """Search from the window's order; `best` receives what is better.

    Args:
        window: with its first order.
        best: known so far.
        moves: to be drawn.
        seed: of the random numbers.
        temperature_us: at the beginning.
        budget: of the run.
        enough_us: a step at which the round ends.
        opinion: asked before an order becomes the best one.
    """
    draw = random.Random(seed).random
    proposer = Moves(window, draw)
    if not proposer.can_move:
        return
    temperature = temperature_us
    stage = max(1, moves // _STEPS)
    propose, try_window = proposer.propose, window.try_window
    rest = len(window.order) // _ATOMS_PER_MOVE
    asked_again_at = tried = taken = 0
    for k in range(moves):
        if k % stage == stage - 1:
            temperature *= _COOLING
        if k % _LOOK == 0 and (
            not proposer.look() or best.us <= enough_us or budget.look()
        ):
            break
        move = propose()
        if move is None:
            continue
        tried += 1
        threshold = temperature * THRESHOLDS[int(draw() * len(THRESHOLDS))]
        if not try_window(move[0], move[1], threshold):
            continue
        taken += 1
        if window.total_us < best.us - _BETTER_US and k >= asked_again_at:
            is_best = _offer(window, best, opinion)
            asked_again_at = k + rest + (0 if is_best else _PATIENCE)
    if window.total_us < best.us - _BETTER_US:
        _offer(window, best, opinion)
    budget.tried += tried
    budget.taken += taken


def _offer(window: Window, best: Best, opinion: Opinion | None) -> bool:
    """Take the window's order as the best one, unless an opinion is against it."""
    if opinion is not None and not opinion(window.order):
        return False
    best.us, best.order = window.total_us, list(window.order)
    return True
