"""What a redesigned nsqd says of the replicas of a partition that it leads."""

from __future__ import annotations

from dataclasses import dataclass

from nsqsmart.policy.answers.documents import dicts_of, list_of, unwrap

_OK = 200


@dataclass(frozen=True, slots=True)
class Replicas:
    """The copies of one partition of a redesigned topic.

    Attributes:
        partition: its number.
        leader: ``"host:port"`` of the nsqd that leads it, or ``""`` while none does.
        wanted: how many copies the topic was made with.
        in_sync: how many nodes have all of it, the leader among them; None where its leader does
            not say. A node that died counts until the cluster misses it, after some 20 s.
    """

    partition: int
    leader: str
    wanted: int
    in_sync: int | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, as far as it is known."""
        return self.in_sync is None or self.in_sync >= self.wanted


def parse_in_sync(status: int, body: bytes, topic: str, partition: int) -> int | None:
    """Read the answer to ``/coordinator/stats``; None where it does not tell.

    Raises DiscoveryError if it is not an answer of an nsqd.
    """
    status, data, _ = unwrap(status, body)
    if status != _OK or not isinstance(data, dict):
        return None
    for entry in dicts_of(data.get("topic_coord_stats")):
        if entry.get("name") == topic and entry.get("partition") == partition:
            return len(list_of(entry.get("isr_stats")))
    return None
