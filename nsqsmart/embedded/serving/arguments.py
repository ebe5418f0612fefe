"""Query arguments that several interfaces take."""

from __future__ import annotations

from nsqsmart.embedded.gotext import GoError, atoi
from nsqsmart.embedded.serving.http import HttpError, Request
from nsqsmart.names import is_valid_name


def argument(request: Request, name: str) -> str:
    """An argument that must be given, empty or not."""
    text = request.query.get(name)
    if text is None:
        raise HttpError(400, f"MISSING_ARG_{name.upper()}")
    return text


def topic_argument(request: Request, invalid: str = "INVALID_ARG_TOPIC") -> str:
    """A topic that must be named, and legally."""
    topic = argument(request, "topic")
    if not is_valid_name(topic):
        raise HttpError(400, invalid)
    return topic


def any_topic(request: Request) -> str:
    """A topic that must be named."""
    topic = request.query.get("topic")
    if not topic:
        raise HttpError(400, "MISSING_ARG_TOPIC")
    return topic


def topic_and_channel(request: Request) -> tuple[str, str]:
    """Both must be named, and legally."""
    topic = topic_argument(request)
    channel = argument(request, "channel")
    if not is_valid_name(channel):
        raise HttpError(400, "INVALID_ARG_CHANNEL")
    return topic, channel


def number_argument(request: Request, name: str, bounds: tuple[int, int], error: str) -> int:
    """A number that must be given, within inclusive *bounds*."""
    text = request.query.get(name)
    if text is None:
        raise HttpError(400, f"MISSING_ARG_{error}")
    try:
        number = atoi(text.encode())
    except GoError as wrong:
        raise HttpError(400, f"INVALID_ARG_{error}") from wrong
    if not bounds[0] <= number <= bounds[1]:
        raise HttpError(400, f"INVALID_ARG_{error}")
    return number


def set_log_level(request: Request) -> None:
    """/loglevel/set, of all redesigned servers: judged, and without effect."""
    text = request.query.get("loglevel")
    if not text:
        raise HttpError(400, "MISSING_ARG_LEVEL")
    try:
        atoi(text.encode())
    except GoError as error:
        raise HttpError(400, "BAD_LEVEL_STRING") from error
