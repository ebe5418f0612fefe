"""The handlers of a project, declared in the ``nsq.py`` of its apps, and what runs them.

Each message is treated as Django treats a request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from django.conf import settings
from django.db import connections, reset_queries, transaction
from django.utils.module_loading import autodiscover_modules

from nsqsmart import Requeue
from nsqsmart.config import ConsumerConfig
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.shared.declaring import Declared, declare
from nsqsmart.contrib.shared.running import Shift, StopLimits

F = TypeVar("F", bound=Callable[..., object])

MODULE = "nsq"

declared: list[Declared] = []
"""Every handler that was declared, in order."""


def handler(
    topic: str,
    channel: str,
    *,
    alias: str = "default",
    atomic: bool | str = False,
    batch: bool = False,
    **options: Any,
) -> Callable[[F], F]:
    """Declare that a function consumes *topic* on *channel*, for ``manage.py nsq_consume``.

    What the function may return and raise is that of a handler of a :class:`nsqsmart.Consumer`.

    Args:
        topic, channel: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``.
        alias: of the setting NSQSMART.
        atomic: True, or the name of a database: each message is handled inside a transaction, and
            finished after its commit; a message that is requeued is rolled back.
        batch: the function takes a list of messages.
        **options: of the Consumer, as ``workers=8``.

    Raises TypeError and ConfigError for what cannot be used.
    """

    def decorate(function: F) -> F:
        made = declare(function, topic, channel, options)
        database = "default" if atomic is True else (atomic or None)
        declared.append(replace(made, alias=alias, batch=batch, atomic=database))
        return function

    return decorate


def discover(alias: str | None = None) -> list[Declared]:
    """Import the ``nsq.py`` of every app; returns all handlers, or those of *alias*."""
    autodiscover_modules(MODULE)
    return [each for each in declared if alias in (None, each.alias)]


def around(each: Declared) -> Callable[[Any], object]:
    """The function of *each* with fresh database connections, in a transaction if it wants one.

    Each worker is a thread, and has connections of its own: without this, one that the database
    has closed would fail every message from then on. Inside a transaction, as in a TestCase, they
    stay as they are.
    """

    def handle(given: Any) -> object:
        reset_queries()
        _close_old_connections()
        try:
            return _handle(each, given)
        finally:
            _close_old_connections()

    return handle


def _close_old_connections() -> None:
    """Close old connections, but not those inside a transaction, which Django's would."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _handle(each: Declared, given: Any) -> object:
    if each.atomic is None:
        return each.function(given)
    # The message is finished when this returns, so after the commit.
    with transaction.atomic(using=each.atomic):
        result = each.function(given)
        if result is False or isinstance(result, Requeue):
            transaction.set_rollback(True, using=each.atomic)
        return result


def make_shift(chosen: list[Declared], limits: StopLimits, workers: int | None) -> Shift:
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
