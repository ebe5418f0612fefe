"""What a redesigned nsqd says of a header that is no JSON (protocol#pub_ext).

Only the words: whether it is JSON is decided elsewhere. They are those of the parser it uses,
which says at which step of which nesting it gave up, and what it had not read by then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from nsqsmart.embedded.gotext import quote

_SPACE = b" \n\t\r"
_NUMBER = frozenset(b"0123456789.-+eE")
_WORDS = {0x74: b"true", 0x66: b"false", 0x6E: b"null"}
_SHOWN, _HALF = 80, 40
_DEEPEST = 300

_Read = Callable[[bytes, int], bytes]


class _Stuck(Exception):
    """Why, and what was left to read."""

    def __init__(self, why: str, tail: bytes) -> None:
        super().__init__(why)
        self.why = why
        self.tail = tail


def complaint(data: bytes) -> str:
    """Why *data* is no JSON."""
    try:
        tail = _value(data.lstrip(_SPACE), 0).lstrip(_SPACE)
    except _Stuck as stuck:
        return f"cannot parse JSON: {stuck.why}; unparsed tail: {_shown(stuck.tail)}"
    return f"unexpected tail: {_shown(tail)}"


def _shown(tail: bytes) -> str:
    return quote(tail if len(tail) <= _SHOWN else tail[:_HALF] + b"..." + tail[-_HALF:])


def _value(text: bytes, depth: int) -> bytes:
    """The text after the value at the head of *text*."""
    if not text:
        raise _Stuck("cannot parse empty string", text)
    if depth == _DEEPEST:
        why = f"too big depth for the nested JSON; it exceeds {_DEEPEST}"
        raise _Stuck(why, text)
    if word := _WORDS.get(text[0]):
        return _word(text, word)
    kind, read = _KINDS.get(text[:1], ("number", _number))
    try:
        return read(text, depth + 1)
    except _Stuck as stuck:
        raise _Stuck(f"cannot parse {kind}: {stuck.why}", stuck.tail) from None


def _word(text: bytes, word: bytes) -> bytes:
    if not text.startswith(word):
        raise _Stuck(f"unexpected value found: {quote(text)}", text)
    return text[len(word) :]


def _number(text: bytes, _: int) -> bytes:
    end = next((at for at, byte in enumerate(text) if byte not in _NUMBER), len(text))
    if end == 0 or (end == 1 and text[0] in b"+-" and len(text) > 1):
        raise _Stuck(f"unexpected char: {quote(text[:1])}", text)
    return text[end:]


def _string(text: bytes, _: int) -> bytes:
    """The text after the closing quote: the first one after an even number of backslashes."""
    text = text[1:]
    end = text.find(b'"')
    while end >= 0:
        before = text[:end]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return text[end + 1 :]
        end = text.find(b'"', end + 1)
    raise _Stuck("missing closing '\"'", b"")


def _items(end: bytes, kind: str, read: _Read, text: bytes, depth: int) -> bytes:
    text = text[1:].lstrip(_SPACE)
    if not text:
        raise _Stuck(f"missing '{end.decode()}'", text)
    if text.startswith(end):
        return text[1:]
    while True:
        text = read(text.lstrip(_SPACE), depth).lstrip(_SPACE)
        if not text:
            raise _Stuck(f"unexpected end of {kind}", text)
        if text.startswith(end):
            return text[1:]
        if not text.startswith(b","):
            raise _Stuck(f"missing ',' after {kind} value", text)
        text = text[1:]


def _element(text: bytes, depth: int) -> bytes:
    try:
        return _value(text, depth)
    except _Stuck as stuck:
        raise _Stuck(f"cannot parse array value: {stuck.why}", stuck.tail) from None


def _member(text: bytes, depth: int) -> bytes:
    if not text.startswith(b'"'):
        # The quotes do not match there either.
        raise _Stuck('cannot find opening \'"" for object key', text)
    try:
        text = _string(text, depth).lstrip(_SPACE)
    except _Stuck as stuck:
        raise _Stuck(f"cannot parse object key: {stuck.why}", stuck.tail) from None
    if not text.startswith(b":"):
        raise _Stuck("missing ':' after object key", text)
    try:
        return _value(text[1:].lstrip(_SPACE), depth)
    except _Stuck as stuck:
        raise _Stuck(f"cannot parse object value: {stuck.why}", stuck.tail) from None


_KINDS: dict[bytes, tuple[str, _Read]] = {
    b"{": ("object", partial(_items, b"}", "object", _member)),
    b"[": ("array", partial(_items, b"]", "array", _element)),
    b'"': ("string", _string),
}
