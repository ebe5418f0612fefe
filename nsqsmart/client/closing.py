"""Ending a consumer: what runs may finish, what has not started goes back, nothing is left.

The order is that of reliability L3: no new messages, workers finish or give back, answers leave,
then the sockets and threads end. Each step has what is left of one deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic

from nsqsmart.client.engine import Engine
from nsqsmart.client.staff import busy_readers
from nsqsmart.client.subscription import Subscription

_CLOSE_WAIT = 1.0


@dataclass(frozen=True, slots=True)
class CloseReport:
    """How a close ended.

    ``finished``, ``requeued`` and ``failed`` count over the consumer's life; ``given_up`` of the
    finished ones went to ``on_giving_up`` or the dead letters, or were skipped; ``channels_lost``
    says how often the cluster has forgotten the channel of a partition; ``timed_out`` counts what
    was not answered in time, and is delivered again. ``abandoned`` holds the ids (16 bytes) of
    messages whose handlers still ran at the deadline: their answers are dropped, and the server
    delivers them again.
    """

    finished: int
    requeued: int
    failed: int
    abandoned: tuple[bytes, ...] = ()
    given_up: int = 0
    channels_lost: int = 0
    timed_out: int = 0

    @property
    def clean(self) -> bool:
        """Whether every handler ended in time."""
        return not self.abandoned


def drain(engine: Engine, deadline: float) -> CloseReport:
    """End *engine* before *deadline* (monotonic seconds)."""
    engine.begin_drain()
    engine.keeper.close(deadline)
    subscriptions = engine.snapshot()
    _stop_deliveries(engine, subscriptions, deadline)
    engine.crew.dismiss()
    abandoned = engine.crew.join(deadline)
    for message in abandoned:
        message._give_back()
    engine.holdings.give_back()
    for subscription in subscriptions:
        if subscription.lane:
            # Heads that have failed since.
            subscription.lane.release_held()
    engine.giving_up.close(deadline)
    # However many do not end, they are waited for together.
    patience = max(deadline, monotonic() + _CLOSE_WAIT)
    for subscription in subscriptions:
        subscription.send_all(patience)
    engine.ticker.close(patience)
    left = {*engine.snapshot(), *subscriptions}
    for subscription in left:
        subscription.hang_up()
    for subscription in left:
        subscription.join(patience)
    return report(engine, tuple(message.id for message in abandoned))


def _stop_deliveries(engine: Engine, subscriptions: list[Subscription], deadline: float) -> None:
    """CLS, and wait for its answer: then nothing can reach the inbox behind the last worker."""
    for subscription in subscriptions:
        if subscription.outbox:
            subscription.close_politely()
        else:
            # Still being dialled: nobody waits for that.
            subscription.hang_up()
    busy = busy_readers(engine.crew, engine.config.workers)
    patience = min(deadline, monotonic() + _CLOSE_WAIT)
    for subscription in subscriptions:
        # Who is busy reads the answer when its handler has ended, which may last.
        until = deadline if subscription in busy else patience
        subscription.close_wait.wait(max(0.0, until - monotonic()))
        if subscription.lane:
            subscription.lane.release_held()


def report(engine: Engine, abandoned: tuple[bytes, ...] = ()) -> CloseReport:
    """The counts so far."""
    tallies, holdings = engine.crew.tallies, engine.holdings
    return CloseReport(
        sum(tally.finished for tally in tallies) + holdings.finished,
        sum(tally.requeued for tally in tallies) + holdings.requeued,
        sum(tally.failed for tally in tallies),
        abandoned,
        engine.giving_up.given_up,
        engine.standings.channels_lost,
        engine.timeouts.count,
    )
