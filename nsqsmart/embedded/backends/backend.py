"""What a cluster asks of the half that knows the dialect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import Shard
from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWish:
    """What :meth:`Cluster.create_topic` was asked for."""

    partitions: int
    replicas: int
    ordered: bool
    extended: bool
    multi_part: bool | None
    channel_auto_create: bool


class Backend(Protocol):
    """What the dialects do differently."""

    def start(self) -> None:
        """Every server listens."""

    def create_topic(self, name: str, wish: TopicWish) -> None:
        """Make a topic."""

    def create_channel(self, topic: str, channel: str) -> None:
        """Make a channel everywhere."""

    def leader(self, topic: str, partition: int) -> Nsqd:
        """Who serves it."""

    def move_leader(self, topic: str, partition: int, to: Nsqd | None, timeout: float) -> Nsqd:
        """Let another node serve it; the new one."""

    def set_writable(self, topic: str, partition: int, *, writable: bool) -> None:
        """Take writes or refuse them."""

    def kill(self, nsqd: Nsqd) -> None:
        """As SIGKILL."""

    def terminate(self, nsqd: Nsqd) -> None:
        """As SIGTERM."""

    def hang(self, nsqd: Nsqd) -> None:
        """As SIGSTOP."""

    def wake(self, nsqd: Nsqd) -> None:
        """As SIGCONT."""

    def restart(self, nsqd: Nsqd) -> None:
        """A new process on the old ports."""

    def lookupd_changed(self, lookupd: Nsqlookupd) -> None:
        """A lookup daemon came or went."""

    def freeze(self, lookupd: Nsqlookupd, *, frozen: bool) -> None:
        """A lookup daemon learns nothing new, or again."""

    def shards(self, topic: str) -> Iterable[tuple[str, Shard[Any]]]:
        """The partitions of a topic, each with the address of a node."""
