"""What an nsqd offers on its ports, put together for each dialect."""

from __future__ import annotations

from dataclasses import dataclass

from nsqsmart.embedded.nsqd.hosting import OriginalTopics, RedesignedHosting
from nsqsmart.embedded.nsqd.node import Node
from nsqsmart.embedded.nsqd.tcp.session import Commands, original_commands, redesigned_commands
from nsqsmart.embedded.serving.http import Router


@dataclass(frozen=True, slots=True)
class Offer:
    """Verbs and paths of one nsqd."""

    commands: Commands
    router: Router


def original_offer(node: Node, topics: OriginalTopics) -> Offer:
    """An original nsqd."""
    # A program speaks one dialect, and must start at once: the other one's paths stay unread.
    from nsqsmart.embedded.nsqd.http.original import original_nsqd_router  # noqa: PLC0415

    return Offer(original_commands(topics), original_nsqd_router(node, topics))


def redesigned_offer(node: Node, hosting: RedesignedHosting) -> Offer:
    """A redesigned nsqd."""
    from nsqsmart.embedded.nsqd.http.redesigned import redesigned_nsqd_router  # noqa: PLC0415

    return Offer(redesigned_commands(hosting), redesigned_nsqd_router(node, hosting))
