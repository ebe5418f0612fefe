"""Pipelines in their table: one that no thread will ever dial is not left there."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import pytest

from nsqsmart.client.pipelining.connections import Pipes
from nsqsmart.config import ProducerConfig
from nsqsmart.errors import ConnectError
from nsqsmart.names import Address
from nsqsmart.net import pipeline as pipeline_module
from tests.interrupts import count_places, interrupted_at

ADDRESS = Address("nsqd", 4150)


class Sink:
    """Hears of every item."""

    def __init__(self) -> None:
        self.lost: list[object] = []

    def on_error(self, item: object, error: Exception) -> None:
        self.lost.append(item)


def make() -> tuple[Pipes, Sink]:
    def dial(address: Address, deadline: float) -> None:
        raise ConnectError("refused")

    sink = Sink()
    ticker = SimpleNamespace(at=lambda when, call: None)
    return Pipes(ProducerConfig(), dial, sink, ticker), sink


@pytest.mark.parametrize("older", [False, True])
def test_an_interrupt_while_one_is_opened_leaves_none_that_never_begins(monkeypatch, older):
    """Later messages were gathered for it until their deadline."""
    started: list[str] = []
    spawned = SimpleNamespace(join=lambda: None)
    monkeypatch.setattr(
        pipeline_module, "spawn", lambda name, target: (started.append(name), spawned)[1]
    )
    item = SimpleNamespace(limit=1e9)

    def opened() -> Pipes:
        pipes, _ = make()
        if older:
            pipes.submit(item, ADDRESS, b"before", 0.0)
            pipes._pipelines[ADDRESS].retire()
        started.clear()
        return pipes

    for position in range(1, count_places(lambda: opened()._open(ADDRESS)) + 1):
        pipes = opened()
        with suppress(KeyboardInterrupt), interrupted_at(position):
            pipes._open(ADDRESS)
        began = len(started)
        pipes.submit(item, ADDRESS, b"after", 0.0)
        assert started, position
        assert not pipes._pipelines[ADDRESS].over or len(started) > began, position
