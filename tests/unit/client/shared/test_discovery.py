"""How the lookups are asked, as the options say."""

from __future__ import annotations

import time

import pytest

from nsqsmart.client.shared.discovery import make_lookup
from nsqsmart.config import Endpoint, ProducerConfig
from nsqsmart.net.http.lookup import WRITE
from tests.peers import Peer, Script, Talk, http_answer, lookup_of

ROUNDS = 5


def failing(asked: list[str]) -> Script:
    """A lookup that can answer nothing, and notes what it was asked."""

    def script(talk: Talk) -> None:
        asked.append(talk.line().split()[1].decode())
        while talk.line().strip():
            pass
        talk.send(http_answer(500, b""))

    return script


@pytest.mark.parametrize("threshold", [1, 3, 10])
def test_one_that_fails_so_often_is_passed_over(threshold, monkeypatch):
    # No time passes: it stays passed over.
    now = time.monotonic()
    monkeypatch.setattr("nsqsmart.net.http.lookup.monotonic", lambda: now)
    asked: list[str] = []
    with Peer(failing(asked)) as bad, Peer(lookup_of({0: ("127.0.0.1", 1)})) as good:
        hosts = ",".join("{}:{}".format(*each.address) for each in (bad, good))
        config = ProducerConfig(
            lookupd_failure_threshold=threshold, lookupd_request_timeout=30, listlookup_interval=0
        )
        lookup = make_lookup(Endpoint.parse(f"nsq+lookupd://{hosts}"), config)
        for _ in range(ROUNDS):
            assert len(lookup.ask("t", WRITE, now + 120).answers) == 1
    assert len(asked) == min(threshold, ROUNDS)
