"""A project that publishes with keys, and servers that keep no order: who tells it."""

from __future__ import annotations

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command

from nsqsmart.contrib.django import handlers, publish
from nsqsmart.contrib.shared.declaring import declare
from nsqsmart.embedded import Cluster
from nsqsmart.errors import NotSupported, OrderingNotSupported


@pytest.fixture
def original():
    with Cluster(dialect="original") as cluster:
        yield cluster


def found():
    checks = run_checks(tags=["nsqsmart"], include_deployment_checks=True)
    return {each.id: each.msg for each in checks}


def test_the_check_says_which_servers_these_are(nsq_settings, original):
    nsq_settings(default={"URL": original.url})
    assert "alias 'default': original NSQ: key=" in found()["nsqsmart.I001"]
    nsq_settings(default={"URL": original.url, "DIALECT": "original"})
    assert found() == {}
    nsq_settings(default={"URL": original.url, "DIALECT": "redesigned"})
    assert "the settings say redesigned" in found()["nsqsmart.W005"]


def test_ping_says_it_and_ends_with_1_where_it_does_not_fit(
    nsq_settings, original, capsys, monkeypatch
):
    nsq_settings(default={"URL": original.url})
    call_command("nsq_ping")
    assert "default: original NSQ: key=, partition=" in capsys.readouterr().out
    declared = [declare(print, "orders", "billing", {"ordered": True})]
    monkeypatch.setattr(handlers, "declared", declared)
    with pytest.raises(CommandError, match="has no ordered topics") as caught:
        call_command("nsq_ping")
    assert caught.value.returncode == 1


def test_a_recording_producer_refuses_what_the_servers_would(nsq_settings, recorded):
    nsq_settings(default={"URL": "nsq://h:1", "DIALECT": "original"})
    with pytest.raises(OrderingNotSupported):
        publish("orders", b"1", key="k", when="now")
    with pytest.raises(NotSupported):
        publish("orders", b"1", headers={"a": 1}, when="now")
    assert recorded == []
    options = {"ordering": "best-effort"}
    nsq_settings(default={"URL": "nsq://h:1", "DIALECT": "original", "OPTIONS": options})
    publish("orders", b"1", key="k", when="now")
    assert [each.key for each in recorded] == ["k"]


def test_a_relay_that_was_refused_ends_with_1(database, rows, nsq_settings, original, capsys):
    nsq_settings(default={"URL": original.url, "IN_TESTS": "send"})
    publish("orders", b"1", key="k", when="outbox", using=database)
    with pytest.raises(CommandError, match="1 refused for good") as caught:
        call_command("nsq_relay", once=True, database=database)
    assert caught.value.returncode == 1
    assert "0 sent, 1 refused, 0 kept" in capsys.readouterr().out
    assert rows().get().refused
    options = {"ordering": "best-effort"}
    nsq_settings(default={"URL": original.url, "IN_TESTS": "send", "OPTIONS": options})
    rows().update(refused=False)
    call_command("nsq_relay", once=True, database=database)
    assert not rows()
    assert [each.body for each in original.stored("orders")] == [b"1"]
