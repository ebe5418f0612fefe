"""The setting NSQSMART: what is refused, in which words; and the producers made of it."""

from __future__ import annotations

import os
import threading
import types

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.test.utils import override_settings

import nsqsmart
from nsqsmart.contrib.django import conf, handler, handlers, producers
from nsqsmart.embedded import Cluster
from nsqsmart.errors import ClientClosed, ConfigError
from nsqsmart.testing.recording import RecordingProducer

URL = "nsq://127.0.0.1:1"


def found(**arguments) -> dict[str, str]:
    """What the checks say, by id."""
    return {each.id: each.msg for each in run_checks(tags=["nsqsmart"], **arguments)}


@pytest.fixture
def declared(recorded, monkeypatch):
    """No handler is declared yet."""
    made: list = []
    monkeypatch.setattr(handlers, "declared", made)
    return made


# --------------------------------------------------------------------------------------- checks


def test_good_settings_have_nothing_wrong(recorded, declared):
    assert found() == {}


@pytest.mark.parametrize(
    ("entry", "wrong", "words"),
    [
        ({}, "nsqsmart.E001", "no address: give one or set NSQSMART_URL"),
        ({"URL": "h:4150"}, "nsqsmart.E001", "an address begins with one of"),
        ({"URL": 7}, "nsqsmart.E001", "must be a str, not int"),
        ({"URL": URL, "OPTIONS": {"publish_timeot": 3}}, "nsqsmart.E002", "mean publish_timeout?"),
        ({"URL": URL, "OPTIONS": {"max_in_flite": 3}}, "nsqsmart.E002", "mean max_in_flight?"),
        ({"URL": URL, "OPTIONS": {"workers": "many"}}, "nsqsmart.E002", "workers='many'"),
        ({"URL": URL, "OPTIONS": [1]}, "nsqsmart.E002", "must be a dict"),
        ({"URL": URL, "OPTION": {}}, "nsqsmart.E002", "did you mean OPTIONS?"),
        ({"url": URL}, "nsqsmart.E002", "did you mean URL?"),
        ({"URL": URL, "PUBLISH": "on_comit"}, "nsqsmart.E002", "did you mean on_commit?"),
        ({"URL": URL, "IN_TESTS": "yes"}, "nsqsmart.E002", "none of record, send"),
        ({"URL": URL, "DIALECT": "old"}, "nsqsmart.E002", "none of original, redesigned"),
        (URL, "nsqsmart.E002", "must be a dict with the keys URL"),
    ],
)
def test_wrong_settings_are_named_with_the_alias(nsq_settings, declared, entry, wrong, words):
    nsq_settings(default={"URL": URL}, audit=entry)
    messages = found()
    assert set(messages) == {wrong}
    assert words in messages[wrong]
    assert "settings.NSQSMART['audit']" in messages[wrong]


@pytest.mark.parametrize("setting", [None, {}, {"audit": {"URL": URL}}, [1]])
def test_there_must_be_a_default(recorded, declared, setting):
    with override_settings(NSQSMART=setting):
        assert 'have "default"' in found()["nsqsmart.E002"]


def test_no_secret_is_shown(nsq_settings, declared):
    nsq_settings(default={"URL": URL, "OPTIONS": {"auth_secret": ["hidden"]}})
    assert "hidden" not in found()["nsqsmart.E002"]


def test_a_cluster_inside_the_process_is_for_development(nsq_settings, declared, monkeypatch):
    nsq_settings(default={"URL": "nsq+embedded://shop"})
    assert found() == {}  # in tests
    monkeypatch.setattr(conf, "in_tests", lambda: False)
    assert "nsq+embedded://shop" in found()["nsqsmart.E004"]
    with override_settings(DEBUG=True):
        assert found() == {}


def test_now_with_a_transaction_around_each_request(nsq_settings, declared, settings_with_requests):
    nsq_settings(default={"URL": URL, "PUBLISH": "now"}, audit={"URL": URL})
    messages = found()
    assert list(messages) == ["nsqsmart.W001"]
    assert "NSQSMART['default']" in messages["nsqsmart.W001"]


@pytest.fixture
def settings_with_requests(recorded, monkeypatch):
    from django.conf import settings

    monkeypatch.setitem(settings.DATABASES["default"], "ATOMIC_REQUESTS", True)


def test_two_handlers_on_a_channel(declared):
    def bill(message): ...

    def send(message): ...

    handler("orders", "billing")(bill)
    handler("orders", "mail")(bill)
    assert found() == {}
    handler("orders", "billing")(send)
    assert ".bill and " in found()["nsqsmart.E003"]
    assert "topic 'orders' on channel 'billing'" in found()["nsqsmart.E003"]


def test_a_module_without_a_handler(declared, monkeypatch):
    module = types.ModuleType("nsqsmart.contrib.django.nsq")
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)
    assert "declares no handler" in found()["nsqsmart.W002"]
    handler("orders", "billing")(lambda message: None)
    assert found() == {}


def test_uwsgi_without_threads(declared, monkeypatch):
    handler("orders", "billing")(lambda message: None)
    uwsgi = types.ModuleType("uwsgi")
    uwsgi.opt = {"master": True}
    monkeypatch.setitem(__import__("sys").modules, "uwsgi", uwsgi)
    assert "without threads" in found()["nsqsmart.W003"]
    uwsgi.opt = {"enable-threads": True}
    assert found() == {}


def test_servers_are_asked_before_a_deployment_alone(nsq_settings, declared):
    with Cluster(nsqds=1) as cluster:
        nsq_settings(default={"URL": cluster.url, "DIALECT": "redesigned"})
        assert found(include_deployment_checks=True) == {}
        nsq_settings(default={"URL": cluster.url}, audit={"URL": URL})
        assert found() == {}
        assert "alias 'audit'" in found(include_deployment_checks=True)["nsqsmart.W004"]


@pytest.mark.parametrize(
    ("given", "named", "words"),
    [
        (("orders", "billing"), {"worker": 2}, "did you mean workers.*from the handler .*bill"),
        (("orders", "billing"), {"workers": -1}, "workers=-1 from the handler"),
        (("orders", "billing"), {"publish_timeout": 1}, "an option of ProducerConfig"),
        (("bad topic", "billing"), {}, "bad topic"),
        (("orders", "bad channel"), {}, "bad channel"),
    ],
)
def test_a_handler_with_a_mistake_is_refused(declared, given, named, words):
    def bill(message): ...

    with pytest.raises(ConfigError, match=words):
        handler(*given, **named)(bill)
    assert declared == []


# ------------------------------------------------------------------------------------ producers


def test_a_producer_is_made_once_for_all_threads(nsq_settings):
    nsq_settings(default={"URL": URL, "IN_TESTS": "send"})
    seen, gate = set(), threading.Barrier(8)

    def ask():
        gate.wait(10)
        seen.add(producers["default"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 1


def test_other_settings_make_other_producers_and_close_the_old_ones(nsq_settings):
    nsq_settings(default={"URL": URL, "IN_TESTS": "send"})
    first = producers["default"]
    with override_settings(NSQSMART={"default": {"URL": "nsq://h:2", "IN_TESTS": "send"}}):
        assert "h:2" in repr(producers["default"])
        with pytest.raises(ClientClosed):
            first.publish("orders", b"1")
    assert "127.0.0.1:1" in repr(producers["default"])


def test_another_setting_is_nobodys_business(nsq_settings):
    nsq_settings(default={"URL": URL, "IN_TESTS": "send"})
    first = producers["default"]
    with override_settings(DEBUG=True):
        assert producers["default"] is first


def test_in_tests_it_records_whatever_the_settings_say(nsq_settings):
    nsq_settings(default={"URL": URL, "OPTIONS": {"nonsense": 1}})
    assert isinstance(producers["default"], RecordingProducer)


def test_outside_of_tests_it_sends(recorded, monkeypatch):
    monkeypatch.setattr(conf, "in_tests", lambda: False)
    assert type(producers["default"]) is nsqsmart.Producer
    producers.close()


def test_tests_are_told_by_the_environment_of_django(recorded, monkeypatch):
    from django.test.utils import setup_test_environment, teardown_test_environment

    assert conf.in_tests()
    teardown_test_environment()
    assert not conf.in_tests()
    setup_test_environment()


def test_options_reach_the_producer_and_its_patience_is_that_of_a_request(nsq_settings):
    nsq_settings(
        default={"URL": URL},
        slow={"URL": URL, "OPTIONS": {"publish_timeout": "7s", "max_in_flight": 3}},
        asked={"URL": f"{URL}?publish_timeout=8"},
    )
    limits = {
        name: conf.get_alias(name).target()[1].publish_timeout
        for name in ("default", "slow", "asked")
    }
    assert limits == {"default": 5.0, "slow": 7.0, "asked": 8.0}


def test_without_the_setting_the_environment_says_where(recorded, monkeypatch):
    from django.conf import settings

    with override_settings():
        del settings.NSQSMART
        conf.forget()
        monkeypatch.setenv("NSQSMART_URL", "nsq://h:3")
        assert "h:3" in str(conf.get_alias("default").target()[0])
    conf.forget()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_of_a_fork_goes_on_with_the_same_alias(nsq_settings):
    with Cluster(nsqds=1) as cluster:
        cluster.create_topic("orders")
        cluster.create_channel("orders", "ch")
        nsq_settings(default={"URL": cluster.url, "IN_TESTS": "send"})
        producers["default"].publish("orders", b"parent")
        process = os.fork()
        if process == 0:
            code = 1
            try:
                producers["default"].publish("orders", b"child")
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        producers["default"].publish("orders", b"parent again")
        assert [each.body for each in cluster.stored("orders")] == [
            b"parent",
            b"child",
            b"parent again",
        ]


def test_options_win_over_the_query_of_the_url(nsq_settings):
    url = f"{URL}?publish_timeout=60&pool_size=7"
    nsq_settings(default={"URL": url, "OPTIONS": {"publish_timeout": 0.2}, "IN_TESTS": "send"})
    config = producers["default"]._config
    assert (config.publish_timeout, config.pool_size) == (0.2, 7)


# --------------------------------------------------------------------------------------- nsq_ping


def test_ping_tells_who_answers(nsq_settings, capsys):
    with Cluster(nsqds=2, lookupds=1) as cluster:
        nsq_settings(default={"URL": cluster.url})
        call_command("nsq_ping")
        out = capsys.readouterr().out
    assert out.count("default: 127.0.0.1:") == 2
    assert " ms" in out


@pytest.mark.parametrize(
    ("settings", "options", "code", "words"),
    [
        ({"default": {"URL": URL}}, {}, 75, "default: no nsqd answers"),
        ({"default": {"URL": "h"}}, {}, 1, "an address begins with"),
        ({"default": {"URL": URL}}, {"alias": "defalt"}, 1, "did you mean default?"),
    ],
)
def test_ping_has_exit_codes(nsq_settings, settings, options, code, words):
    nsq_settings(**settings)
    with pytest.raises(CommandError) as caught:
        call_command("nsq_ping", timeout=0.5, **options)
    assert caught.value.returncode == code
    assert words in str(caught.value)
