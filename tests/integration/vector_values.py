"""Compares what a server said with a vector that leaves holes."""

from __future__ import annotations

import re
from typing import Any

_HOLE = re.compile(r"<(ts|id|hexid):([0-9]+)>")
_MINUTE = 60_000_000_000
_HEX = re.compile(rb"[0-9a-f]+")


def frame_agrees(data: bytes, template: str, now: int, known: bytes | None = None) -> bool:
    """Whether a whole frame is *template*, hex with holes; *known* is the id it must have."""
    position = start = 0
    for hole in _HOLE.finditer(template):
        fixed = bytes.fromhex(template[start : hole.start()])
        if data[position : position + len(fixed)] != fixed:
            return False
        position += len(fixed)
        size = int(hole[2])
        if not _fits(hole[1], data[position : position + size], now, known):
            return False
        position, start = position + size, hole.end()
    return data[position:] == bytes.fromhex(template[start:])


def _fits(kind: str, data: bytes, now: int, known: bytes | None) -> bool:
    if kind == "ts":
        return abs(int.from_bytes(data) - now) < _MINUTE
    if known is not None:
        return data == known
    return kind == "id" or _HEX.fullmatch(data) is not None


def agrees(value: Any, template: Any, dialect: str) -> bool:
    """Whether *value* is *template*: same keys, same types, same values but for the holes."""
    if isinstance(template, dict) and template.keys() == {"<set>"}:
        return _same_set(value, template["<set>"], dialect)
    if isinstance(template, dict):
        return (
            isinstance(value, dict)
            and value.keys() == template.keys()
            and all(agrees(value[key], template[key], dialect) for key in template)
        )
    if isinstance(template, list):
        return (
            isinstance(value, list)
            and len(value) == len(template)
            and all(map(agrees, value, template, [dialect] * len(template)))
        )
    if isinstance(template, str) and template.startswith("<"):
        return _fills(value, template, dialect)
    return type(value) is type(template) and value == template


def _same_set(value: Any, members: list[Any], dialect: str) -> bool:
    if not isinstance(value, list) or len(value) != len(members):
        return False
    left = list(members)
    for each in value:
        match = next((member for member in left if agrees(each, member, dialect)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _fills(value: Any, hole: str, dialect: str) -> bool:
    if hole == "<int>":
        return type(value) is int
    if not isinstance(value, str):
        return False
    if hole == "<digits>":
        return value.isdigit()
    if hole == "<version>":
        return ("-HA." in value) == (dialect == "redesigned")
    return hole == "<str>"
