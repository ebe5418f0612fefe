"""What is said of wrong options, before anything is opened."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.errors import ConfigError
from nsqsmart.spark.options import ReadOptions, WriteOptions, duration

GOOD = {"address": "nsq+lookupd://127.0.0.1:4161", "subscribe": "orders", "channel": "archive"}


def test_names_are_spelt_in_any_case() -> None:
    options = ReadOptions.parse({**GOOD, "maxmessagespertrigger": "7", "POLLTIMEOUTMS": "1500"})
    assert options.max_messages_per_trigger == 7
    assert options.poll_timeout == 1.5
    assert options.msg_timeout == 10
    assert options.subscribe == ("orders",)


def test_client_options_have_their_own_names() -> None:
    options = ReadOptions.parse({**GOOD, "nsq.auth_secret": "s", "nsq.admin_timeout": "3"})
    assert options.client == {"auth_secret": "s", "admin_timeout": "3"}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"maxMessagePerTrigger": "7"}, "did you mean maxMessagesPerTrigger"),
        ({"nsq.pol_size": "3"}, "unknown option 'pol_size'"),
        ({"channel": "archive#ephemeral"}, "ephemeral"),
        ({"channel": "a b"}, "a b"),
        ({"assign": '{"orders": [0]}'}, "give one of the options subscribe"),
        ({"readMode": "spol"}, "did you mean spool"),
        ({"maxMessagesPerTrigger": "0"}, "maxMessagesPerTrigger is 0"),
        ({"maxMessagesPerTrigger": "many"}, "'many'"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"maxTriggerDelay": "soon"}, "'soon'"),
        ({"address": "nsq+embedded://demo"}, "Spark's processes cannot reach"),
        ({"address": "http://x"}, "an address begins with"),
    ],
)
def test_a_wrong_option_is_named(more: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReadOptions.parse(GOOD | more)


@pytest.mark.parametrize("assign", ["[]", "{}", '{"orders": []}', '{"orders": "0"}', "x"])
def test_an_assignment_is_json(assign: str) -> None:
    with pytest.raises(ConfigError, match="assign"):
        ReadOptions.parse({"address": GOOD["address"], "channel": "c", "assign": assign})


def test_the_channel_is_required() -> None:
    with pytest.raises(ConfigError, match="channel of the nsq source is missing"):
        ReadOptions.parse({"address": GOOD["address"], "subscribe": "orders"})


def test_where_the_spool_is() -> None:
    assert ReadOptions.parse({**GOOD, "checkpointLocation": "/ck/"}).spool == "/ck/nsq-spool"
    assert ReadOptions.parse({**GOOD, "spoolLocation": "/sp"}).spool == "/sp"
    with pytest.raises(ConfigError, match="spoolLocation"):
        _ = ReadOptions.parse(GOOD).spool


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSQSMART_URL", "nsq://127.0.0.1:4150")
    assert WriteOptions.parse({"topic": "t"}).address == "nsq://127.0.0.1:4150"


def test_times_as_spark_writes_them() -> None:
    assert duration("x", "15m") == 900
    assert duration("x", "30 s") == 30
    assert duration("x", "250ms") == 0.25
