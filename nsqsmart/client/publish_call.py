"""One publish call: route, lend, exchange, classify, look up again, retry; one deadline.

All of it runs in the caller's thread.
"""

from __future__ import annotations

import random
from time import monotonic, sleep

from nsqsmart.client.failures import code_of, publish_error
from nsqsmart.client.publication import Publication, build
from nsqsmart.client.publisher import Publisher
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.way import Way
from nsqsmart.errors import Attempt, ClientClosed, PoolTimeout, PublishError, TransportError
from nsqsmart.policy.retry import Retry, Verdict, judge
from nsqsmart.policy.topology import Refused, Target, Topology
from nsqsmart.wire import commands
from nsqsmart.wire.receipts import TracedReceipt


def publish(shared: Publisher, publication: Publication, deadline: float) -> Receipt:
    """Return once an nsqd has it, or raise a PublishError (ClientClosed: not even tried)."""
    return _Call(shared, publication, deadline).run()


def publish_plain(shared: Publisher, topic: str, body: bytes, deadline: float) -> Receipt:
    """The same for one message without key, partition, trace, header and delay.

    The way of nearly every message: a short one for as long as nothing goes wrong.
    """
    topology = shared.directory.known(topic)
    if topology is None or not topology.targets:
        return _Call(shared, Publication(topic, (body,)), deadline).run()
    target = shared.pick(topology.targets)
    command = commands.pub(topic, body, target.partition)
    started = monotonic()
    try:
        shared.exchange(target, command, None, deadline)
    except (TransportError, ClientClosed) as error:
        call = _Call(shared, Publication(topic, (body,)), deadline)
        return call.resume(topology, target, error, started)
    return Receipt(topic, target.partition, target.name)


class _Call:
    """The state of one publish call; what only a failure needs is made when one comes."""

    __slots__ = (
        "_deadline",
        "_failed",
        "_publication",
        "_shared",
        "_target",
        "_topology",
        "_way",
    )

    def __init__(self, shared: Publisher, publication: Publication, deadline: float) -> None:
        self._shared = shared
        self._publication = publication
        self._deadline = deadline
        self._way = Way(shared, publication, deadline)
        self._failed: Retry | None = None
        self._topology: Topology | None = None
        self._target: Target | None = None

    def resume(
        self,
        topology: Topology,
        target: Target,
        error: TransportError | ClientClosed,
        started: float,
    ) -> Receipt:
        """Go on after a first attempt at *target* that ended with *error*."""
        self._topology, self._target = topology, target
        self._recover(error, started)
        return self.run()

    def run(self) -> Receipt:
        """Attempt until it is stored, or policy or time ends it."""
        try:
            while True:
                started = monotonic()
                try:
                    return self._attempt()
                except (TransportError, ClientClosed) as error:
                    self._recover(error, started)
                except PublishError as error:
                    self._add_history(error)
                    raise
        finally:
            self._way.release()

    @property
    def _retry(self) -> Retry:
        """What has been tried so far."""
        if self._failed is None:
            config = self._shared.config
            self._failed = Retry(
                self._deadline,
                config.retry_pause,
                config.max_retry_pause,
                config.publish_attempts,
            )
        return self._failed

    def _attempt(self) -> Receipt:
        self._target = None
        publication, deadline = self._publication, self._deadline
        topology = self._topology
        if topology is None:
            topology = self._shared.directory.get(publication.topic, deadline)
            self._topology = topology
        target = self._target = self._way.find(topology)
        command = build(publication, target, extended=topology.meta.extended)
        stored = self._shared.exchange(
            target, command.data, command.traced, deadline, batch=publication.batch
        )
        return self._receipt(target, stored)

    def _receipt(self, target: Target, stored: TracedReceipt | None) -> Receipt:
        publication = self._publication
        receipt = Receipt(publication.topic, target.partition, target.name)
        receipt.count = len(publication.bodies)
        if self._failed:
            receipt.attempts = len(self._failed.attempts) + 1
        if stored:
            receipt.internal_id, receipt.trace_id, receipt.offset, receipt.size = stored
            if publication.batch:
                receipt.trace_id = publication.trace_ids[0]
        return receipt

    def _add_history(self, error: PublishError) -> None:
        """What was tried before belongs to an error that ends the call otherwise."""
        if self._failed:
            error.outcome, error.answered = self._failed.outcome, self._failed.answered
            error.attempts = self._failed.attempts

    def _recover(self, error: TransportError | ClientClosed, started: float) -> None:
        """Prepare the next attempt after *error*, or raise what the caller shall see."""
        if isinstance(error, ClientClosed):
            raise self._failure(error) from error
        target = self._target
        unanswered = self._shared.config.retry_unanswered
        verdict = judge(error, keyed=self._publication.keyed, retry_unanswered=unanswered)
        now = monotonic()
        nsqd = target.name if target else None
        partition = target.partition if target else self._way.partition
        attempt = Attempt(nsqd, partition, code_of(error), now - started)
        self._failed = retry = self._retry.after(attempt, verdict)
        if target:
            self._note(target, error, verdict, now)
        if not retry.may_retry(verdict, now):
            raise self._failure(error) from error
        elsewhere = self._may_go_elsewhere(verdict)
        if not elsewhere:
            self._way.avoid = frozenset()
            sleep(retry.delay(now, random.uniform))
        if verdict.moved:
            self._look_again(target, wait=not elsewhere)
        if monotonic() >= self._deadline:
            # An attempt without time would only hide what really went wrong.
            raise self._failure(error) from error

    def _note(self, target: Target, error: TransportError, verdict: Verdict, now: float) -> None:
        """What the failure says of the node, for this call and for others."""
        self._way.avoid |= {target.address}
        if verdict.answered and (error.sent or isinstance(error, PoolTimeout)):
            return
        self._shared.lost(target.address, now)
        fence = self._shared.config.uncertain_fence
        if fence and not verdict.answered and self._publication.keyed:
            self._shared.fences[self._publication.topic, target.partition] = now + fence

    def _may_go_elsewhere(self, verdict: Verdict) -> bool:
        """Whether another node can take an unkeyed message at once, without a pause."""
        if self._publication.keyed or not verdict.elsewhere or self._topology is None:
            return False
        return any(target.address not in self._way.avoid for target in self._topology.targets)

    def _look_again(self, target: Target | None, *, wait: bool) -> None:
        seen = self._topology.generation if self._topology else 0
        refused = [Refused(target.partition, target.address)] if target else []
        try:
            self._topology = self._shared.directory.refresh(
                self._publication.topic, seen, self._deadline, refused=refused, wait=wait
            )
        except TransportError:
            # No lookup and no picture: the next attempt says so, and is counted.
            self._topology = None

    def _failure(self, error: TransportError | ClientClosed) -> Exception:
        return publish_error(self._publication.topic, self._retry, error, now=monotonic())
