"""What an operator asks, as it goes on the wire, and for how long it is waited for."""

from __future__ import annotations

import subprocess
import sys
from time import monotonic
from typing import Self

import pytest

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.cancel_scope import CancelScope
from nsqsmart.net.http import admin as admin_http
from nsqsmart.net.http.admin import AdminHttp
from nsqsmart.net.http.session import MAX_ANSWER
from tests.peers import Peer, Talk, http_answer, http_script

SERVER = Address("::1", 4151)


class Session:
    """Stands for every session, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked: list[tuple[str, str, bytes, float]] = []
        self.open = 0

    def __call__(self, scope: object) -> Self:
        return self

    def __enter__(self) -> Self:
        self.open += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.open -= 1

    def get(self, url: str, deadline: float) -> tuple[int, bytes]:
        return self.post(url, b"", deadline, "GET")

    def post(
        self, url: str, body: bytes, deadline: float, method: str = "POST"
    ) -> tuple[int, bytes]:
        self.asked.append((method, url, body, deadline - self.now))
        return 200, b"said"


@pytest.fixture
def session(monkeypatch) -> Session:
    made = Session()
    monkeypatch.setattr(admin_http, "monotonic", lambda: made.now)
    monkeypatch.setattr(admin_http, "_open_session", made)
    return made


def test_what_is_asked(session):
    query = [("topic", "t#ephemeral"), ("partition", "**")]
    with AdminHttp(5.0, session.now + 100) as http:
        assert http.get(SERVER, "/stats", query) == (200, b"said")
        assert http.post(SERVER, "/topic/delete", query, b"body") == (200, b"said")
    where = "topic=t%23ephemeral&partition=%2A%2A"
    assert session.asked == [
        ("GET", f"http://[::1]:4151/stats?{where}", b"", 5.0),
        ("POST", f"http://[::1]:4151/topic/delete?{where}", b"body", 5.0),
    ]
    assert session.open == 0


@pytest.mark.parametrize(
    ("budget", "others", "limit"), [(100, 9, 5.0), (20, 9, 2.0), (2, 0, 2.0), (-3, 4, 0.0)]
)
def test_whoever_is_asked_later_keeps_a_share_of_the_time(session, budget, others, limit):
    with AdminHttp(5.0, session.now + budget) as http:
        http.get(SERVER, "/stats", (), others)
    assert session.asked[0][3] == limit


def test_a_change_gets_the_time_there_is(session):
    with AdminHttp(20.0, session.now + 3) as http:
        http.post(SERVER, "/channel/pause", (), b"")
    assert session.asked[0][3] == 3.0


def test_a_port_that_is_not_known_is_an_error(session):
    with AdminHttp(5.0, session.now + 5) as http:
        for ask in (
            lambda: http.get(Address("a", 0), "/stats", ()),
            lambda: http.post(Address("a", 0), "/channel/pause", (), b""),
        ):
            with pytest.raises(DiscoveryError, match="names no HTTP port"):
                ask()
    assert session.asked == []


def test_statistics_may_be_longer_than_a_lookup():
    answer = http_script(lambda _: http_answer(200, b" " * MAX_ANSWER * 2))
    with Peer(answer) as peer, AdminHttp(5.0, monotonic() + 5) as http:
        assert len(http.get(Address(*peer.address), "/stats", ())[1]) == MAX_ANSWER * 2


def test_to_have_an_admin_is_to_have_paid_for_requests_and_no_sooner():
    code = """if True:
        import sys, nsqsmart
        nsqsmart.Admin
        print("requests" in sys.modules)
        nsqsmart.Admin("nsq://localhost")
        print("requests" in sys.modules)
        nsqsmart.Admin("nsq+embedded://never")
        print("requests" in sys.modules)
        """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["False", "False", "True"], result.stderr


def test_who_knows_its_wires_can_end_it():
    def answer(talk: Talk) -> None:
        talk.line()
        scope.cut()
        talk.stall()

    scope = CancelScope()
    with Peer(answer) as peer, AdminHttp(60.0, monotonic() + 60, scope) as http:
        for _ in range(2):
            with pytest.raises(DiscoveryError):
                http.get(Address(*peer.address), "/stats", [])
