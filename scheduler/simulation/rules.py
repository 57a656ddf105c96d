"""How a step is simulated: the few things one may choose.

Rules()                     streams as the module's own assignment has them
Rules(streams=2)            collectives by turns on two streams
Rules(streams=0)            nothing queues: every collective starts at once
Rules(share_links=True)     collectives on one link slow each other down
Rules(xla_statistic=True)   XLA's own count of wasted time, without queues
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hlo_passes.errors import UsageError


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds in a simulation.

    Attributes:
        streams: communication streams to deal collectives to by turns; 0 for no
            queueing at all; None for the module's own assignment.
        share_links: collectives that are in flight together on one kind of link share
            its bandwidth evenly.
        xla_statistic: count as XLA's scheduler does after scheduling: no queues, the
            start time truncated to whole microseconds, a start and a done take their
            node cost, what is called takes the node cost of its caller.
        branch_probabilities: by name of a conditional, how probable each branch is;
            the dearest branch runs where nothing is given.
    """

    streams: int | None = None
    share_links: bool = False
    xla_statistic: bool = False
    branch_probabilities: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what cannot be. Raises UsageError U220, U221."""
        if self.streams is not None and self.streams < 0:
            raise UsageError(
                f"--streams={self.streams}: there is no such number of streams",
                code="U220",
                hint="1, 2, ... or 0 for no queueing",
            )
        if self.share_links and (self.xla_statistic or self.streams == 0):
            raise UsageError(
                "links are shared by what queues on streams; there are no queues with "
                "--streams=0 or --xla-statistic",
                code="U220",
                hint="leave one of the two out",
            )
        for name, shares in self.branch_probabilities.items():
            # Asked this way round, NaN is refused as well.
            if not (min(shares) >= 0.0 and abs(sum(shares) - 1.0) <= _SLACK):
                raise UsageError(
                    f"the probabilities of %{name} are {list(shares)}",
                    code="U221",
                    hint="one for each branch, together 1",
                )

    @property
    def queueing(self) -> bool:
        """Whether a stream runs one thing after the other."""
        return self.streams != 0 and not self.xla_statistic


#: How far probabilities that a person typed may miss 1.
_SLACK = 1e-6
