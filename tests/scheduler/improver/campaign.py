"""The laws of the improver on many random modules; the suite has a sample of each.

    python -m tests.scheduler.improver.campaign [--modules=40] [--seed=0]
        [--seconds=N] [twin] [caps] [orders]

twin     after each of `--moves` random moves of a computation, times, waits, what is in
         flight and what is live are what a walk over the whole order finds; limits 1
         to 4
caps     under a cap at every value that the memory of a module takes: never above it
orders   the best of all orders is found, no bound is above it; limits 1 to 4, up to
         `--orders` orders

The exit code is 1 at the first law that is broken, with a traceback.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable

from tests.scheduler.improver.test_search import check_best_of_all, check_caps
from tests.scheduler.improver.test_window import check_moves

_LIMITS = (1, 2, 3, 4)


def twin(seed: int, options: argparse.Namespace) -> tuple[int, ...]:
    """(moves taken,) of one module."""
    return (check_moves(seed, _LIMITS[seed % len(_LIMITS)], options.moves),)


def caps(seed: int, options: argparse.Namespace) -> tuple[int, ...]:
    """(caps tried,) of one module, every second one with loops."""
    return (check_caps(seed, loops=bool(seed % 2)),)


def orders(seed: int, options: argparse.Namespace) -> tuple[int, ...]:
    """(computations compared, gains found) of one module."""
    return check_best_of_all(
        seed,
        limit=_LIMITS[seed % len(_LIMITS)],
        length=4 + seed % 3,
        most_orders=options.orders,
    )


#: Law -> what is counted, and its check.
LAWS: dict[str, tuple[str, Callable[[int, argparse.Namespace], tuple[int, ...]]]] = {
    "twin": ("moves taken", twin),
    "caps": ("caps tried", caps),
    "orders": ("computations compared, gains", orders),
}


def main() -> int:
    """Check the laws, and print what was counted."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.scheduler.improver.campaign",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("laws", nargs="*", metavar="LAW")
    parser.add_argument("--modules", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--moves", type=int, default=2_000)
    parser.add_argument("--orders", type=int, default=50_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each law")
    options = parser.parse_args()
    for law in options.laws or LAWS:
        if law not in LAWS:
            parser.error(f"no law {law}; there are: {', '.join(LAWS)}")
        what, check = LAWS[law]
        began = time.monotonic()
        counts: list[tuple[int, ...]] = []
        for seed in range(options.seed, options.seed + options.modules):
            if time.monotonic() - began > options.seconds:
                break
            counts.append(check(seed, options))
        totals = [sum(column) for column in zip(*counts, strict=True)]
        shown = ", ".join(f"{total:,}" for total in totals)
        seconds = time.monotonic() - began
        print(f"{law}: {len(counts)} modules, {shown} ({what}), {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
