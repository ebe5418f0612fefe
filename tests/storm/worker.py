"""One actor in a process of its own: ``python -m tests.storm.worker FILE SPEC``.

It ends in order at SIGTERM, and when its standard input does: with the process that started it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

from tests.storm.actors import ROLES
from tests.storm.notes import Notes


def main(file: str, given: str) -> None:
    """Work until told to end."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    spec = json.loads(given)
    notes = Notes(Path(file))
    actor = ROLES[spec["role"]](spec, notes)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    while not over.wait(3600):
        pass
    actor.stop()
    notes.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
