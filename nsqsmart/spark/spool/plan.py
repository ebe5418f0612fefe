"""What one epoch reads: its tasks, and how many messages each may take.

Written before Spark is told of the epoch: a replay reads the same plan, wherever the messages, the
leaders and the nsqds are by then, and an epoch that Spark knows and that has no plan was lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Task:
    """What one executor task reads.

    ``nsqd`` is where it was when it was planned; of a partition the leader may have moved since.
    ``budget`` is the most messages it takes and ``size`` the bytes after which it takes no more;
    or ``first`` and ``end`` are the offsets it reads from and up to.
    """

    topic: str
    partition: int | None
    nsqd: str
    number: int = 0
    budget: int = 0
    size: int | None = None
    first: int | None = None
    end: int | None = None

    @property
    def place(self) -> str:
        """Where the messages are, as a name for files."""
        where = self.nsqd.replace(":", "_") if self.partition is None else f"p{self.partition}"
        return f"{self.topic}@{where}"

    @property
    def name(self) -> str:
        """Its own among the tasks of a plan."""
        return f"{self.place}-{self.number:03d}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of one epoch, and the time it was made (nanoseconds since 1970)."""

    epoch: int
    made_at: int
    tasks: tuple[Task, ...]

    def to_json(self) -> bytes:
        """As it is stored."""
        document = {
            "v": _VERSION,
            "epoch": self.epoch,
            "made_at": self.made_at,
            "tasks": [asdict(each) for each in self.tasks],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Plan:
        """As it was stored."""
        document = json.loads(data)
        if document["v"] != _VERSION:
            raise ValueError(f"plan of version {document['v']}: written by a newer nsqsmart")
        tasks = tuple(Task(**each) for each in document["tasks"])
        return cls(document["epoch"], document["made_at"], tasks)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in one place."""

    topic: str
    partition: int | None
    nsqd: str
    messages: int


def share(backlogs: Sequence[Backlog], most: int | None, tasks: int) -> tuple[Task, ...]:
    """Tasks for all of *backlogs*, which together take at most *most* messages.

    At least *tasks* of them where that can be: an original nsqd may serve several consumers of a
    channel, a partition is read by one.
    """
    busy = [each for each in backlogs if each.messages > 0]
    total = sum(each.messages for each in busy)
    wanted = total if most is None else min(most, total)
    made: list[Task] = []
    for number, backlog in enumerate(busy):
        # What is left is shared by what waits, so that the sum is met exactly.
        behind = sum(each.messages for each in busy[number:])
        budget = min(backlog.messages, -(-wanted * backlog.messages // behind))
        wanted -= budget
        made += _split(backlog, budget, _consumers(backlog, busy, tasks))
    return tuple(made)


def _consumers(backlog: Backlog, busy: Sequence[Backlog], tasks: int) -> int:
    originals = sum(each.partition is None for each in busy)
    if backlog.partition is not None or not originals:
        return 1
    return max(1, -(-(tasks - (len(busy) - originals)) // originals))


def _split(backlog: Backlog, budget: int, count: int) -> list[Task]:
    parts = [budget // count + (number < budget % count) for number in range(count)]
    return [
        Task(backlog.topic, backlog.partition, backlog.nsqd, number, part)
        for number, part in enumerate(parts)
        if part
    ]
