"""Go's way with numbers and strings, where the servers' error texts show it."""

from __future__ import annotations

import re

_INT = re.compile(rb"([+-]?)0*([0-9]+)")
_UINT = re.compile(rb"0*([0-9]+)")
_INT64_MAX = 2**63 - 1
_UINT64_MAX = 2**64 - 1
_UINT64_DIGITS = 20
_PIECE = 1000
_TRUE = frozenset({b"1", b"t", b"T", b"TRUE", b"true", b"True"})
_FALSE = frozenset({b"0", b"f", b"F", b"FALSE", b"false", b"False"})
_ESCAPES = {
    7: "\\a",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    11: "\\v",
    12: "\\f",
    13: "\\r",
    34: '\\"',
    92: "\\\\",
}
_PRINTABLE = range(32, 127)


class GoError(ValueError):
    """The text of a failed conversion, as strconv words it."""


def quote(text: bytes) -> str:
    """``strconv.Quote``."""
    return '"' + "".join(map(_quoted, text.decode("utf-8", "surrogateescape"))) + '"'


def _quoted(char: str) -> str:
    code = ord(char)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if code in _PRINTABLE or (code > 0x7F and char.isprintable()):
        return char
    # A byte that is no UTF-8 was decoded to a lone surrogate.
    return f"\\x{code & 0xFF:02x}" if code < 0x80 or code >= 0xDC80 else f"\\u{code:04x}"


def atoi(text: bytes, function: str = "Atoi") -> int:
    """``strconv.Atoi``; raises :class:`GoError`."""
    match = _INT.fullmatch(text)
    if match is None:
        raise GoError(f"strconv.{function}: parsing {quote(text)}: invalid syntax")
    # Python refuses to read numbers of thousands of digits.
    number = int(match[1] + match[2]) if len(match[2]) <= _UINT64_DIGITS else _UINT64_MAX
    if not -_INT64_MAX - 1 <= number <= _INT64_MAX:
        raise GoError(f"strconv.{function}: parsing {quote(text)}: value out of range")
    return number


def parse_uint(text: bytes) -> int:
    """``strconv.ParseUint`` of 64 bits; raises :class:`GoError`."""
    match = _UINT.fullmatch(text)
    if match is None:
        raise GoError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    if len(match[1]) > _UINT64_DIGITS or int(match[1]) > _UINT64_MAX:
        raise GoError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(match[1])


def parse_bool(text: bytes) -> bool:
    """``strconv.ParseBool``; raises :class:`GoError`."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise GoError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def byte_list(token: bytes) -> str:
    """A byte slice as ``%v`` prints it: ``[80 85 66]``."""
    return "[" + " ".join(map(str, token)) + "]"


def digits(text: bytes) -> int | None:
    """nsqd's own number parser: digits only, modulo 2**64; empty is 0 (protocol#rdy)."""
    if text and not text.isdigit():
        return None
    number = 0
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE]
        number = (number * 10 ** len(piece) + int(piece)) % 2**64
    return number


def shown(text: bytes) -> str:
    """Bytes as they go into an error text unchanged."""
    return text.decode("utf-8", "surrogateescape")
