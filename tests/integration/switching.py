"""What can happen to the nodes of a cluster: the rows of both tables of leader switches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tests.helpers import eventually
from tests.sites import Led

_PATIENCE, _PATIENCE_EMBEDDED = 180, 20


class Stage(ABC):
    """Where a row is played: it happens to ``topic``, and above all to its partition 0."""

    site: Led
    topic: str

    def until(self, condition: Callable[[], Any], what: str) -> None:
        if self.site.slow:
            eventually(condition, _PATIENCE, what, every=0.2)
        else:
            eventually(condition, _PATIENCE_EMBEDDED, what, every=0.02)

    def leader(self) -> str:
        return self.site.leaders(self.topic)[0]

    def follower(self) -> str:
        """A node that leads nothing."""
        leaders = self.site.leaders(self.topic).values()
        return next(node for node in self.site.nodes if node not in leaders)

    def happens(self, what: str) -> None:  # noqa: B027 - not every stage notes it
        """*what* is about to happen to the cluster."""

    @abstractmethod
    def lose(self, node: str, end: Callable[[str], None], back: Callable[[str], None]) -> None:
        """Take *node* away until it is missed no more, and give it back."""


Row = Callable[[Stage], None]


def leader_moves(stage: Stage) -> None:
    old = stage.leader()
    stage.happens("move")
    stage.site.move_leader(stage.topic, 0)
    stage.until(lambda: stage.site.leaders(stage.topic).get(0, old) != old, "another one leads")


def leader_terminated(stage: Stage) -> None:
    stage.lose(stage.leader(), stage.site.terminate, stage.site.restart)


def leader_killed(stage: Stage) -> None:
    stage.lose(stage.leader(), stage.site.kill, stage.site.restart)


def leader_hangs(stage: Stage) -> None:
    stage.lose(stage.leader(), stage.site.hang, stage.site.wake)


def follower_terminated(stage: Stage) -> None:
    stage.lose(stage.follower(), stage.site.terminate, stage.site.restart)


def follower_killed(stage: Stage) -> None:
    stage.lose(stage.follower(), stage.site.kill, stage.site.restart)


def follower_hangs(stage: Stage) -> None:
    stage.lose(stage.follower(), stage.site.hang, stage.site.wake)


ROWS: list[Row] = [
    leader_moves,
    leader_terminated,
    leader_killed,
    leader_hangs,
    follower_terminated,
    follower_killed,
    follower_hangs,
]
