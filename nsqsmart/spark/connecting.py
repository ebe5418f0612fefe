"""From the options of the source to connections and figures."""

from __future__ import annotations

from typing import Any

from nsqsmart import Admin, AdminConfig, ConsumerConfig, PullSubscription
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.plan import Task


def pull(options: ReadOptions, task: Task) -> PullSubscription:
    """A connection to where *task* is; not opened yet.

    A short ``msg_timeout``: an original nsqd keeps what a dead task held until that is over.
    """
    given = {"msg_timeout": options.msg_timeout, **options.of(ConsumerConfig)}
    return PullSubscription(
        options.address,
        task.topic,
        options.channel,
        partition=task.partition,
        nsqd=task.nsqd if task.partition is None else None,
        **given,
    )


def pull_from(options: ReadOptions, task: Task, channel: str, position: Any) -> PullSubscription:
    """A connection to the partition of *task*, on *channel*, which begins at *position*."""
    given = {"max_in_flight": options.max_in_flight, **options.of(ConsumerConfig)}
    return PullSubscription(
        options.address,
        task.topic,
        channel,
        partition=task.partition,
        **{**given, "start_at": position},
    )


def admin(options: ReadOptions) -> Admin:
    """Who asks for figures."""
    return Admin(options.address, **options.of(AdminConfig))
