"""Why a command was not carried out, as the client is told."""

from __future__ import annotations

from nsqsmart.wire.answers import NOT_LEADER, NOT_WRITABLE, TOPIC_NOT_EXIST

INVALID = "E_INVALID"
BAD_BODY = "E_BAD_BODY"
BAD_MESSAGE = "E_BAD_MESSAGE"
BAD_TOPIC = "E_BAD_TOPIC"


class CommandRefused(Exception):
    """An error frame: *code*, *text*; after a fatal one the server closes.

    See protocol#fatal-errors.
    """

    def __init__(self, code: str, text: str = "", *, fatal: bool = True) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text
        self.fatal = fatal

    def encode(self) -> bytes:
        """The data of the frame; the space stays when there is no text (protocol#error-frames)."""
        return f"{self.code} {self.text}".encode("utf-8", "surrogateescape")


class EndOfStream(Exception):
    """The client is gone, or must go without another frame."""


def not_leader(*, fatal: bool = False) -> CommandRefused:
    """This node does not lead the partition."""
    return CommandRefused(NOT_LEADER, fatal=fatal)


def not_writable(*, fatal: bool = False) -> CommandRefused:
    """The partition takes no writes, or no confirmations, now."""
    return CommandRefused(NOT_WRITABLE, fatal=fatal)


def topic_not_exist() -> CommandRefused:
    """This node does not host the partition."""
    return CommandRefused(TOPIC_NOT_EXIST)
