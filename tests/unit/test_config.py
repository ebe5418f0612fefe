"""Options: one spelling, four sources, one table; and the addresses that carry them."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import pickle
import ssl
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.config import (
    KINDS,
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    EmbeddedConfig,
    Endpoint,
    Kind,
    ProducerConfig,
    embedded_config,
    options_of,
    read_options,
    resolve,
    variable,
)
from nsqsmart.config.resolve import _MISSPELT
from nsqsmart.config.values import read, read_seconds
from nsqsmart.errors import ConfigError
from nsqsmart.names import Address

HERE = "nsq://localhost"
SECRET = "s3cr3t+/=&#"
ROWS = [
    pytest.param(kind, name, option, id=f"{kind.__name__}.{name}")
    for kind in (*KINDS, EmbeddedConfig)
    for name, option in options_of(kind).items()
]


def outcome(kind=ProducerConfig, address=HERE, environ=None, config=None, **options):
    """What resolve() makes of these, the config alone."""
    return resolve(kind, address, options, config=config, environ=environ or {})[1]


# ---------------------------------------------------------------------------------- the table


@pytest.mark.parametrize(("kind", "name", "option"), ROWS)
def test_every_default_is_permitted(kind, name, option) -> None:
    assert option.check(name, option.default) == option.default
    assert getattr(kind(), name) == option.default
    assert type(getattr(kind(), name)) is type(option.default)


@pytest.mark.parametrize(("kind", "name", "option"), ROWS)
def test_every_option_says_what_it_is(kind, name, option) -> None:
    assert option.help.endswith(".")
    assert len(option.permitted) > 5


@pytest.mark.parametrize(("kind", "name", "option"), ROWS)
def test_bounds_are_permitted_and_what_is_beyond_is_not(kind, name, option) -> None:
    for bound, step in ((option.minimum, -1), (option.maximum, 1)):
        if bound is None:
            continue
        assert option.check(name, bound) == bound
        beyond = bound + step if option.off is None else bound + step * 2
        with pytest.raises(ConfigError, match=name):
            option.check(name, beyond)
    if option.off is not None:
        assert option.check(name, option.off) == option.off
        assert option.check(name, str(option.off)) == option.off


@pytest.mark.parametrize(("kind", "name", "option"), ROWS)
def test_no_option_takes_an_object_it_does_not_know(kind, name, option) -> None:
    with pytest.raises(ConfigError) as caught:
        option.check(name, object(), "NSQSMART_SOMEWHERE")
    assert name in str(caught.value)
    assert "from NSQSMART_SOMEWHERE" in str(caught.value)
    assert option.permitted in str(caught.value)


@pytest.mark.parametrize(("kind", "name", "option"), ROWS)
def test_none_is_for_options_without_a_default(kind, name, option) -> None:
    if option.default is None:
        assert option.check(name, None) is None
    else:
        with pytest.raises(ConfigError, match=name):
            option.check(name, None)


def test_a_name_means_the_same_for_every_client() -> None:
    for one, other in itertools.combinations(map(options_of, KINDS), 2):
        for name in one.keys() & other.keys():
            assert one[name].kind is other[name].kind
            assert one[name].minimum == other[name].minimum


def test_the_defaults_that_were_measured() -> None:
    producer, consumer = ProducerConfig(), ConsumerConfig()
    assert (producer.publish_timeout, producer.publish_attempts) == (60, 0)
    assert (producer.dial_timeout, producer.handshake_timeout, producer.write_timeout) == (5, 5, 10)
    assert (producer.retry_pause, producer.max_retry_pause) == (0.05, 1)
    assert (producer.close_timeout, consumer.close_timeout) == (10, 30)
    assert (consumer.workers, consumer.max_in_flight, consumer.ordered) == (4, 200, "auto")
    assert AdminConfig().admin_timeout == 150
    assert producer.max_frame_size == 5 * 1024 * 1024 + 64
    assert producer.output_buffer_timeout == 0.025
    assert not producer.tls_insecure_skip_verify


# ------------------------------------------------------------------------------ text to values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("250ms", 0.25),
        ("35ms", 0.035),
        ("2s", 2),
        ("1m", 60),
        ("1m30s", 90),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("1500us", 0.0015),
        ("1500µs", 0.0015),
        ("100ns", 1e-7),
        ("5", 5),
        ("0.25", 0.25),
        ("1e-3", 0.001),
        ("-1", -1),
        (7, 7),
        (0.25, 0.25),
    ],
)
def test_seconds_are_read(text, value) -> None:
    assert read_seconds(text) == value
    assert isinstance(read_seconds(text), float)


@pytest.mark.parametrize(
    "text",
    ["", " ", "5x", "ms", "5 s", "-5s", "1m-2s", "s5", "nan", "inf", "-inf", "1" * 400, "1..2s"]
    + [True, None, b"5", [5], math.nan, math.inf, 10**400, "9" * 400 + "s"],
)
def test_what_is_no_time_is_not_read(text) -> None:
    assert read_seconds(text) is None


@given(st.text())
def test_no_text_upsets_a_reader(text: str) -> None:
    for kind in Kind:
        read(kind, text, ("one", True, False))


@pytest.mark.parametrize("text", ["1", "true", "True", "YES", "on"])
def test_flags_on(text: str) -> None:
    assert ClientConfig(deflate=text).deflate is True


@pytest.mark.parametrize("text", ["0", "false", "False", "NO", "off"])
def test_flags_off(text: str) -> None:
    assert ProducerConfig(serialize=text).serialize is False


@pytest.mark.parametrize("value", ["", "maybe", 1, 0, None, "2"])
def test_what_is_no_flag(value) -> None:
    with pytest.raises(ConfigError, match="True or False"):
        ClientConfig(deflate=value)


@pytest.mark.parametrize("value", ["5.0", 5.0, True, "", "five", "1_0", "\u0665"])
def test_what_is_no_whole_number(value) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        ClientConfig(deflate_level=value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("auto", "auto"), (True, True), (False, False), ("true", True), ("0", False)],
)
def test_ordered_has_three_values(value, expected) -> None:
    assert ConsumerConfig(ordered=value).ordered is expected


@pytest.mark.parametrize("value", [1, 0, None, "always", "AUTO", 1.0, ["auto"]])
def test_ordered_has_only_three_values(value) -> None:
    with pytest.raises(ConfigError, match="'auto', True or False"):
        ConsumerConfig(ordered=value)


def test_a_choice_may_be_a_callable() -> None:
    assert ProducerConfig(sharding=hash).sharding is hash
    assert ConsumerConfig(on_order_violation=print).on_order_violation is print
    with pytest.raises(ConfigError, match=r"'java', 'murmur3', 'crc32', 'modulo' or a callable"):
        ProducerConfig(sharding="md5")
    with pytest.raises(ConfigError, match="tls_min_version"):
        ConsumerConfig(tls_min_version=print)


def test_a_path_is_a_text() -> None:
    assert ClientConfig(tls_cert=Path("client.pem")).tls_cert == "client.pem"


def test_objects_are_kept() -> None:
    context = ssl.create_default_context()
    assert ClientConfig(tls_config=context).tls_config is context
    assert ClientConfig(address_map={"a:1": "b:1"}).address_map == {"a:1": "b:1"}
    assert ClientConfig(address_policy=callable).address_policy is callable
    with pytest.raises(ConfigError, match=r"ssl\.SSLContext"):
        ClientConfig(tls_config={"ca": "x"})


def test_none_as_text_unsets_what_may_be_unset() -> None:
    assert outcome(address=f"{HERE}?response_timeout=none").response_timeout is None
    assert outcome(address=f"{HERE}?client_id=none").client_id == "none"
    with pytest.raises(ConfigError, match="dial_timeout"):
        outcome(address=f"{HERE}?dial_timeout=none")


# ----------------------------------------------------------------------------------- a config


def test_a_config_is_frozen_small_and_varied_by_replace() -> None:
    config = ProducerConfig(pool_size=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.pool_size = 4  # type: ignore[misc]
    assert not hasattr(config, "__dict__")
    varied = dataclasses.replace(config, dial_timeout="1m")
    assert (varied.pool_size, varied.dial_timeout) == (3, 60)
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ConfigError, match="dial_timeout"):
        dataclasses.replace(config, dial_timeout=0)


def test_an_error_names_option_value_and_range() -> None:
    with pytest.raises(ConfigError, match=r"^deflate_level=10 .*a whole number from 1 to 9$"):
        ClientConfig(deflate_level=10)
    with pytest.raises(ConfigError, match=r"from 64 to 65536 or -1 for off$"):
        ClientConfig(output_buffer_size=0)
    with pytest.raises(ConfigError, match=r"a whole number, 0 or more$"):
        ProducerConfig(publish_attempts=-1)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (ClientConfig, {"deflate": True, "snappy": True}, "deflate and snappy"),
        (ClientConfig, {"tls_key": "k.pem"}, "tls_key needs tls_cert"),
        (ClientConfig, {"retry_pause": 2}, "exceeds max_retry_pause"),
        (ConsumerConfig, {"ordered": True, "sample_rate": 5}, "sample_rate"),
        (ConsumerConfig, {"force_ordered": True}, "needs ordered=True"),
        (ConsumerConfig, {"desired_tag": "é" * 51}, "100 bytes"),
        (ConsumerConfig, {"max_attempts": 5}, "max_attempts=5 would drop messages: say who"),
        (ConsumerConfig, {"on_giving_up": print, "dead_letter_topic": "d"}, "choose one"),
        (ConsumerConfig, {"touch_every": 30, "msg_timeout": 30}, "less than msg_timeout 30"),
    ],
)
def test_options_that_contradict_each_other(kind, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**options)


@pytest.mark.parametrize("kind", [ProducerConfig, ConsumerConfig])
def test_every_kind_of_client_has_the_common_checks(kind) -> None:
    with pytest.raises(ConfigError, match="deflate and snappy"):
        kind(deflate=True, snappy=True)


def test_a_context_replaces_the_other_tls_options() -> None:
    with pytest.raises(ConfigError, match="tls_config replaces tls_root_ca_file, tls_cert"):
        ClientConfig(
            tls_config=ssl.create_default_context(), tls_root_ca_file="ca.pem", tls_cert="c.pem"
        )


# ---------------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "scheme", "addresses"),
    [
        ("nsq://h", "nsq", [("h", 4150)]),
        ("nsq://h:1,h2", "nsq", [("h", 1), ("h2", 4150)]),
        ("nsq://h:1,h:1,h:2/", "nsq", [("h", 1), ("h", 2)]),
        (" NSQ://h ", "nsq", [("h", 4150)]),
        ("nsqs://10.0.0.1", "nsqs", [("10.0.0.1", 4150)]),
        ("nsq+lookupd://l1,l2:80", "nsq+lookupd", [("l1", 4161), ("l2", 80)]),
        ("nsqs+lookupd://l", "nsqs+lookupd", [("l", 4161)]),
        ("nsq://[::1],[fe80::1%25en0]:9", "nsq", [("::1", 4150), ("fe80::1%25en0", 9)]),
    ],
)
def test_addresses(url: str, scheme: str, addresses) -> None:
    endpoint = Endpoint.parse(url)
    assert endpoint.scheme == scheme
    assert endpoint.addresses == tuple(Address(*each) for each in addresses)
    assert endpoint.tls is scheme.startswith("nsqs")
    assert endpoint.discovers is scheme.endswith("lookupd")
    assert not endpoint.embedded
    assert Endpoint.parse(str(endpoint)) == endpoint
    assert hash(endpoint) == hash(Endpoint.parse(url))


def test_an_embedded_cluster_has_a_name() -> None:
    endpoint = Endpoint.parse("nsq+embedded://demo?partitions=2&dialect=original")
    assert (endpoint.name, endpoint.embedded, endpoint.discovers) == ("demo", True, False)
    assert str(endpoint) == "nsq+embedded://demo"
    assert embedded_config(endpoint) == EmbeddedConfig(partitions=2, dialect="original")
    assert embedded_config(Endpoint.parse("nsq+embedded://demo?pool_size=2")) == EmbeddedConfig()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "begins with"),
        ("localhost:4150", "nsq://HOST:4150"),
        ("http://l:4161", r"nsq\+lookupd://"),
        ("nsq:/h", "begins with"),
        ("nsq://", "lacks a host"),
        ("nsq://a,,b", "lacks a host"),
        ("nsq://a,", "lacks a host"),
        ("nsq://a b", "hold no ' '"),
        ("nsq://user@h", "hold no '@'"),
        ("nsq://h:0", "port 0"),
        ("nsq://h:65536", "port 65536"),
        ("nsq://h:x", "host:port"),
        ("nsq://::1", "brackets"),
        ("nsq://h/path", "begins with"),
        ("nsq://h#x", "begins with"),
        ("nsq://h?a=1#x", "%23"),
        ("nsq://h?a", "name=value"),
        ("nsq://h?=a", "name=value"),
        ("nsq://h?a=1&", "name=value"),
        ("nsq+embedded://", "needs a name"),
        ("nsq+embedded://a,b", "needs a name"),
    ],
)
def test_what_is_no_address(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Endpoint.parse(url)


@pytest.mark.parametrize("url", [b"nsq://h", ["h"], 4150])
def test_an_address_is_a_str(url) -> None:
    with pytest.raises(TypeError, match="address is a str"):
        Endpoint.parse(url)


@given(st.text(alphabet="nsq+lookupd:/@?&=#,[]%.0159 \n", max_size=40))
def test_no_address_raises_anything_else(tail: str) -> None:
    for url in (tail, f"nsq://{tail}", f"nsq+embedded://demo?{tail}"):
        try:
            Endpoint.parse(url)
        except ConfigError:
            continue


# ---------------------------------------------------------------------------- whose value wins


def test_precedence() -> None:
    environ = {"NSQSMART_DIAL_TIMEOUT": "1s"}
    query = f"{HERE}?dial_timeout=2s"
    assert outcome().dial_timeout == 5
    assert outcome(environ=environ).dial_timeout == 1
    assert outcome(environ=environ, address=query).dial_timeout == 2
    assert outcome(environ=environ, address=query, dial_timeout="3s").dial_timeout == 3


def test_a_config_stands_in_for_environment_and_defaults() -> None:
    environ = {"NSQSMART_DIAL_TIMEOUT": "1s", "NSQSMART_POOL_SIZE": "7"}
    config = ProducerConfig(pool_size=3)
    assert outcome(environ=environ, config=config) == config
    query = f"{HERE}?dial_timeout=2s"
    varied = outcome(environ=environ, config=config, address=query, write_timeout=9)
    assert varied == dataclasses.replace(config, dial_timeout=2, write_timeout=9)
    with pytest.raises(TypeError, match="ProducerConfig, not a ConsumerConfig"):
        outcome(config=ConsumerConfig())


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_has_one_spelling_in_every_source(kind) -> None:
    texts = {
        Kind.SECONDS: "1s",
        Kind.INTEGER: "3",
        Kind.NUMBER: "0.5",
        Kind.FLAG: "true",
        Kind.TEXT: "text",
        Kind.PATH: "file.pem",
    }
    others = {"max_frame_size": "2048", "output_buffer_size": "128", "snappy": "false"}
    needs = {
        "force_ordered": {"ordered": "true"},
        "tls_key": {"tls_cert": "c.pem"},
        "max_attempts": {"dead_letter_topic": "dead"},
    }
    for name, option in options_of(kind).items():
        if option.kind is Kind.OBJECT:
            continue
        text = others.get(name) or texts.get(option.kind) or str(option.choices[-1])
        tls = "nsqs://h" if name.startswith("tls_") else "nsq://h"
        more = needs.get(name, {})
        by_keyword = outcome(kind, tls, **{name: text}, **more)
        assert by_keyword == outcome(kind, f"{tls}?{name}={text}", **more)
        assert by_keyword == outcome(kind, tls, {variable(name): text}, **more)
        assert getattr(by_keyword, name) == option.check(name, text)


def test_the_address_may_come_from_the_environment() -> None:
    endpoint, config = resolve(ProducerConfig, environ={"NSQSMART_URL": f"{HERE}?pool_size=2"})
    assert endpoint.addresses == (Address("localhost", 4150),)
    assert config.pool_size == 2
    with pytest.raises(ConfigError, match="^NSQSMART_URL: .*begins with"):
        resolve(ProducerConfig, environ={"NSQSMART_URL": "localhost"})


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSQSMART_URL", "nsq+lookupd://l1")
    monkeypatch.setenv("NSQSMART_WORKERS", "9")
    endpoint, config = resolve(ConsumerConfig)
    assert (str(endpoint), config.workers) == ("nsq+lookupd://l1:4161", 9)


@pytest.mark.parametrize("environ", [{}, {"NSQSMART_URL": ""}])
def test_without_an_address_the_error_says_what_to_do(environ) -> None:
    with pytest.raises(ConfigError, match=r"no address: .*NSQSMART_URL.*nsq\+embedded://demo"):
        resolve(ProducerConfig, environ=environ)


def test_an_empty_variable_is_not_set() -> None:
    assert outcome(environ={"NSQSMART_POOL_SIZE": ""}).pool_size == 10


def test_an_address_may_be_shared_by_producer_and_consumer() -> None:
    address = f"{HERE}?workers=9&pool_size=2"
    assert outcome(ProducerConfig, address).pool_size == 2
    assert outcome(ConsumerConfig, address).workers == 9
    with pytest.raises(ConfigError, match="workers='x' from the address"):
        outcome(ProducerConfig, f"{HERE}?workers=x")


def test_what_concerns_the_cluster_stays_in_the_endpoint() -> None:
    address = "nsq+embedded://demo?partitions=2&pool_size=3"
    endpoint, config = resolve(ProducerConfig, address, environ={})
    assert (endpoint.query, config.pool_size) == ((("partitions", "2"),), 3)
    assert embedded_config(endpoint).partitions == 2
    assert resolve(ProducerConfig, f"{HERE}?pool_size=3", environ={})[0].query == ()
    with pytest.raises(ConfigError, match="partitions='0' from the address"):
        outcome(address="nsq+embedded://demo?partitions=0")
    with pytest.raises(ConfigError, match=r"nsq\+embedded:// addresses alone"):
        outcome(address=f"{HERE}?partitions=2")


# ------------------------------------------------------------------------------- what is wrong


def test_an_unknown_name_raises_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match="unknown option 'dial_timout': did you mean dial_timeout"
    ):
        outcome(dial_timout=1)
    with pytest.raises(
        ConfigError, match="unknown option 'dial_timout': did you mean dial_timeout"
    ):
        outcome(address=f"{HERE}?dial_timout=1")
    with pytest.raises(ConfigError, match="unknown option 'zzz'$"):
        outcome(zzz=1)


def test_a_keyword_of_another_client_says_whose_it_is() -> None:
    with pytest.raises(ConfigError, match="option of ConsumerConfig, not of ProducerConfig"):
        outcome(workers=3)
    with pytest.raises(ConfigError, match="option of ProducerConfig and ConsumerConfig, not"):
        outcome(ClientConfig, close_timeout=3)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DIAL_TIMOUT", "DIAL_TIMEOUT"),
        ("WRKERS", "WORKERS"),
        ("MAX_INFLIGHT", "MAX_IN_FLIGHT"),
        ("AUTH_SECERT", "AUTH_SECRET"),
        ("PUBLISH_TIMEOUTS", "PUBLISH_TIMEOUT"),
    ],
)
def test_a_misspelt_variable_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"option NSQSMART_{name} .* mean NSQSMART_{meant}\\?"):
        outcome(environ={f"NSQSMART_{name}": "secret"})
    # Nothing of the environment counts then.
    with pytest.warns(UserWarning, match=f"unknown option NSQSMART_{name} in the env"):
        outcome(config=ProducerConfig(), environ={f"NSQSMART_{name}": "1"})


def test_what_another_version_may_know_is_never_taken_for_misspelt() -> None:
    names = sorted({name for kind in KINDS for name in options_of(kind)})
    near = [
        (one, other)
        for one, other in itertools.combinations(names, 2)
        if difflib.get_close_matches(one, [other], cutoff=_MISSPELT)
    ]
    assert near == []


def test_an_unknown_variable_warns() -> None:
    with pytest.warns(
        UserWarning, match="unknown option NSQSMART_RETRY_PAUSES_MAX .*: did you mean"
    ):
        outcome(environ={"NSQSMART_RETRY_PAUSES_MAX": "1"})
    with pytest.warns(UserWarning, match="unknown option NSQSMART_ZZZZZZZZZ in the environment$"):
        outcome(environ={"NSQSMART_ZZZZZZZZZ": "1"})


@pytest.mark.parametrize(
    "name",
    ["NSQSMART_URL", "NSQSMART_REQUIRE", "NSQSMART_TEST_NSQ_BIN", "NSQSMART_WORKERS", "NSQ_URL"],
)
def test_a_known_variable_does_not_warn(name: str) -> None:
    outcome(environ={name: "5"})


def test_an_error_says_where_the_value_was_found() -> None:
    with pytest.raises(ConfigError, match="dial_timeout='x' from NSQSMART_DIAL_TIMEOUT is not"):
        outcome(environ={"NSQSMART_DIAL_TIMEOUT": "x"})
    with pytest.raises(ConfigError, match="dial_timeout='x' from the address is not"):
        outcome(address=f"{HERE}?dial_timeout=x")
    with pytest.raises(ConfigError, match="dial_timeout='x' is not"):
        outcome(dial_timeout="x")


def test_twice_in_the_address_is_an_error() -> None:
    with pytest.raises(ConfigError, match="pool_size is twice"):
        outcome(address=f"{HERE}?pool_size=1&pool_size=2")


def test_an_object_cannot_be_written_as_text() -> None:
    with pytest.raises(ConfigError, match="address_map, from the address, can only be given as a"):
        outcome(address=f"{HERE}?address_map=x")
    with pytest.raises(ConfigError, match="tls_config, from NSQSMART_TLS_CONFIG, can only"):
        outcome(environ={"NSQSMART_TLS_CONFIG": "x"})


# ---------------------------------------------------------------------------- TLS and secrets


def test_the_scheme_switches_tls_on() -> None:
    assert outcome(address="nsqs://h").tls_v1
    assert outcome(address="nsqs+lookupd://h", config=ProducerConfig()).tls_v1
    assert outcome(address="nsqs://h", environ={"NSQSMART_TLS_V1": "false"}).tls_v1
    assert outcome(tls_v1=True).tls_v1
    with pytest.raises(ConfigError, match=r"nsqs:// asks for TLS"):
        outcome(address="nsqs://h", tls_v1=False)


@pytest.mark.parametrize(
    "options",
    [{"tls_root_ca_file": "x"}, {"tls_cert": "x"}, {"tls_insecure_skip_verify": True}]
    + [{"tls_config": ssl.create_default_context()}],
    ids=lambda options: next(iter(options)),
)
def test_certificates_without_tls_are_an_error(options) -> None:
    with pytest.raises(ConfigError, match="is set and TLS is not"):
        outcome(**options)
    outcome(address="nsqs://h", **options)
    outcome(tls_v1=True, **options)


QUOTED = SECRET.replace("&", "%26").replace("#", "%23")


def test_a_secret_arrives() -> None:
    assert outcome(address=f"{HERE}?auth_secret={QUOTED}").auth_secret == SECRET
    assert outcome(environ={"NSQSMART_AUTH_SECRET": SECRET}).auth_secret == SECRET


def test_a_secret_is_not_printed() -> None:
    endpoint = Endpoint.parse(f"{HERE}?auth_secret={QUOTED}")
    config = outcome(address=f"{HERE}?auth_secret={QUOTED}")
    for shown in (repr(endpoint), str(endpoint), repr(config), str(config)):
        assert "s3cr3t" not in shown


@pytest.mark.parametrize(
    "url",
    [
        "nsq://h&auth_secret=s3cr3t",
        "nsq://:s3cr3t@h",
        "nsq://h?auth_secret=a#s3cr3t",
        "nsq://h?auth_secret=a&s3cr3t",
        "nsq://h?auth_secret=a&s3cr3t=",
        "nsq://h?auth_secret=s3cr3t&auth_secret=s3cr3t",
        "nsq://h?auth_secret=s3cr3t&dial_timeout=x",
        "http://h?auth_secret=s3cr3t",
        "h?auth_secret=s3cr3t",
        "nsq://h/s3cr3t?auth_secret=a",
        "nsq+embedded://demo s3cr3t",
    ],
)
def test_a_secret_in_a_bad_address_is_not_printed(url: str) -> None:
    for address, environ in ((url, {}), (None, {"NSQSMART_URL": url})):
        with pytest.raises(ConfigError) as caught:
            resolve(ProducerConfig, address, environ=environ)
        assert "s3cr3t" not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("secret", ["", 5, b"s3cr3t", ["s3cr3t"]])
def test_a_bad_secret_is_not_printed(secret) -> None:
    with pytest.raises(ConfigError) as caught:
        ClientConfig(auth_secret=secret)
    assert "auth_secret=***" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


# ------------------------------------------------------------------------- settings of a project


def test_own_defaults_go_before_those_of_the_table_and_behind_all_else() -> None:
    def timeout(address=HERE, environ=None, **options):
        own = {"publish_timeout": 5.0}
        found = resolve(ProducerConfig, address, options, environ=environ or {}, defaults=own)
        return found[1].publish_timeout

    assert timeout() == 5
    assert timeout(environ={"NSQSMART_PUBLISH_TIMEOUT": "6"}) == 6
    assert timeout(f"{HERE}?publish_timeout=7") == 7
    assert timeout(publish_timeout=8) == 8


def test_options_of_settings_are_read_as_keywords_are() -> None:
    given = {"publish_timeout": "250ms", "dial_timeout": 2}
    wanted = {"publish_timeout": 0.25, "dial_timeout": 2.0}
    assert read_options(ProducerConfig, given, "settings.NSQ") == wanted


def test_shared_options_leave_out_those_of_others_and_check_them() -> None:
    given = {"publish_timeout": 3, "max_in_flight": 7, "dial_timeout": 2}
    found = read_options(ConsumerConfig, given, "settings.NSQ", shared=True)
    assert found == {"max_in_flight": 7, "dial_timeout": 2.0}
    with pytest.raises(ConfigError, match="max_in_flight='many' from settings.NSQ"):
        read_options(ProducerConfig, {"max_in_flight": "many"}, "settings.NSQ", shared=True)


@pytest.mark.parametrize(
    ("shared", "name", "words"),
    [
        (False, "publish_timeot", r"did you mean publish_timeout\? \(from settings.NSQ\)"),
        (True, "publish_timeot", r"did you mean publish_timeout\? \(from settings.NSQ\)"),
        (True, "max_in_flite", r"did you mean max_in_flight\? \(from settings.NSQ\)"),
        (False, "max_in_flight", r"of ConsumerConfig, not of ProducerConfig \(from settings.NSQ\)"),
        (False, 7, r"unknown option 7 \(from settings.NSQ\)"),
    ],
)
def test_a_wrong_name_tells_where_it_came_from(shared, name, words) -> None:
    with pytest.raises(ConfigError, match=words):
        read_options(ProducerConfig, {name: 1}, "settings.NSQ", shared=shared)
