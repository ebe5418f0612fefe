"""How the text of an option becomes a value. Every reader returns None for what it cannot read."""

from __future__ import annotations

import math
import os
import re
from decimal import Decimal
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """How the text of an option is read, and what it is in Python."""

    SECONDS = "seconds"
    """float; as text, seconds or figures with units: ``0.25``, ``250ms``, ``1m30s``."""
    INTEGER = "integer"
    NUMBER = "number"
    """float, without a unit."""
    FLAG = "flag"
    """bool; as text, true, yes, on, 1 or false, no, off, 0."""
    TEXT = "text"
    PATH = "path"
    """str; an :class:`os.PathLike` is taken too."""
    CHOICE = "choice"
    OBJECT = "object"
    """A Python object, which only a keyword can carry."""


NOUNS: Final = {
    Kind.SECONDS: "seconds (0.25 or '250ms')",
    Kind.INTEGER: "a whole number",
    Kind.NUMBER: "a number",
    Kind.FLAG: "True or False",
    Kind.TEXT: "a non-empty text",
    Kind.PATH: "the path of a file",
}
Choices = tuple[str | bool, ...]

_FIGURE = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_FIGURES = re.compile(f"(?:{_FIGURE.pattern})+", re.ASCII)
_UNITS = {"ns": "1e-9", "us": "1e-6", "µs": "1e-6", "ms": "1e-3", "s": "1", "m": "60", "h": "3600"}
_FLAGS = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def read_number(value: object) -> float | None:
    """A finite number; True is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if math.isfinite(read) else None


def read_seconds(value: object) -> float | None:
    """A number of seconds, or figures with units as Go and its command lines write them."""
    if not isinstance(value, str) or not _FIGURES.fullmatch(value):
        return read_number(value)
    figures = _FIGURE.findall(value)
    # Decimal: 35ms is 0.035, and not 0.035000000000000003.
    return read_number(
        float(sum(Decimal(figure) * Decimal(_UNITS[unit]) for figure, unit in figures))
    )


def read_integer(value: object) -> int | None:
    """An int, or decimal digits; neither True nor 1.0 is one."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"[+-]?[0-9]{1,18}", value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def read_flag(value: object) -> bool | None:
    """A bool, or a word for one."""
    if isinstance(value, str):
        return _FLAGS.get(value.lower())
    return value if isinstance(value, bool) else None


def read_text(value: object) -> str | None:
    """A str that is not empty."""
    return value if isinstance(value, str) and value else None


def read_path(value: object) -> str | None:
    """A str or path that is not empty."""
    return read_text(os.fspath(value) if isinstance(value, os.PathLike) else value)


def read_choice(value: object, choices: Choices) -> str | bool | None:
    """The one of *choices* that *value* equals or spells."""
    candidates = (value, read_flag(value)) if isinstance(value, str) else (value,)
    for candidate in candidates:
        for choice in choices:
            # By kind too: 1 equals True, and 1 is no choice.
            if isinstance(candidate, (str, bool)) and candidate == choice:
                return choice
    return None


def read(kind: Kind, value: object, choices: Choices) -> float | str | None:
    """Read *value* as *kind*."""
    if kind is Kind.CHOICE:
        return read_choice(value, choices)
    return _READERS[kind](value) if kind in _READERS else None


_READERS = {
    Kind.SECONDS: read_seconds,
    Kind.INTEGER: read_integer,
    Kind.NUMBER: read_number,
    Kind.FLAG: read_flag,
    Kind.TEXT: read_text,
    Kind.PATH: read_path,
}
