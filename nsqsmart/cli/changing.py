"""What ``topic`` and ``channel`` have in common: their verbs, and how they tell what was done."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nsqsmart.errors import ConfigError, TopicNotExist

VERBS: Final = {
    "create": "created",
    "delete": "deleted",
    "pause": "paused",
    "unpause": "unpaused",
    "empty": "emptied",
}


@contextmanager
def unknown_is_final() -> Iterator[None]:
    """What is not there is a mistake: it does not come by trying again."""
    try:
        yield
    except TopicNotExist as error:
        raise ConfigError(str(error)) from error


def tell(chosen: argparse.Namespace, what: str, **names: str) -> None:
    """*what* was done, as words or as a line of JSON with *names*."""
    done = VERBS[chosen.verb]
    print(json.dumps({**names, "done": done}) if chosen.json else f"{what}: {done}", flush=True)
