"""The handlers of a project, declared in the ``nsq.py`` of its apps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from django.utils.module_loading import autodiscover_modules

from nsqsmart.contrib.shared.declaring import Declared, declare

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
