"""What several tests of the embedded servers share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nsqsmart.embedded.nsqd.disk.storage import Storage
from nsqsmart.embedded.nsqd.hosting import Announcer, OriginalTopics, StandaloneTopics
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.serving.loop import Loop
from nsqsmart.names import Dialect
from tests.unit.embedded.lives import Life


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Life]:
    """A life of an nsqd of a dialect, in always the same folder: its topics, and its storage."""
    loop = Loop("nsqsmart-test")
    lives: list[Storage] = []

    def start(dialect: str, **more: Any) -> tuple[Any, Storage]:
        for before in lives:
            before.close()
        options = NsqdOptions(dialect=Dialect(dialect), data_path=tmp_path, **more)
        kind = StandaloneTopics if options.redesigned else OriginalTopics
        topics = kind(object(), options.limits(), loop)
        storage = Storage(options, topics, Announcer())
        storage.load()
        topics.announcer = storage
        lives.append(storage)
        return topics, storage

    yield start
    lives[-1].close()
    loop.close()
