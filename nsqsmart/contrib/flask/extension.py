"""The extension object: it holds declarations; all that runs belongs to an app."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from flask import Flask, current_app
from flask.sansio.blueprints import Blueprint

from nsqsmart import Producer, PublishArguments, Receipt
from nsqsmart.contrib.flask.commands import make_group
from nsqsmart.contrib.flask.sessions import wait_for_commit
from nsqsmart.contrib.flask.state import AppState
from nsqsmart.contrib.shared.declaring import Declared, declare
from nsqsmart.contrib.shared.delivering import Counts
from nsqsmart.contrib.shared.sending import Letter
from nsqsmart.testing.recording import Outbox

F = TypeVar("F", bound=Callable[..., object])

_NAME = "nsqsmart"


class NSQ:
    """Publishing and handlers for Flask apps; one object may serve several of them.

    Settings of an app: ``NSQSMART_URL`` (default: the environment's), and ``NSQSMART_OPTIONS``, a
    dict with options of producers and consumers. With ``TESTING`` and without the URL nothing is
    sent: it is in :attr:`outbox`.

    Args:
        app: one to register with at once.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._declared: list[Declared] = []
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Register with *app*, with its command ``flask nsq``; opens nothing.

        Raises RuntimeError the second time, ConfigError for settings that cannot be used.
        """
        if _NAME in app.extensions:
            raise RuntimeError("an NSQ was registered with this Flask app before: use that one")
        state = AppState(app, self)
        state.check()
        app.extensions[_NAME] = state
        app.cli.add_command(make_group(state, lambda: self.handlers_of(app)))

    # ----------------------------------------------------------------------------------- publish

    @property
    def producer(self) -> Producer:
        """The Producer of the current app, made on first use; raises ConfigError."""
        return self._state().producer

    def publish(self, topic: str, body: bytes, **arguments: Unpack[PublishArguments]) -> Receipt:
        """Publish now, with the current app's producer: :meth:`nsqsmart.Producer.publish`."""
        return self.producer.publish(topic, body, **arguments)

    def publish_json(
        self, topic: str, value: object, **arguments: Unpack[PublishArguments]
    ) -> Receipt:
        """Publish *value* as JSON now: :meth:`nsqsmart.Producer.publish_json`."""
        return self.producer.publish_json(topic, value, **arguments)

    def publish_many(self, topic: str, bodies: Iterable[bytes], **arguments: Any) -> Receipt:
        """Publish several messages at once: :meth:`nsqsmart.Producer.publish_many`."""
        return self.producer.publish_many(topic, bodies, **arguments)

    def publish_after_commit(
        self, session: Any, topic: str, body: bytes, **arguments: Unpack[PublishArguments]
    ) -> None:
        """Publish when *session* has committed, together with all that waits for it.

        A rollback, of a savepoint too, drops it; but where no transaction has begun yet, it waits
        for the next one of *session*. Nothing is raised if publishing fails then: it is logged at
        ERROR and counted, and the signal ``publish_failed`` is sent. The arguments are looked at,
        and the body is copied, at once.

        Args:
            session: of SQLAlchemy, or the ``db.session`` of Flask-SQLAlchemy.
            topic, body, **arguments: as for :meth:`nsqsmart.Producer.publish`.

        Raises TypeError and ConfigError for an argument that cannot be used.
        """
        letter = Letter.write(topic, body, "default", **arguments)
        wait_for_commit(session, self._state(), letter)

    @property
    def outbox(self) -> Outbox:
        """The messages that the current app has published in tests."""
        return self._state().outbox

    def counts(self) -> Counts:
        """Messages of the current app that waited for a commit: published, and failed."""
        return self._state().tally.total()

    def close(self) -> None:
        """Close the current app's producer, as at the end of a test; the next use makes another."""
        self._state().close()

    # ----------------------------------------------------------------------------------- consume

    def handler(
        self, topic: str, channel: str, *, batch: bool = False, **options: Any
    ) -> Callable[[F], F]:
        """Declare that a function consumes *topic* on *channel*, for ``flask nsq consume``.

        Each message is handled inside an app context of its own. What the function may return and
        raise is that of a handler of a :class:`nsqsmart.Consumer`.

        Args:
            topic, channel: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``.
            batch: the function takes a list of messages.
            **options: of the Consumer, as ``workers=8``.

        Raises TypeError and ConfigError for what cannot be used.
        """
        return self._declare(None, topic, channel, batch=batch, options=options)

    def blueprint_handler(
        self,
        blueprint: Blueprint,
        topic: str,
        channel: str,
        *,
        batch: bool = False,
        **options: Any,
    ) -> Callable[[F], F]:
        """Declare a :meth:`handler` for the apps that *blueprint* is registered with."""
        return self._declare(blueprint, topic, channel, batch=batch, options=options)

    def handlers_of(self, app: Flask) -> list[Declared]:
        """The handlers that are declared for *app*."""
        blueprints = list(app.blueprints.values())
        return [
            each
            for each in self._declared
            if each.owner is None or any(each.owner is blueprint for blueprint in blueprints)
        ]

    def _declare(
        self,
        owner: object,
        topic: str,
        channel: str,
        *,
        batch: bool,
        options: dict[str, Any],
    ) -> Callable[[F], F]:
        def decorate(function: F) -> F:
            made = declare(function, topic, channel, options)
            self._declared.append(replace(made, batch=batch, owner=owner))
            return function

        return decorate

    def _state(self) -> AppState:
        state = current_app.extensions.get(_NAME)
        if not isinstance(state, AppState) or state.owner is not self:
            raise RuntimeError("the current Flask app was not registered: call nsq.init_app(app)")
        return state
