"""How a step is simulated: all choices.

Rules()                     streams as the module's own assignment has them
Rules(streams=2)            collectives round-robin on two streams
Rules(streams=0)            nothing queues: every collective starts at once
Rules(share_links=True)     collectives on one link slow each other down
Rules(contention=0.1)       a running collective takes a tenth of the compute
Rules(trip_counts={"w": 9}) loops that nobody could count otherwise
Rules(xla_statistic=True)   XLA's own count of wasted time, without queues
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_passes.errors import UsageError
from hlo_passes.scheduler.simulation.setting import MOST_CONTENTION
from hlo_passes.scheduler.sums import sequential_sum
from hlo_passes.xla_release import XlaRelease


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a simulation.

    Attributes:
        streams: number of communication streams, to which collectives are assigned
            round-robin; 0 for no queueing; None for the module's own assignment.
        share_links: collectives that are in flight together on one kind of link share
            its bandwidth evenly.
        xla_statistic: count as XLA's scheduler does after scheduling: no queues, the
            start time truncated to whole microseconds, a start and a done take their
            node cost, what is called takes the node cost of its caller.
        branch_probabilities: by name of a conditional, how probable each branch is;
            without an entry the most expensive branch runs.
        trip_counts: by name of a loop, how often it runs; without an entry as
            `TripCounts` finds it.
        contention: the share of its speed that the compute lane loses while a
            collective, send or receive is in flight; XLA's model has none.
        release: of XLA, whose streams are used; None: as `followed_release` finds it.
    """

    streams: int | None = None
    share_links: bool = False
    xla_statistic: bool = False
    branch_probabilities: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    trip_counts: Mapping[str, int] = field(default_factory=dict)
    release: XlaRelease | None = None
    contention: float = 0.0

    def __post_init__(self) -> None:
        """Refuse impossible rules. Raises UsageError U220, U221, U226."""
        if self.streams is not None and self.streams < 0:
            raise UsageError(
                f"--streams={self.streams}: this is not a number of streams",
                code="U220",
                hint="give 1, 2, ... or 0 for no queueing",
            )
        if self.share_links and (self.xla_statistic or self.streams == 0):
            raise UsageError(
                "links are shared by what queues on streams; there are no queues with "
                "--streams=0 or --xla-statistic",
                code="U220",
                hint="leave out one of the two",
            )
        # The test is written so that it also refuses NaN.
        if not 0.0 <= self.contention <= MOST_CONTENTION:
            raise UsageError(
                f"--contention={self.contention:g}: this is not a share of compute",
                code="U220",
                hint=f"give a number from 0 to {MOST_CONTENTION}, as in 0.1",
            )
        if self.contention and not self.may_contend:
            raise UsageError(
                "--contention needs times at which collectives run; --share-links and "
                "--xla-statistic do not know them while compute runs",
                code="U220",
                hint="leave out one of the two",
            )
        for name, shares in self.branch_probabilities.items():
            # The test is written so that it also refuses NaN.
            if not (min(shares) >= 0.0 and abs(sequential_sum(shares) - 1.0) <= _SLACK):
                raise UsageError(
                    f"the probabilities of %{name} are {list(shares)}",
                    code="U221",
                    hint="give one for each branch; their sum is 1",
                )

        for name, count in self.trip_counts.items():
            if not 0 <= count <= _MOST_TRIPS:
                raise UsageError(
                    f"%{name} cannot run {str(count)[:_SHOWN_DIGITS]} times",
                    code="U226",
                    hint=f"a number from 0 to {_MOST_TRIPS}",
                )

    @property
    def may_contend(self) -> bool:
        """Whether compute can be slowed down beside collectives."""
        return not (self.share_links or self.xla_statistic)

    @property
    def queueing(self) -> bool:
        """Whether a stream runs one work after the other."""
        return self.streams != 0 and not self.xla_statistic


#: How far the sum of probabilities that a person typed may be from 1.
_SLACK = 1e-6
#: As many digits as a count in a module may have.
_MOST_TRIPS = 10**18 - 1
_SHOWN_DIGITS = 24
