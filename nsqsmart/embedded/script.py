"""What a redesigned cluster does in trouble, and how long it takes (protocol#scripts)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The figures of the scripts, times in seconds.

    :class:`~nsqsmart.embedded.cluster_options.ClusterOptions` says what they are. The defaults are
    as short as tests want them; ``REAL_TIMES`` there has those of real clusters.
    """

    create_delay: float = 0.0
    election_delay: float = 0.05
    move_delay: float = 0.05
    exit_delay: float = 0.05
    replication_timeout: float = 0.2
    positions_lost: int = 0
    young_channels_lost: bool = False
    redeliver_at_move: bool = False
    ordered_copies: int = 0

    @property
    def confirm_timeout(self) -> float:
        """How long an ordered FIN waits for a silent replica: 11 s where a write waits 12."""
        return self.replication_timeout * 11 / 12

    @property
    def queue_wait(self) -> float:
        """How long a queued publish waits before it is refused for that alone (protocol#limits)."""
        return self.replication_timeout / 4
