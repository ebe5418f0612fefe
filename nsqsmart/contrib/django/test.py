"""For the tests of a project: what was published is in an outbox, as mail is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import connections

from nsqsmart.contrib.django.publishing import CommitBatch
from nsqsmart.testing.recording import Key, Outbox, Published, assert_published, outbox

__all__ = ["NSQTestMixin", "outbox"]


class NSQTestMixin:
    """Put it before Django's TestCase: an empty outbox for each test, and what to ask of it.

    In a TestCase nothing is ever committed: wrap what publishes in
    ``self.captureOnCommitCallbacks(execute=True)``.
    """

    def setUp(self) -> None:
        """Begin with an empty outbox."""
        outbox.clear()
        super().setUp()  # type: ignore[misc]  # that of the TestCase beside it

    @property
    def nsq_outbox(self) -> Outbox:
        """The published messages, in order."""
        return outbox

    def assertPublished(  # noqa: N802 - as unittest calls its own
        self,
        topic: str,
        *,
        contains: Mapping[str, Any] | bytes | str | None = None,
        body: bytes | None = None,
        key: Key | None = None,
        times: int | None = None,
    ) -> list[Published]:
        """As :func:`nsqsmart.testing.recording.assert_published`, of this outbox."""
        try:
            return assert_published(
                outbox, topic, contains=contains, body=body, key=key, times=times
            )
        except AssertionError as error:
            waiting = _waiting()
            if not waiting:
                raise
            raise AssertionError(
                f"{error}\n{waiting} wait for a commit, which a TestCase never makes: wrap the "
                "code in self.captureOnCommitCallbacks(execute=True)"
            ) from None

    def assertNotPublished(self, topic: str, **matching: Any) -> None:  # noqa: N802 - as above
        """No message of *topic* that matches was published."""
        self.assertPublished(topic, times=0, **matching)


def _waiting() -> int:
    return sum(
        len(hook[1].letters)
        for connection in connections.all(initialized_only=True)
        for hook in connection.run_on_commit
        if isinstance(hook[1], CommitBatch)
    )
