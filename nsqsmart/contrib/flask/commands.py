"""``flask nsq consume``, ``flask nsq ping`` and ``flask nsq tail``."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from typing import Any

import click
from flask import Flask
from flask.cli import AppGroup
from werkzeug._reloader import run_with_reloader

from nsqsmart import Consumer, Message
from nsqsmart.config import ConsumerConfig, resolve
from nsqsmart.contrib.flask.state import AppState
from nsqsmart.contrib.shared.declaring import Declared, choose
from nsqsmart.contrib.shared.fitting import describe_dialects, find_dialects, find_misfits
from nsqsmart.contrib.shared.running import (
    CONSUMING,
    ServersLost,
    Shift,
    StopLimits,
    describe,
)
from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.terminal import FAILED, INTERRUPTED, RETRY_LATER, drop


def make_group(state: AppState, handlers: Callable[[], list[Declared]]) -> AppGroup:
    """The commands of one app."""
    group = AppGroup("nsq", help="Consume from NSQ, and look at it.")

    _add_consume(group, state, handlers)

    @group.command("ping")
    @click.option("--timeout", type=float, default=5.0, show_default=True, help="Seconds.")
    def ping(timeout: float) -> None:
        """Do the servers answer, which are they, and can they do what is declared?"""
        _end(_ping(state, handlers(), timeout))

    @group.command("tail")
    @click.argument("topic")
    @click.option("--channel", help="Default: one that is gone with the command.")
    @click.option("-n", "--max-messages", type=int, help="Stop after so many messages.")
    def tail(topic: str, channel: str | None, max_messages: int | None) -> None:
        """Print the messages of TOPIC, one a line."""
        own = f"tail{secrets.token_hex(4)}#ephemeral"
        _end(_tail(state, topic, channel or own, max_messages))

    return group


def _add_consume(group: AppGroup, state: AppState, handlers: Callable[[], list[Declared]]) -> None:
    @group.command("consume")
    @click.option("--topic", help="Only handlers of this topic.")
    @click.option("--channel", help="Only handlers of this channel.")
    @click.option("--workers", type=int, help="Threads of each handler.")
    @click.option("--max-messages", type=int, help="Stop after so many messages.")
    @click.option("--exit-when-idle", type=float, help="Stop when none came for so many seconds.")
    @click.option(
        "--lost-after",
        type=float,
        default=120.0,
        show_default=True,
        help="End with exit code 75 when no nsqd was reached for so many seconds.",
    )
    @click.option("--reload", "reloads", is_flag=True, help="Start again when the code changes.")
    def consume(*, reloads: bool, **options: Any) -> None:
        """Run the handlers until SIGINT or SIGTERM; a second one ends it at once."""

        def work() -> None:
            _end(_consume(state, handlers(), options, at_exit=reloads))

        if reloads:
            run_with_reloader(work)
        else:
            work()


def _end(code: int) -> None:
    # A 0 is left to Flask: for its teardown functions an exit would be an error.
    if code:
        sys.exit(code)


def _consume(
    state: AppState, handlers: list[Declared], options: dict[str, Any], *, at_exit: bool
) -> int:
    """Consume until it ends; *at_exit* where signals are a reloader's. Returns the exit code."""
    try:
        limits = StopLimits(
            options["max_messages"], options["exit_when_idle"], options["lost_after"]
        )
        chosen = choose(handlers, topic=options["topic"], channel=options["channel"])
        shift = Shift(limits)
        for each in chosen:
            shift.add(each, around(state.app, each), state.settings, options["workers"])
            click.echo(f"{each.topic}/{each.channel}: {each.name}")
        if at_exit:
            shift.stop_at_exit()
        for line in describe(chosen, shift.run(lambda: click.echo(CONSUMING))):
            click.echo(line)
    except ServersLost as error:
        return _fail(str(error), RETRY_LATER)
    except NsqError as error:
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted while it drained", INTERRUPTED)
    return 0


def around(app: Flask, declared: Declared) -> Callable[[Any], object]:
    """The function of *declared* inside an app context, whose teardown sees what it raises."""

    def handle(given: Any) -> object:
        with app.app_context():
            return declared.function(given)

    return handle


def _ping(state: AppState, handlers: list[Declared], timeout: float) -> int:
    try:
        settings = state.settings
        with settings.make_producer() as producer:
            took = producer.ping(timeout)
        dialects = find_dialects(settings, timeout)
    except ConfigError as error:
        return _fail(str(error), FAILED)
    except NsqError as error:
        return _fail(str(error), RETRY_LATER)
    for nsqd, seconds in sorted(took.items()):
        click.echo(f"{nsqd} answered in {seconds * 1000:.1f} ms")
    for line in describe_dialects(dialects, settings):
        click.echo(line)
    wrong = find_misfits(dialects, settings, handlers)
    return _fail("; ".join(wrong), FAILED) if wrong else 0


def _tail(state: AppState, topic: str, channel: str, most: int | None) -> int:
    try:
        settings = state.settings
        options = settings.options_of(ConsumerConfig)
        if most:
            # What is not to be printed need not come.
            usual = resolve(ConsumerConfig, settings.url, options)[1].max_in_flight
            options["max_in_flight"] = min(most, usual)
        consumer = Consumer(topic, channel, address=settings.url, **options)
        with consumer:
            for number, message in enumerate(consumer, 1):
                _print(message)
                if number == most:
                    break
    except NsqError as error:
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        drop(sys.stdout)
    return 0


def _print(message: Message) -> None:
    try:
        click.echo(message.body)
    except BrokenPipeError:
        message.requeue(0.0, backoff=False)
        raise
    message.finish()


def _fail(text: str, code: int) -> int:
    click.echo(f"nsq: {text}", err=True)
    return code
