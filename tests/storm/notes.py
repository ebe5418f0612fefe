"""The history of a storm: events as lines of JSON, in a file of each process.

Each line is one write, so that what a SIGKILL leaves is whole. ``at`` is CLOCK_MONOTONIC, which all
processes of a machine share. The events:

``sent`` a publish began: id (the body), topic, key (None where nothing is promised of the order),
limit (seconds). ``done`` it ended: id, outcome ("stored" or an Outcome), nsqd, began.
``got`` a handler has a message: who, topic, place, nsqd, message (its id), id (the body).
``finished`` finish() returned: who, nsqd, message, place, ok.
``state`` the places a consumer is subscribed to: who, topic, places. ``gone`` it has ended: who.
``error`` a call raised what it may not, or a process died of itself: who, error.
``leaders`` the places that a server serves: topic, places. ``fault``, ``mended``: what, server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

Event = dict[str, Any]


class Notes:
    """Writes events to *file*; any thread may."""

    def __init__(self, file: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(file, flags, 0o600)

    def note(self, kind: str, **facts: Any) -> None:
        """One event, as of now."""
        line = json.dumps({"kind": kind, "at": monotonic(), **facts}, separators=(",", ":"))
        os.write(self._descriptor, line.encode() + b"\n")

    def close(self) -> None:
        """No more events."""
        os.close(self._descriptor)


class Chronicle:
    """Reads what has been written to the files of *folder* since it looked last."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def news(self) -> list[Event]:
        """The events that are new, of each file in order."""
        return [event for file in sorted(self._folder.glob("*.jsonl")) for event in self._of(file)]

    def _of(self, file: Path) -> Iterator[Event]:
        with file.open("rb") as opened:
            opened.seek(self._read.get(file, 0))
            data = opened.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[file] = self._read.get(file, 0) + len(whole)
        yield from map(json.loads, whole.splitlines())
