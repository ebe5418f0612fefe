"""One publish call: route, lend, exchange, classify, look up again, retry; one deadline.

All of it runs in the caller's thread.
"""

from __future__ import annotations

import logging
import random
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from nsqsmart.client.publishing.placement import Placement
from nsqsmart.client.publishing.retry import Trial, after_failure, publish_error
from nsqsmart.client.publishing.shared_state import PublishingState
from nsqsmart.client.shared.arguments import Publication
from nsqsmart.client.shared.errors import NotSupported, TopicNotExist, code_of
from nsqsmart.client.shared.metrics import Meter, note_retry
from nsqsmart.client.shared.receipt import Receipt
from nsqsmart.client.shared.trace_log import log, pass_over, publish_failed, published
from nsqsmart.errors import (
    ClientClosed,
    PublishError,
    TopicHasNoChannel,
    TransportError,
)
from nsqsmart.metrics import Result
from nsqsmart.policy.retry import Retry, Verdict
from nsqsmart.policy.topology import Refused, Target, Topology
from nsqsmart.wire import commands
from nsqsmart.wire.answers import BAD_INPUT
from nsqsmart.wire.ext import encode_header
from nsqsmart.wire.receipts import TracedReceipt

_BATCH_TRACE = 0
"""The trace id in the receipt of MPUB_TRACE (protocol#mpub_trace)."""

_pack = struct.Struct(">I").pack

# Larger batches are not faster, and a fifth of what nsqd takes by default.
_MAX_BYTES = 1024 * 1024
_MAX_MESSAGES = 1000


class Command(NamedTuple):
    """The bytes, and the trace id that the receipt must show; None if there is no such receipt."""

    data: bytes
    traced: int | None = None


def build(publication: Publication, target: Target, *, extended: bool) -> Command:
    """The command for *target*; *extended* tells whether the topic takes headers.

    Raises NotSupported for what it can never take.
    """
    if target.partition is None:
        return _original(publication, target)
    if publication.delay is not None:
        raise NotSupported(
            f"{target.address} is a redesigned nsqd, which has no deferred publishing",
            hint="publish without delay=, and have the consumer requeue it with one",
        )
    adorned = bool(publication.headers) or publication.tag is not None
    if adorned and not extended:
        raise NotSupported(
            f"topic {publication.topic!r} takes no headers",
            hint="make the topic with extend_support, or publish without headers= and tag=",
        )
    if extended and (adorned or publication.trace_ids):
        return _extended(publication, target.partition)
    if publication.trace_ids:
        return _traced(publication, target.partition)
    return _plain(publication, target.partition)


def _original(publication: Publication, target: Target) -> Command:
    asked = {
        "headers= and tag=": bool(publication.headers) or publication.tag is not None,
        "trace= and trace_id=": bool(publication.trace_ids) and publication.must_trace,
    }
    for names, wanted in asked.items():
        if wanted:
            raise NotSupported(
                f"{target.address} is an original nsqd, which does not support {names}",
                hint=f"publish without {names}",
            )
    if publication.trace_ids:
        pass_over(publication.topic, target.name)
    if publication.delay is not None:
        return Command(commands.dpub(publication.topic, publication.bodies[0], publication.delay))
    return _plain(publication, None)


def _plain(publication: Publication, partition: int | None) -> Command:
    topic, bodies = publication.topic, publication.bodies
    if publication.batch:
        return Command(commands.mpub(topic, bodies, partition))
    # As commands.pub does, whose line is kept.
    line, body = commands.prefix("PUB", topic, partition), bodies[0]
    return Command(b"".join((line, _pack(len(body)), body)))


def _traced(publication: Publication, partition: int) -> Command:
    topic, bodies, trace_ids = publication.topic, publication.bodies, publication.trace_ids
    if publication.batch:
        entries = zip(trace_ids, bodies, strict=True)
        return Command(commands.mpub_trace(topic, entries, partition), _BATCH_TRACE)
    (trace_id,) = trace_ids
    return Command(commands.pub_trace(topic, bodies[0], trace_id, partition), trace_id)


def _extended(publication: Publication, partition: int) -> Command:
    trace_ids: tuple[int | None, ...] = publication.trace_ids or (None,) * len(publication.bodies)
    headers = [
        encode_header(publication.headers, tag=publication.tag, trace_id=trace_id)
        for trace_id in trace_ids
    ]
    if publication.batch:
        # Answered by a plain OK even with trace ids (protocol#mpub_ext).
        entries = zip(headers, publication.bodies, strict=True)
        return Command(commands.mpub_ext(publication.topic, entries, partition))
    (trace_id,) = trace_ids
    data = commands.pub_ext(publication.topic, publication.bodies[0], headers[0], partition)
    return Command(data, trace_id)


def with_trace_lines(
    client_id: str, publication: Publication, run: Callable[[], Receipt]
) -> Receipt:
    """Do *run*, and log a line for every message of *publication* that is traced."""
    trace_ids = publication.trace_ids
    if not trace_ids or not log.isEnabledFor(logging.INFO):
        return run()
    begun = monotonic()
    try:
        receipt = run()
    except PublishError as error:
        for trace_id in trace_ids:
            elapsed = monotonic() - begun
            publish_failed(publication.topic, trace_id, error, elapsed, client_id)
        raise
    elapsed = monotonic() - begun
    # Where it was passed over, nothing was traced.
    if receipt.trace_id is not None:
        for number, trace_id in enumerate(trace_ids):
            published(receipt.share(number, trace_id), elapsed, client_id)
    return receipt


def measured(
    meter: Meter | None, publication: Publication, began: float, run: Callable[[], Receipt]
) -> Receipt:
    """What *run* returns or raises: a publish call that began at *began*."""
    if meter is None:
        return run()
    result: Result = "error"
    try:
        receipt = run()
        result = "ok"
    finally:
        bodies = publication.bodies
        size = sum(map(len, bodies))
        meter.published(publication.topic, result, len(bodies), size, time.monotonic() - began)
    return receipt


def publish(shared: PublishingState, publication: Publication, deadline: float) -> Receipt:
    """Return once an nsqd has it, or raise a PublishError (ClientClosed: not even tried)."""
    if shared.meter is None:
        return carry_out(shared, publication, deadline)
    run = partial(carry_out, shared, publication, deadline)
    return measured(shared.meter, publication, monotonic(), run)


def carry_out(shared: PublishingState, publication: Publication, deadline: float) -> Receipt:
    """Publish without recording metrics."""
    call = Call(shared, publication, deadline)
    return with_trace_lines(shared.client_id, publication, call.run)


def publish_plain(
    shared: PublishingState, topic: str, body: bytes, now: float, deadline: float
) -> Receipt:
    """Publish one message without key, partition, trace, header and delay.

    Nearly every message takes this short path, until something goes wrong. *now* is the time it
    began.
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
    if shared.failing_topics.topics:
        shared.failing_topics.worked(topic)
    if shared.meter is not None:
        shared.meter.published(topic, "ok", 1, len(body), monotonic() - now)
    return route.receipt


def publish_plain_batch(
    shared: PublishingState, topic: str, bodies: tuple[bytes, ...], now: float, deadline: float
) -> Receipt:
    """Publish one batch without key, partition, trace, header and delay."""
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
    if shared.failing_topics.topics:
        shared.failing_topics.worked(topic)
    if shared.meter is not None:
        size = sum(map(len, bodies))
        shared.meter.published(topic, "ok", len(bodies), size, monotonic() - now)
    return Receipt(topic, target.partition, target.name, count=len(bodies))


def _go_on(
    shared: PublishingState,
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
        "_placement",
        "_publication",
        "_shared",
        "_target",
    )

    def __init__(
        self,
        shared: PublishingState,
        publication: Publication,
        deadline: float,
        failed: Retry | None = None,
    ) -> None:
        """*failed* is the state of an earlier attempt, made by publish_async."""
        self._shared = shared
        self._publication = publication
        self._deadline = deadline
        self._placement = Placement(shared, publication, deadline)
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
        self._placement.topology, self._target = topology, target
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
            # Twice if an interrupt comes in between: its traceback, if kept, would keep the turn.
            try:
                self._placement.release()
            except BaseException:
                self._placement.release()
                raise
            finally:
                self._shared.end(self)

    def _attempt(self) -> Receipt:
        self._target = None
        placement = self._placement
        target = self._target = placement.find()
        publication = self._publication = placement.publication
        extended = placement.topology is not None and placement.topology.meta.extended
        command = build(publication, target, extended=extended)
        placement.raise_fence()
        stored = self._shared.exchange(
            target,
            command.data,
            command.traced,
            self._deadline,
            monotonic(),
            batch=publication.batch,
            keyed=publication.key is not None or publication.partition is not None,
        )
        placement.settle_fence(answered=True)
        if self._shared.failing_topics.topics:
            self._shared.failing_topics.worked(publication.topic)
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
        """Add the attempts so far to an error that ends the call."""
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
        trial = Trial(self._publication, target, self._placement.partition, started)
        self._failed = retry = self._failed or self._shared.new_retry(self._deadline)
        self._failed, verdict = after_failure(self._shared, trial, retry, error, now)
        if target:
            self._placement.avoid |= {target.address}
            self._placement.settle_fence(answered=verdict.answered)
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
        topology, avoid = self._placement.topology, self._placement.avoid
        if self._publication.keyed or not verdict.elsewhere or topology is None:
            return False
        return any(target.address not in avoid for target in topology.targets)

    def _pause(self, seconds: float, verdict: Verdict, error: TransportError) -> None:
        """Pause before the next attempt; ends early when another call has found the leader."""
        self._placement.avoid = frozenset()
        if verdict.moved:
            self._shared.directory.pause(
                self._publication.topic, self._placement.generation, seconds
            )
        else:
            self._shared.ending.passed(seconds)
        if self._shared.ended:
            raise self._ended(error)

    def _look_again(self, target: Target | None, *, wait: bool) -> None:
        seen = self._placement.generation
        refused = [Refused(target.partition, target.address)] if target else []
        try:
            self._placement.topology = self._shared.directory.refresh(
                self._publication.topic, seen, self._deadline, refused=refused, wait=wait
            )
        except TransportError:
            # No lookup and no topology: the next attempt fails with that, and is counted.
            self._placement.topology = None

    def _ended(self, error: TransportError) -> Exception:
        """close() did not wait any longer."""
        closed = ClientClosed("the Producer was closed")
        closed.__cause__ = error
        failure = self._failure(closed)
        failure.__cause__ = closed
        return failure

    def _note_end(self, error: Exception) -> None:
        topic = self._publication.topic
        self._shared.failing_topics.failed(topic, str(error), monotonic(), ended=True)

    def _failure(self, error: TransportError | ClientClosed) -> Exception:
        retry = self._failed or self._shared.new_retry(self._deadline)
        if not isinstance(error, ClientClosed) and code_of(error) not in BAD_INPUT:
            self._note_end(error)
        return publish_error(self._publication.topic, retry, error, now=monotonic())


def publish_split(shared: PublishingState, whole: Publication, deadline: float) -> Receipt:
    """Publish the parts of *whole* in order; ends with the first one that fails.

    The receipt is that of the first part, but for ``count``, ``attempts`` (the most that a part
    took) and ``size`` (the sum).
    """
    first: Receipt | None = None
    for start, stop in _parts(whole.bodies):
        part = whole._replace(
            bodies=whole.bodies[start:stop], trace_ids=whole.trace_ids[start:stop]
        )
        try:
            receipt = publish(shared, part, deadline)
        except PublishError as error:
            error.accepted = start
            raise
        if first is None:
            first = receipt
            continue
        sizes = first.size is not None and receipt.size is not None
        first = replace(
            first,
            count=first.count + receipt.count,
            attempts=max(first.attempts, receipt.attempts),
            size=(first.size or 0) + (receipt.size or 0) if sizes else None,
        )
    assert first is not None  # noqa: S101 - there is at least one body
    return first


def _parts(bodies: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    """Where the parts begin and end."""
    start = size = 0
    for number, body in enumerate(bodies):
        if number > start and (size + len(body) > _MAX_BYTES or number - start >= _MAX_MESSAGES):
            yield start, number
            start, size = number, 0
        size += len(body)
    yield start, len(bodies)
