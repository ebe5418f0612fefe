"""What every command has in common: flags, addresses, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nsqsmart.cli import _COMMANDS, main, make_parser
from nsqsmart.config import AdminConfig, ConsumerConfig, Kind, ProducerConfig, options_of
from nsqsmart.embedded import Cluster
from tests.helpers import ROOT

URL = "nsq://127.0.0.1:4150"


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"usage: nsqsmart {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("pub", ProducerConfig),
        ("tail", ConsumerConfig),
        ("to-file", ConsumerConfig),
        ("copy", ConsumerConfig),
        ("copy", ProducerConfig),
        ("bench", ConsumerConfig),
        ("stat", AdminConfig),
        ("lookup", AdminConfig),
    ],
)
def test_every_option_that_text_can_give_is_a_flag(command, kind):
    flags = make_parser(command)[1].choices[command]._option_string_actions
    named = {"--" + name.replace("_", "-") for name, row in options_of(kind).items()}
    missing = named - set(flags)
    assert missing == {
        "--" + name.replace("_", "-")
        for name, row in options_of(kind).items()
        if row.kind is Kind.OBJECT
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pbu"], "unknown command pbu: did you mean pub?"),
        (["pub", "orders", "x", "--publsh-timeout", "3"], "did you mean --publish-timeout?"),
        (["pub", "orders", "x", "--publish-timeout", "soon"], "publish_timeout='soon' from"),
        (["pub", "orders", "x", "--publish-timeout", "soon"], "from --publish-timeout"),
        (["pub"], "which topic?"),
        (["pub", "orders", "x", "--file", "y"], "not both"),
        (["pub", "orders", "x", "--key", "a", "--partition", "1"], "not allowed with"),
        (["pub", "orders", "x", "--partition", "2000"], "2000"),
        (["pub", "orders", "--rate", "0", "x"], "'0'"),
        (["pub", "orders", "--snappy=maybe", "x"], "--snappy=maybe"),
        (["pub", "orders", "--producer-opt", "snapy", "x"], "unknown option 'snapy'"),
        (["pub", "orders", "--producer-opt", "auth_secret=sesame", "x"], "'auth_secret' and its"),
        (["pub", "orders", "--producer-opt", "auth_secret: sesame", "x"], "NAME,VALUE"),
        (["pub", "orders", "--producer-opt", "=sesame", "x"], "it is NAME,VALUE"),
        (["tail"], "which topic?"),
        (["tail", "orders", "--grep", "("], "'('"),
        (["tail", "orders", "--channel", "c", "--grep", "x"], "--grep"),
        (["to-file"], "which topic?"),
        (["to-file", "a", "--gzip", "--filename-format", "x"], "lacks <REV>"),
        (["to-file", "a", "--format", "parquet", "--gzip"], "parquet"),
        (["copy", "a"], "copied to itself"),
        (["copy", "a", "b", "c"], "'c' is one word too many"),
        (["copy", "a", "--url", "x", "--nsqd-tcp-address", "y"], "not both"),
        (["stat", "--channel", "c"], "needs a topic"),
        (["trace", "x"], "'x' is not a number of 64 bits"),
        (["server", "--data-path", "x", "--dialect", "redesigned"], "--dialect original"),
        (["server", "--dialect", "original", "--replicas", "2"], "--replicas"),
    ],
)
def test_wrong_usage_is_one_line_with_the_value_and_exit_2(arguments, said, monkeypatch, nsqsmart):
    monkeypatch.setenv("NSQSMART_URL", URL)
    code, out, err = nsqsmart(*arguments)
    assert code == 2
    assert said in err
    assert out == ""
    assert "sesame" not in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pub", "orders", "x"], "give --url or set NSQSMART_URL"),
        (["pub", "orders", "x", "--url", "http://a"], "nsq+lookupd://"),
        (["pub", "or ders", "x", "--url", URL], "'or ders'"),
        (["pub", "orders", "", "--url", URL], "message 1 is empty"),
        (["pub", "orders", "--file", "missing", "--url", URL], "'missing' cannot be read"),
        (["tail", "orders", "--url", URL + "?max_in_flite=2"], "did you mean max_in_flight"),
        (["stat", "--url", URL], "nsq+lookupd://HOST:4161"),
    ],
)
def test_a_bad_configuration_is_one_line_and_exit_1(arguments, said, nsqsmart):
    code, _, err = nsqsmart(*arguments)
    assert code == 1
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "said", "code"),
    [
        (
            "NSQSMART_PUBLSH_TIMEOUT",
            "in the environment: did you mean NSQSMART_PUBLISH_TIMEOUT?",
            1,
        ),
        ("NSQSMART_TOPIC", "warning: unknown option NSQSMART_TOPIC in the environment", 75),
    ],
)
def test_a_misspelt_variable_is_refused_and_a_strange_one_warns(name, said, code):
    result = subprocess.run(
        [sys.executable, "-m", "nsqsmart", "pub", "a", "b", "--publish-timeout", "0.05"],
        env={**os.environ, "NSQSMART_URL": "nsq://127.0.0.1:1", name: "3"},
        capture_output=True,
        text=True,
    )
    assert said in result.stderr
    assert result.returncode == code


def test_options_reach_the_client_and_win_over_the_address(nsqsmart):
    code, _, err = nsqsmart(
        "pub", "orders", "x", "--url", URL + "?publish_timeout=50", "-publish-attempts=70",
        "--publish-timeout", "0.07", "--nsqd-tcp-address", "127.0.0.1:1",
    )  # fmt: skip
    assert code == 2  # two addresses
    code, _, err = nsqsmart(
        "pub", "orders", "x", "--publish-timeout", "0.07", "-nsqd-tcp-address=127.0.0.1:1"
    )
    assert code == 75
    assert "127.0.0.1:1" in err


def test_help_options_lists_them_with_their_variables(nsqsmart):
    code, out, _ = nsqsmart("tail", "--help-options")
    assert code == 0
    assert "--max-in-flight  (NSQSMART_MAX_IN_FLIGHT, default 200)" in out
    assert "--tls-config" not in out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_and_flags(shell, nsqsmart):
    pytest.importorskip("shtab")
    code, out, _ = nsqsmart("completion", shell)
    assert code == 0
    assert "to-file" in out
    assert "--key-field" in out


def test_completion_says_what_it_lacks(nsqsmart, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    code, _, err = nsqsmart("completion", "bash")
    assert code == 1
    assert "pip install 'nsqsmart[cli]'" in err


def test_a_command_loads_no_other_one():
    check = (
        "import sys; from nsqsmart.cli import make_parser; make_parser('pub'); "
        "print([n for n in "
        "('nsqsmart.embedded', 'nsqsmart.client.consuming.consumer', 'rich', 'pyarrow') "
        "if n in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr


@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [
        (("pub", "orders"), "<&-", 0),
        (("pub", "orders", "x", "--json"), ">&-", 0),
        (("pub", "orders", "x", "--json", "--max-size", "1"), "2>&-", 2),
        (("pub", "orders", "x", "--json"), "<&- >&- 2>&-", 0),
    ],
)
def test_a_stream_that_is_closed_is_nothing(arguments, closed, code):
    with Cluster(auto_create=True) as cluster:
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" -W error -m nsqsmart "$@" {closed}', sys.executable]
            + [*arguments, "--url", cluster.url],
            input=b"",
            capture_output=True,
            timeout=30,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")
        if code == 0 and "x" in arguments:
            assert [each.body for each in cluster.stored("orders")] == [b"x"]
