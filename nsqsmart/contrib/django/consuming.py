"""The handlers of a project in a process of their own, each message as a request is treated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import connections, reset_queries, transaction

from nsqsmart import Requeue
from nsqsmart.config import ConsumerConfig
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.shared.declaring import Declared
from nsqsmart.contrib.shared.running import Limits, Shift


def around(declared: Declared) -> Callable[[Any], object]:
    """The function of *declared* with fresh database connections, in a transaction if it wants one.

    Each worker is a thread, and has connections of its own: without this, one that the database
    has closed would fail every message from then on. Inside a transaction, as in a TestCase, they
    stay as they are.
    """

    def handle(given: Any) -> object:
        reset_queries()
        _close_old_connections()
        try:
            return _handle(declared, given)
        finally:
            _close_old_connections()

    return handle


def _close_old_connections() -> None:
    """Close old connections, but not those inside a transaction, which Django's would."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _handle(declared: Declared, given: Any) -> object:
    if declared.atomic is None:
        return declared.function(given)
    # The message is finished when this returns, so after the commit.
    with transaction.atomic(using=declared.atomic):
        result = declared.function(given)
        if result is False or isinstance(result, Requeue):
            transaction.set_rollback(True, using=declared.atomic)
        return result


def make_shift(chosen: list[Declared], limits: Limits, workers: int | None) -> Shift:
    """Consumers for the *chosen* handlers; raises ConfigError. Nothing is dialled."""
    shift = Shift(limits)
    for each in chosen:
        shift.add(each, around(each), conf.get_alias(each.alias), workers)
    return shift


def pool_warnings(chosen: list[Declared], workers: int | None) -> list[str]:
    """Databases whose pool has fewer connections than there are threads that may want one."""
    threads = sum(
        each.options.get("workers", ConsumerConfig().workers) if workers is None else workers
        for each in chosen
    )
    found = []
    for name, database in settings.DATABASES.items():
        pool = database.get("OPTIONS", {}).get("pool")
        size = pool.get("max_size", pool.get("min_size", 4)) if isinstance(pool, dict) else None
        if isinstance(size, int) and size < threads:
            found.append(
                f"database {name!r} has a pool of {size} connections for {threads} workers: some "
                "will wait for others"
            )
    return found
