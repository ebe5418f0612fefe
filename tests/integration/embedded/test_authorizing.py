"""AUTH: an auth server is asked, and every command that needs it is checked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from nsqsmart.embedded import Cluster
from nsqsmart.wire import commands

ALL = {"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}


class AuthServer:
    """Answers every question with *document*, and remembers the questions."""

    def __init__(self) -> None:
        self.document: Any = {"ttl": 3600, "identity": "someone", "authorizations": [ALL]}
        self.status = 200
        self.questions: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                outer.questions.append({k: v[0] for k, v in parse_qs(url.query).items()})
                outer.questions[-1]["path"] = url.path
                outer.questions[-1]["accept"] = self.headers["Accept"]
                body = json.dumps(outer.document).encode()
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def authority() -> Iterator[AuthServer]:
    server = AuthServer()
    yield server
    server.close()


@pytest.fixture(params=["original", "redesigned"])
def cluster(request, authority) -> Iterator[Cluster]:
    with Cluster(dialect=request.param, auth_addresses=(authority.address,)) as made:
        made.create_topic("t")
        made.create_channel("t", "ch")
        yield made


@pytest.fixture
def client(cluster, connect):
    return connect(cluster.nsqds[0])


def publishing(cluster, topic="t", body=b"x"):
    return commands.pub(topic, body, None if cluster.dialect == "original" else 0)


def test_the_client_is_told_who_it_is_and_may_go_on(cluster, client, authority):
    assert client.identify()["auth_required"] is True
    answer = json.loads(client.ask(commands.auth(b"open sesame&1")))
    assert answer == {"identity": "someone", "identity_url": "", "permission_count": 1}
    assert client.ask(publishing(cluster)) == b"OK"
    client.subscribe(b"SUB t ch\n")
    client.finish(client.message())
    (question,) = authority.questions
    expected = {"secret": "open sesame&1", "tls": "false", "remote_ip": "127.0.0.1"}
    assert expected.items() <= question.items()
    assert question["path"] == "/auth"
    assert question["accept"] == "application/vnd.nsq; version=1.0"


@pytest.mark.parametrize("verb", ["PUB", "SUB"])
def test_a_client_that_did_not_ask_is_refused_and_left(cluster, client, verb):
    command = publishing(cluster) if verb == "PUB" else b"SUB t ch\n"
    assert client.refused(command) == f"E_AUTH_FIRST AUTH required before {verb}"
    assert client.ended()
    assert cluster.stored("t") == []


@pytest.mark.parametrize(
    ("grant", "publish", "subscribe"),
    [
        ({}, True, True),
        ({"topic": "^t$"}, True, True),
        ({"topic": "^other$"}, False, False),
        ({"permissions": ["publish"]}, True, False),
        ({"permissions": ["subscribe"]}, False, True),
        ({"channels": ["^ch$"]}, False, True),  # a publish is asked for with an empty channel
        ({"channels": ["^$"]}, True, False),
        ({"channels": []}, False, False),
    ],
)
def test_patterns_and_permissions_decide(cluster, connect, authority, grant, publish, subscribe):
    authority.document["authorizations"] = [ALL | grant]
    for command, allowed, refusal in (
        (publishing(cluster), publish, 'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
        (b"SUB t ch\n", subscribe, 'E_UNAUTHORIZED AUTH failed for SUB on "t" "ch"'),
    ):
        client = connect(cluster.nsqds[0])
        client.ask(commands.auth(b"s"))
        if allowed:
            assert client.ask(command) == b"OK"
        else:
            assert client.refused(command) == refusal
            assert client.ended()


def test_a_second_auth_is_refused(cluster, client):
    client.ask(commands.auth(b"s"))
    word = "already" if cluster.dialect == "original" else "Already"
    assert client.refused(commands.auth(b"s")) == f"E_INVALID AUTH {word} set"


def test_nobody_without_authorizations_gets_in(cluster, client, authority):
    authority.document["authorizations"] = []
    word = "no" if cluster.dialect == "original" else "No"
    refusal = f"E_UNAUTHORIZED AUTH {word} authorizations found"
    assert client.refused(commands.auth(b"s")) == refusal
    assert client.ended()


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"ttl": 0, "authorizations": [ALL]},
        {"ttl": "1", "authorizations": [ALL]},
        {"ttl": 1, "authorizations": [ALL | {"permissions": ["admin"]}]},
        {"ttl": 1, "authorizations": [ALL | {"topic": "("}]},
        {"ttl": 1, "authorizations": [ALL | {"channels": ["["]}]},
        {"ttl": 1, "authorizations": 5},
    ],
)
def test_an_answer_that_makes_no_sense_lets_nobody_in(client, authority, document):
    authority.document = document
    assert client.refused(commands.auth(b"s")) == "E_AUTH_FAILED AUTH failed"
    assert client.ended()


def test_a_refusal_of_the_auth_server_is_not_passed_on(client, authority):
    authority.status = 403
    assert client.refused(commands.auth(b"s")) == "E_AUTH_FAILED AUTH failed"


def test_after_its_time_an_answer_is_asked_for_again(cluster, client, authority, monkeypatch):
    client.ask(commands.auth(b"s"))
    assert client.ask(publishing(cluster)) == b"OK"
    monkeypatch.setattr("nsqsmart.embedded.nsqd.tcp.identifying._now", lambda: float("inf"))
    assert client.ask(publishing(cluster)) == b"OK"
    assert len(authority.questions) == 2
    authority.status = 500
    assert client.refused(publishing(cluster)) == "E_AUTH_FAILED AUTH failed"
    assert client.ended()
    assert len(cluster.stored("t")) == 2


def test_a_server_that_is_not_there_gives_way_to_the_next(connect, authority):
    addresses = ("127.0.0.1:1", f"http://{authority.address}/other/path")
    with Cluster(dialect="original", auth_addresses=addresses) as cluster:
        client = connect(cluster.nsqds[0])
        assert b"someone" in client.ask(commands.auth(b"s"))
    assert authority.questions[0]["path"] == "/other/path"


def test_without_an_auth_server_auth_is_refused(connect):
    with Cluster(dialect="original") as cluster:
        client = connect(cluster.nsqds[0])
        assert client.refused(commands.auth(b"s")) == "E_AUTH_DISABLED AUTH disabled"


def test_an_auth_server_that_could_never_be_asked_is_refused():
    with pytest.raises(ValueError, match="'https://127.0.0.1/auth' is neither HOST:PORT nor"):
        Cluster(dialect="original", auth_addresses=("https://127.0.0.1/auth",))
