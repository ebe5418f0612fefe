"""What a server's answer to an operation means, and what many answers come to.

See protocol#lookup-admin, protocol#http.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from nsqsmart.errors import AdminError, DiscoveryError, NodeResult
from nsqsmart.policy.answers.documents import shown, unwrap
from nsqsmart.policy.answers.lookup import TopicMeta
from nsqsmart.wire.answers import MOVED

_OK = 200
_AGAIN = MOVED | {
    "Not nsqlookup leader",
    # A follower that is asked to pause, and a leader that could not tell its followers.
    "INTERNAL_ERROR",
    "The topic is waiting node to join isr",
}
_NO_TOPIC = frozenset({"TOPIC_NOT_FOUND", "Key not found"})
_NO_CHANNEL = re.compile(r"CHANNEL_NOT_FOUND|channel \S+ not registered")
_REGISTERED = re.compile(r"channel \S+ already registered")
# Nothing to seek in: the channel of an empty partition stands where it should.
_EMPTY_LOG = "commit log end of file"
_TLS_REQUIRED = "TLS_REQUIRED"
_EXISTS = "already exist"


class Verdict(Enum):
    """How an answer is to be taken."""

    DONE = "done"
    NO_TOPIC = "no topic"
    NO_CHANNEL = "no channel"
    AGAIN = "again"
    """Another server leads by now, or this one will in a moment: look up and try again."""
    UNREACHABLE = "unreachable"
    """No answer: it may be done all the same."""
    EXISTS = "exists"
    """A topic of that name is there, with other settings."""
    FAILED = "failed"


class TopicSettings(NamedTuple):
    """A topic that is to be made."""

    topic: str
    partitions: int
    replicas: int
    ordered: bool
    extend_support: bool

    @property
    def beyond_original(self) -> list[str]:
        """What of it an original cluster does not have."""
        asked = {
            "partitions": self.partitions > 1,
            "replicas": self.replicas > 1,
            "ordered": self.ordered,
            "extend_support": self.extend_support,
        }
        return [name for name, wanted in asked.items() if wanted]

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """What a redesigned lookup is to be told (protocol#topic-create)."""
        flags = {
            "orderedmulti": self.ordered,
            # A plain topic needs a node of its own for every partition and copy
            # (protocol#topic-life).
            "multipart": self.partitions > 1 and not self.ordered,
            "extend": self.extend_support,
        }
        return (
            ("topic", self.topic),
            ("partition_num", str(self.partitions)),
            ("replicator", str(self.replicas)),
            *((name, "true") for name, wanted in flags.items() if wanted),
        )

    def is_met_by(self, meta: TopicMeta) -> bool:
        """Whether an existing topic has the requested settings."""
        wanted = (self.partitions, self.replicas, self.ordered, self.extend_support)
        return wanted == (meta.partition_num, meta.replicas, meta.ordered, meta.extended)


def describe_topic(meta: TopicMeta) -> str:
    """The request that would make a topic with *meta*."""
    return (
        f"partitions={meta.partition_num}, replicas={meta.replicas}, "
        f"ordered={meta.ordered}, extend_support={meta.extended}"
    )


class Operation(NamedTuple):
    """One thing to be done, wherever it is to be done; *what* names it in errors."""

    what: str
    path: str
    query: tuple[tuple[str, str], ...]
    body: bytes = b""
    deletes: bool = False

    def at(self, partition: int | None) -> Operation:
        """The operation on one partition of a redesigned nsqd."""
        if partition is None:
            return self
        return self._replace(query=(*self.query, ("partition", str(partition))))


class Answer(NamedTuple):
    """What one server said; *expected* tells that a lookup names it for the topic."""

    node: str
    verdict: Verdict
    text: str = ""
    partition: int | None = None
    expected: bool = True


def judge(status: int, body: bytes) -> tuple[Verdict, str]:
    """How to take the answer to an operation, and its text."""
    try:
        status, _, text = unwrap(status, body)
    except DiscoveryError as error:
        return Verdict.FAILED, str(error)
    if status == _OK:
        return Verdict.DONE, ""
    if text == _TLS_REQUIRED:
        return Verdict.FAILED, f"{text}: an Admin speaks HTTP without TLS only"
    verdict = _read(text)
    return verdict, shown(f"{status} {text}")


def _read(text: str) -> Verdict:
    if text in _AGAIN:
        return Verdict.AGAIN
    if text in _NO_TOPIC:
        return Verdict.NO_TOPIC
    if text == _EXISTS:
        return Verdict.EXISTS
    if _NO_CHANNEL.fullmatch(text):
        return Verdict.NO_CHANNEL
    if text == _EMPTY_LOG or _REGISTERED.fullmatch(text):
        return Verdict.DONE
    return Verdict.FAILED


def relevant(answers: Sequence[Answer]) -> list[Answer]:
    """What counts of the answers of all nsqds of an original cluster.

    Topics and channels are here and there: a node without them has nothing to do, as long as
    another one has. A node that does not answer counts only if it has the topic.
    """
    kept = [
        answer
        for answer in answers
        if answer.verdict is not Verdict.NO_TOPIC
        and (answer.expected or answer.verdict is not Verdict.UNREACHABLE)
    ]
    if any(answer.verdict is Verdict.DONE for answer in kept):
        kept = [answer for answer in kept if answer.verdict is not Verdict.NO_CHANNEL]
    return kept


def is_done(operation: Operation, answer: Answer) -> bool:
    """Whether there is nothing left to do: what is to be deleted may be gone already."""
    gone = operation.deletes and answer.verdict is Verdict.NO_CHANNEL
    return gone or answer.verdict is Verdict.DONE


def failure(operation: Operation, answers: Sequence[Answer]) -> AdminError | None:
    """The error that names every server, or None where all is done."""
    results = tuple(
        NodeResult(each.node, each.partition, is_done(operation, each), each.text)
        for each in answers
    )
    failed = [_show(each) for each in results if not each.done]
    if not failed:
        return None
    done = [_show(each) for each in results if each.done]
    rest = f"; done on {', '.join(done)}" if done else "; done nowhere"
    return AdminError(f"cannot {operation.what} on {', '.join(failed)}{rest}", results=results)


def _show(result: NodeResult) -> str:
    where = result.node
    if result.partition is not None:
        where = (
            f"partition {result.partition} at {where}"
            if where
            else (f"partition {result.partition}")
        )
    return where if result.done or not result.detail else f"{where} ({result.detail})"
