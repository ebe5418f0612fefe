"""The setting NSQSMART, read and checked, and the producers that are made of it."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from django.conf import settings

from nsqsmart import Producer
from nsqsmart.contrib.shared.settings import PUBLISH_TIMEOUT, Settings, check_dialect
from nsqsmart.errors import ConfigError
from nsqsmart.testing.recording import RecordingProducer, outbox

MODES: Final = ("on_commit", "now", "outbox")
_IN_TESTS: Final = ("record", "send")
_KEYS: Final = ("URL", "PUBLISH", "OPTIONS", "IN_TESTS", "DIALECT")


@dataclass(frozen=True, kw_only=True)
class Alias(Settings):
    """One entry of the setting.

    ``publish`` is one of MODES; ``sends_in_tests`` tells that tests do not only record.
    """

    name: str
    publish: str
    sends_in_tests: bool


@cache
def read_aliases() -> dict[str, Alias]:
    """Every alias by its name; without the setting there is "default", with NSQSMART_URL.

    Raises ConfigError. Read once, until :func:`forget` is called.
    """
    found = getattr(settings, "NSQSMART", {"default": {}})
    if not isinstance(found, Mapping) or "default" not in found:
        raise ConfigError(
            'settings.NSQSMART must be a dict of aliases, and have "default": '
            '{"default": {"URL": "nsq+lookupd://HOST:4161"}}'
        )
    return {name: _read_alias(name, entry) for name, entry in found.items()}


def get_alias(name: str) -> Alias:
    """The alias; raises ConfigError for one that is not in the settings."""
    aliases = read_aliases()
    if name not in aliases:
        raise ConfigError(f"settings.NSQSMART has no alias {name!r}{_near(name, aliases)}")
    return aliases[name]


def forget() -> None:
    """Read the settings again when they are next asked for."""
    read_aliases.cache_clear()


def check_mode(mode: object, source: str) -> str:
    """*mode*, when to publish; raises ConfigError."""
    if mode not in MODES or not isinstance(mode, str):
        raise ConfigError(f"{source} {mode!r} is none of {', '.join(MODES)}{_near(mode, MODES)}")
    return mode


def in_tests() -> bool:
    """Whether a test runner of Django, or pytest-django, has set its environment up."""
    # Not imported for it: production has no use for the module.
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data")  # noqa: SLF001 - no other sign


def _read_alias(name: str, entry: object) -> Alias:
    where = f"settings.NSQSMART[{name!r}]"
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where} must be a dict with the keys {', '.join(_KEYS)}")
    for key in entry:
        if key not in _KEYS:
            raise ConfigError(f"unknown key {key!r} of {where}{_near(key, _KEYS)}")
    mode = check_mode(entry.get("PUBLISH", MODES[0]), f"{where}['PUBLISH']")
    tests = entry.get("IN_TESTS", _IN_TESTS[0])
    if tests not in _IN_TESTS:
        raise ConfigError(f"{where}['IN_TESTS'] {tests!r} is none of {', '.join(_IN_TESTS)}")
    dialect = check_dialect(entry.get("DIALECT"), f"{where}['DIALECT']")
    return Alias(
        where=where,
        url=entry.get("URL") or None,
        options=entry.get("OPTIONS", {}),
        source=f"{where}['OPTIONS']",
        dialect=dialect,
        name=name,
        publish=mode,
        sends_in_tests=tests == "send",
    )


def _near(name: object, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(str(name), known, n=1) or difflib.get_close_matches(
        str(name).upper(), known, n=1
    )
    return f": did you mean {found[0]}?" if found else ""


class Producers:
    """A Producer by its alias: ``producers["default"]``.

    Any thread may ask, and a child of a fork goes on with them. In tests they are recording ones,
    unless the alias says ``"IN_TESTS": "send"``.
    """

    def __init__(self) -> None:
        # Without a lock, which a fork could leave locked in the child: setdefault decides.
        self._made: dict[tuple[str, bool], Producer] = {}

    def __getitem__(self, alias: str) -> Producer:
        entry = get_alias(alias)
        records = in_tests() and not entry.sends_in_tests
        found = self._made.get((alias, records))
        if found is not None:
            return found
        made = entry.make_recorder(outbox, alias) if records else entry.make_producer()
        # If another thread was faster, this one has not connected yet.
        return self._made.setdefault((alias, records), made)

    def close(self) -> None:
        """Close them all; they are made anew when they are asked for."""
        while self._made:
            _, producer = self._made.popitem()
            producer.close()


def find_producer(alias: str) -> tuple[Producer, float]:
    """The producer, and how many seconds its settings give a publish; raises ConfigError."""
    producer = producers[alias]
    if isinstance(producer, RecordingProducer):
        return producer, PUBLISH_TIMEOUT
    return producer, get_alias(alias).target()[1].publish_timeout


def on_setting_changed(*, setting: str, **_others: Any) -> None:
    """A test overrides the settings, or ends to do so."""
    if setting == "NSQSMART":
        forget()
        producers.close()


producers = Producers()
