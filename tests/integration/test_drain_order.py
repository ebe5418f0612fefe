"""A drain asks for no more before anything is given back."""

from __future__ import annotations

import pytest

from nsqsmart import Consumer
from nsqsmart.client.consuming.rdy_controller import RdyController
from nsqsmart.embedded import Cluster


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_a_drain_asks_for_no_more_before_workers_give_back(monkeypatch, dialect):
    seen = []
    stop = RdyController.stop

    def look(self):
        seen.append(self._runtime.draining)
        stop(self)

    monkeypatch.setattr(RdyController, "stop", look)
    with Cluster(dialect=dialect, auto_create=True) as cluster:
        cluster.create_topic("orders")
        Consumer("orders", "c", print, address=cluster.url).start().close()
    # Workers that see it drain send REQ 0: under an open RDY the message would come again at once.
    assert seen == [False]
