"""Extension headers: what a redesigned nsqd reads in them, and the filters on them."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable
from typing import Any

from nsqsmart.embedded.broker.complaints import complaint
from nsqsmart.embedded.broker.records import Extension, Record
from nsqsmart.wire.ext import TAG, TRACE_ID
from nsqsmart.wire.messages import EXT_JSON

TEST_TRAFFIC = "zan_test"
_MAX_TRACE_ID = 2**64 - 1
_EQUAL, _PATTERN, _GLOB, _RULES = 1, 2, 3, 4

Filter = Callable[[Record], bool]


class BadHeader(Exception):
    """The header is not JSON; the text is the server's (protocol#pub_ext)."""


class BadTraceId(Exception):
    """The trace id in the header is no decimal uint64; the text is the server's."""


def read_header(data: bytes) -> tuple[Extension, int | None]:
    """The extension header and the trace id in it, None without one.

    Raises :class:`BadHeader` and :class:`BadTraceId`.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadHeader(complaint(data)) from error
    if not isinstance(values, dict):
        return Extension(EXT_JSON, data, values), None
    tag = values.get(TAG)
    extension = Extension(EXT_JSON, data, values, tag if isinstance(tag, str) else "")
    return extension, _trace_id(values)


def _trace_id(values: dict[str, Any]) -> int | None:
    if TRACE_ID not in values:
        return None
    text = values[TRACE_ID]
    if not isinstance(text, str):
        raise BadTraceId("passin trace id should be string")
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > _MAX_TRACE_ID:
        raise BadTraceId("invalid trace id")
    return int(text)


def only_internal(extension: Extension) -> bool:
    """Whether every key is the servers' own: those may be sent to plain topics if allowed."""
    values = extension.values
    return isinstance(values, dict) and all(
        key.startswith("##") or key == TEST_TRAFFIC for key in values
    )


def make_filter(rules: dict[str, Any] | None) -> Filter | None:
    """The filter that IDENTIFY asked for; invalid rules let everything pass.

    See protocol#ext-filter.
    """
    if not rules:
        return None
    try:
        matches = _matcher(rules)
    except (re.error, ValueError):
        return None
    if matches is None:
        return None
    inverse = rules.get("inverse") is True

    def wants(record: Record) -> bool:
        ext = record.ext
        known = ext is not None and ext.version == EXT_JSON and isinstance(ext.values, dict)
        return (known and ext is not None and matches(ext.values)) != inverse

    return wants


def _matcher(rules: dict[str, Any]) -> Callable[[dict[str, Any]], bool] | None:
    kind = rules.get("type", 0)
    if kind == _RULES:
        return _relation(rules)
    key, data = rules.get("filter_ext_key"), rules.get("filter_data")
    if not (isinstance(key, str) and key and isinstance(data, str) and data):
        return None
    if kind == _EQUAL:
        return lambda values: _value(values, key) == data
    if kind not in (_PATTERN, _GLOB):
        return None
    pattern = re.compile(data if kind == _PATTERN else fnmatch.translate(data))
    find = pattern.search if kind == _PATTERN else pattern.match

    def matches(values: dict[str, Any]) -> bool:
        value = _value(values, key)
        return value is not None and find(value) is not None

    return matches


def _relation(rules: dict[str, Any]) -> Callable[[dict[str, Any]], bool] | None:
    entries = rules.get("filter_data_list")
    if not isinstance(entries, list) or not entries:
        return None
    wanted = [(entry.get("filter_ext_key"), entry.get("filter_data")) for entry in entries]
    if not all(key and data for key, data in wanted):
        return None
    relation = {"all": all, "any": any}.get(str(rules.get("filter_ext_key")))
    if relation is None:
        return lambda _: False
    return lambda values: relation(_value(values, key) == data for key, data in wanted)


def _value(values: dict[str, Any], path: str) -> str | None:
    """The string at *path*, which may be dotted."""
    found: Any = values.get(path)
    if found is None:
        found = values
        for step in path.split("."):
            found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None
