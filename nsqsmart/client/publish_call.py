"""One publish call: route, lend, exchange, classify, look up again, retry; one deadline.

All of it runs in the caller's thread.
"""

from __future__ import annotations

import random
import struct
from functools import partial
from time import monotonic
from typing import NamedTuple

from nsqsmart.client.failures import NoLeader, code_of, publish_error
from nsqsmart.client.measuring import measured, note_retry
from nsqsmart.client.publication import Publication, build
from nsqsmart.client.publish_errors import TopicNotExist
from nsqsmart.client.publisher import Publisher
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.traced import with_trace_lines
from nsqsmart.client.way import Way
from nsqsmart.errors import (
    Attempt,
    ClientClosed,
    PoolTimeout,
    ProtocolError,
    PublishError,
    TopicHasNoChannel,
    TransportError,
)
from nsqsmart.policy.retry import Retry, Verdict, judge
from nsqsmart.policy.topology import Refused, Target, Topology
from nsqsmart.wire import commands
from nsqsmart.wire.answers import BAD_INPUT
from nsqsmart.wire.receipts import TracedReceipt

_pack = struct.Struct(">I").pack


def publish(shared: Publisher, publication: Publication, deadline: float) -> Receipt:
    """Return once an nsqd has it, or raise a PublishError (ClientClosed: not even tried)."""
    if shared.meter is None:
        return carry_out(shared, publication, deadline)
    run = partial(carry_out, shared, publication, deadline)
    return measured(shared.meter, publication, monotonic(), run)


def carry_out(shared: Publisher, publication: Publication, deadline: float) -> Receipt:
    """The same, which nobody is told of."""
    call = Call(shared, publication, deadline)
    return with_trace_lines(shared.client_id, publication, call.run)


def publish_plain(
    shared: Publisher, topic: str, body: bytes, now: float, deadline: float
) -> Receipt:
    """The same for one message without key, partition, trace, header and delay.

    The way of nearly every message: a short one for as long as nothing goes wrong. *now* is the
    time it began.
    """
    route = shared.route(topic, now)
    if route is None:
        publication = Publication(topic, (body,))
        return measured(shared.meter, publication, now, Call(shared, publication, deadline).run)
    command = b"".join((route.line, _pack(len(body)), body))
    try:
        shared.exchange(route.target, command, None, deadline, now)
    except (TransportError, ClientClosed) as error:
        publication = Publication(topic, (body,))
        return _go_on(shared, publication, route.target, error, (now, deadline))
    if shared.troubles.topics:
        shared.troubles.worked(topic)
    if shared.meter is not None:
        shared.meter.published(topic, "ok", 1, len(body), monotonic() - now)
    return route.receipt


def publish_plain_batch(
    shared: Publisher, topic: str, bodies: tuple[bytes, ...], now: float, deadline: float
) -> Receipt:
    """The same for a batch."""
    route = shared.route(topic, now)
    if route is None:
        publication = Publication(topic, bodies, batch=True)
        return measured(shared.meter, publication, now, Call(shared, publication, deadline).run)
    target = route.target
    command = commands.batch(route.batch_line, bodies)
    try:
        shared.exchange(target, command, None, deadline, now, batch=True)
    except (TransportError, ClientClosed) as error:
        publication = Publication(topic, bodies, batch=True)
        return _go_on(shared, publication, target, error, (now, deadline))
    if shared.troubles.topics:
        shared.troubles.worked(topic)
    if shared.meter is not None:
        size = sum(map(len, bodies))
        shared.meter.published(topic, "ok", len(bodies), size, monotonic() - now)
    return Receipt(topic, target.partition, target.name, count=len(bodies))


def _go_on(
    shared: Publisher,
    publication: Publication,
    target: Target,
    error: TransportError | ClientClosed,
    times: tuple[float, float],
) -> Receipt:
    """The first attempt, which began and has to end at *times*, ended with *error*."""
    began, deadline = times
    topology = shared.directory.known(publication.topic)
    call = Call(shared, publication, deadline)
    resume = partial(call.resume, topology, target, error, began)
    return measured(shared.meter, publication, began, resume)


class Call:
    """The state of one publish call; what only a failure needs is made when one comes."""

    __slots__ = (
        "__weakref__",
        "_deadline",
        "_failed",
        "_publication",
        "_shared",
        "_target",
        "_way",
    )

    def __init__(
        self,
        shared: Publisher,
        publication: Publication,
        deadline: float,
        failed: Retry | None = None,
    ) -> None:
        """*failed* is what was tried before, in another way."""
        self._shared = shared
        self._publication = publication
        self._deadline = deadline
        self._way = Way(shared, publication, deadline)
        self._failed = failed
        self._target: Target | None = None

    def resume(
        self,
        topology: Topology | None,
        target: Target,
        error: TransportError | ClientClosed,
        started: float,
    ) -> Receipt:
        """Go on after an attempt at *target* that ended with *error*."""
        self._way.topology, self._target = topology, target
        self._shared.begin(self)
        try:
            self._recover(error, started)
            note_retry(self._shared.meter, self._publication.topic, error)
            return self.run()
        finally:
            self._shared.end(self)

    def run(self) -> Receipt:
        """Attempt until it is stored, or policy or time ends it."""
        self._shared.begin(self)
        try:
            while True:
                started = monotonic()
                try:
                    return self._attempt()
                except (TransportError, ClientClosed) as error:
                    self._recover(error, started)
                    note_retry(self._shared.meter, self._publication.topic, error)
                except PublishError as error:
                    self._add_history(error)
                    raise
        finally:
            # Twice if an interrupt comes in between: whoever keeps its traceback keeps the turn.
            try:
                self._way.release()
            except BaseException:
                self._way.release()
                raise
            finally:
                self._shared.end(self)

    def _attempt(self) -> Receipt:
        self._target = None
        way = self._way
        target = self._target = way.find()
        publication = self._publication = way.publication
        extended = way.topology is not None and way.topology.meta.extended
        command = build(publication, target, extended=extended)
        way.raise_fence()
        stored = self._shared.exchange(
            target,
            command.data,
            command.traced,
            self._deadline,
            monotonic(),
            batch=publication.batch,
        )
        way.settle_fence(answered=True)
        if self._shared.troubles.topics:
            self._shared.troubles.worked(publication.topic)
        return self._receipt(target, stored)

    def _receipt(self, target: Target, stored: TracedReceipt | None) -> Receipt:
        publication = self._publication
        attempts = len(self._failed.attempts) + 1 if self._failed else 1
        internal_id, trace_id, offset, size = stored or (None, None, None, None)
        if publication.trace_ids and target.partition is not None:
            trace_id = publication.trace_ids[0]
        return Receipt(
            publication.topic,
            target.partition,
            target.name,
            attempts,
            internal_id,
            trace_id,
            offset,
            size,
            len(publication.bodies),
        )

    def _add_history(self, error: PublishError) -> None:
        """What was tried before belongs to an error that ends the call otherwise."""
        if isinstance(error, TopicNotExist | TopicHasNoChannel):
            self._note_end(error)
        if self._failed:
            error.outcome, error.answered = self._failed.outcome, self._failed.answered
            error.attempts = self._failed.attempts

    def _recover(self, error: TransportError | ClientClosed, started: float) -> None:
        """Prepare the next attempt after *error*, or raise what the caller shall see."""
        if isinstance(error, ClientClosed):
            raise self._failure(error) from error
        target, now = self._target, monotonic()
        trial = Trial(self._publication, target, self._way.partition, started)
        self._failed = retry = self._failed or self._shared.new_retry(self._deadline)
        self._failed, verdict = after_failure(self._shared, trial, retry, error, now)
        if target:
            self._way.avoid |= {target.address}
            self._way.settle_fence(answered=verdict.answered)
        if self._shared.ended and (verdict.retry or not verdict.answered):
            raise self._ended(error)
        if not self._failed.may_retry(verdict, now):
            raise self._failure(error) from error
        elsewhere = self._may_go_elsewhere(verdict)
        if not elsewhere:
            self._pause(self._failed.delay(now, random.uniform), verdict, error)
        if verdict.moved:
            self._look_again(target, wait=not elsewhere)
        if monotonic() >= self._deadline:
            # An attempt without time would only hide what really went wrong.
            raise self._failure(error) from error

    def _may_go_elsewhere(self, verdict: Verdict) -> bool:
        """Whether another node can take an unkeyed message at once, without a pause."""
        topology, avoid = self._way.topology, self._way.avoid
        if self._publication.keyed or not verdict.elsewhere or topology is None:
            return False
        return any(target.address not in avoid for target in topology.targets)

    def _pause(self, seconds: float, verdict: Verdict, error: TransportError) -> None:
        """Let the servers breathe; who waits for a leader goes on when another call found one."""
        self._way.avoid = frozenset()
        if verdict.moved:
            self._shared.directory.pause(self._publication.topic, self._way.generation, seconds)
        else:
            self._shared.ending.passed(seconds)
        if self._shared.ended:
            raise self._ended(error)

    def _look_again(self, target: Target | None, *, wait: bool) -> None:
        seen = self._way.generation
        refused = [Refused(target.partition, target.address)] if target else []
        try:
            self._way.topology = self._shared.directory.refresh(
                self._publication.topic, seen, self._deadline, refused=refused, wait=wait
            )
        except TransportError:
            # No lookup and no picture: the next attempt says so, and is counted.
            self._way.topology = None

    def _ended(self, error: TransportError) -> Exception:
        """close() did not wait any longer."""
        closed = ClientClosed("the Producer was closed")
        closed.__cause__ = error
        failure = self._failure(closed)
        failure.__cause__ = closed
        return failure

    def _note_end(self, error: Exception) -> None:
        topic = self._publication.topic
        self._shared.troubles.failed(topic, str(error), monotonic(), ended=True)

    def _failure(self, error: TransportError | ClientClosed) -> Exception:
        retry = self._failed or self._shared.new_retry(self._deadline)
        if not isinstance(error, ClientClosed) and code_of(error) not in BAD_INPUT:
            self._note_end(error)
        return publish_error(self._publication.topic, retry, error, now=monotonic())


class Trial(NamedTuple):
    """One attempt: of what, where, and when it began."""

    publication: Publication
    target: Target | None
    partition: int | None
    started: float


def _others_are_well(shared: Publisher, trial: Trial, now: float) -> bool:
    """Whether there is another node for the message: this one is no nsqd, and never will be."""
    picture = shared.directory.pictures().get(trial.publication.topic)
    bad = shared.outages.avoided(now) | {trial.target and trial.target.address}
    return any(each.address not in bad for each in (picture.targets if picture else ()))


def after_failure(
    shared: Publisher, trial: Trial, retry: Retry, error: TransportError, now: float
) -> tuple[Retry, Verdict]:
    """Where a call stands after *trial* ended with *error*; notes what that says of the node."""
    publication, target = trial.publication, trial.target
    unanswered = shared.config.retry_unanswered
    verdict = judge(error, keyed=publication.keyed, retry_unanswered=unanswered)
    if target and not publication.keyed and isinstance(error.__cause__, ProtocolError):
        verdict = verdict._replace(retry=verdict.retry or _others_are_well(shared, trial, now))
    nsqd = target.name if target else None
    partition = target.partition if target else trial.partition
    attempt = Attempt(nsqd, partition, code_of(error), now - trial.started)
    if attempt.code not in BAD_INPUT:  # which is a matter of the message
        shared.troubles.failed(publication.topic, str(error), trial.started)
    silent = not verdict.answered or not error.sent
    if target and silent and not isinstance(error, PoolTimeout):
        shared.lost(target.address, now)
    if isinstance(error, NoLeader):
        shared.directory.doubt(publication.topic, None)
    if target and verdict.moved:
        # Before anything is raised: whoever is next would be refused as well, or wait for a dead
        # node as long as this call did.
        lost = silent and not verdict.retry
        refused = Refused(target.partition, target.address)
        shared.directory.doubt(publication.topic, refused, lost=lost)
    return retry.after(attempt, verdict), verdict
