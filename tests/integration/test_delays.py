"""delay= is in seconds; on the wire it is in milliseconds."""

from __future__ import annotations

import pytest

import nsqsmart
from tests.peers import Peer, Talk


@pytest.mark.parametrize(("delay", "said"), [(1.5, b"1500"), (0, b"0"), (3600, b"3600000")])
@pytest.mark.parametrize("way", ["publish", "publish_async"])
def test_the_delay_on_the_wire(delay, said, way):
    lines = []

    def script(talk: Talk) -> None:
        talk.greet()
        lines.append(talk.line())
        assert talk.body() == b"x"
        talk.ok()
        talk.stall()

    with Peer(script) as peer, nsqsmart.Producer(peer.url) as producer:
        pending = getattr(producer, way)("t", b"x", delay=delay)
        if way == "publish_async":
            pending.result(5)
    assert lines == [b"DPUB t " + said]
