"""A secret, or a body, is in nothing that ends in a log: not in a repr, nor in what is pickled."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable

import pytest

import nsqsmart
from nsqsmart.client.messages.message import Message
from nsqsmart.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from nsqsmart.errors import ConfigError
from nsqsmart.net.handshake import make_greeting
from tests.helpers import eventually
from tests.peers import Peer, message_frame, subscribed
from tests.unit.client.doubles import FakeRuntime, Source, message_of

SECRET = "open-sesame-4711"
ADDRESS = f"nsq://127.0.0.1:1?auth_secret={SECRET}"

CLIENTS: dict[str, Callable[[], object]] = {
    "producer": lambda: nsqsmart.Producer(ADDRESS),
    "consumer": lambda: nsqsmart.Consumer("t", "c", print, address=ADDRESS),
    "pull": lambda: nsqsmart.PullSubscription(ADDRESS, "t", "c", nsqd="127.0.0.1:1"),
    "admin": lambda: nsqsmart.Admin(ADDRESS.replace("nsq:", "nsq+lookupd:")),
}
EVERY = pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS)


def shown(thing: object) -> str:
    """All that a log, a debugger or a template makes of it."""
    return f"{thing!r} {thing!s} {thing}"


@EVERY
def test_no_client_shows_its_secret_nor_does_what_it_consists_of(make) -> None:
    client = make()
    assert SECRET not in shown(client)
    for part in vars(client).values():
        assert SECRET not in shown(part)
        for inner in vars(part).values() if hasattr(part, "__dict__") else ():
            assert SECRET not in shown(inner)
    if not isinstance(client, nsqsmart.Admin):
        client.close()


@EVERY
def test_no_client_can_be_pickled_with_its_secret(make) -> None:
    client = make()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(client)
    if not isinstance(client, nsqsmart.Admin):
        client.close()


@pytest.mark.parametrize("kind", [ClientConfig, ProducerConfig, ConsumerConfig, AdminConfig])
def test_no_config_shows_its_secret(kind) -> None:
    config = kind(auth_secret=SECRET)
    assert SECRET not in shown(config)
    assert SECRET not in shown([config])
    assert SECRET not in shown(make_greeting(config))
    with pytest.raises(ConfigError) as caught:
        kind(auth_secret=SECRET, dial_timeout=-1)
    assert SECRET not in shown(caught.value)


def test_a_secret_arrives_whatever_hides_it() -> None:
    assert ProducerConfig(auth_secret=SECRET).auth_secret == SECRET


# ------------------------------------------------------------------------------------------ bodies

BODY = b"iban DE02 1203 0000 0000 2020 51"
TEXT = BODY.decode()


def test_a_message_shows_its_size_and_not_its_body() -> None:
    source = Source(runtime=FakeRuntime())
    made = message_of(source)
    message = Message(made._read_batch, 1, 1, bytes(16), BODY)
    assert f"{len(BODY)} B" in repr(message)
    for text in (shown(message), shown([message]), shown({"m": message})):
        assert TEXT not in text


def fail(_given: object) -> None:
    raise ValueError("no")


def detach(message: nsqsmart.Message) -> None:
    message.detach()


@pytest.mark.parametrize(
    "options",
    [
        {"handler": fail},
        {"handler": fail, "workers": 0},
        {"handler": fail, "max_attempts": 1, "on_giving_up": fail},
        {"handler": fail, "max_attempts": 1, "dead_letter_topic": "dead"},
        {"handler": detach},
        {"handler": lambda message: message.finish() and message.finish()},
        {"handler": lambda message: "a result"},
        {"batch_handler": fail, "batch_max_delay": 0.01},
    ],
    ids="-".join,
)
def test_no_record_of_a_consumer_holds_a_body_at_any_level(options, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    said: list[bytes] = []
    frames = message_frame(1, BODY), message_frame(2, BODY, attempts=5)
    options = {"close_timeout": 0.1} | options
    with Peer(subscribed(said.append, *frames)) as nsqd:
        with nsqsmart.Consumer("t", "c", address=nsqd.url, **options) as consumer:
            eventually(lambda: consumer._runtime.snapshot()[0].reader.received == 2)
            for part in (consumer, *vars(consumer).values(), consumer.stats(), consumer.health()):
                assert TEXT not in shown(part)
        assert BODY not in b"".join(said)
    for record in caplog.records:
        for text in (logging.Formatter().format(record), repr(record.args), repr(vars(record))):
            assert TEXT not in text
