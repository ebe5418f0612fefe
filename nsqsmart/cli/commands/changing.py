"""``nsqsmart topic`` and ``nsqsmart channel``: make, delete, pause and empty."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from nsqsmart import Admin, AdminConfig
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.errors import ConfigError, TopicNotExist
from nsqsmart.names import check_channel, check_topic

_VERBS: Final = {
    "create": "created",
    "delete": "deleted",
    "pause": "paused",
    "unpause": "unpaused",
    "empty": "emptied",
}
_ABOUT_TOPIC = """\
Make topics, delete them with all that is in them, pause, unpause or empty them. On a redesigned
cluster a topic takes messages once it has a channel (nsqsmart channel create), and only its
channels can be paused and emptied.
"""
_ABOUT_CHANNEL = """\
Make channels, delete them with all that waits in them, pause, unpause or empty them. On a
redesigned cluster a new channel begins at the end: it gets what is published from then on.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add both commands to the parser."""
    topic = _add_command(commands, "topic", _ABOUT_TOPIC)
    topic.add_argument("topics", nargs="+", metavar="TOPIC", help="one topic or more")
    flags.add_count(topic, "--partitions", "with create (1)")
    flags.add_count(topic, "--replicas", "with create: copies of each (1)")
    topic.add_argument("--ordered", action="store_true", help="with create: consumed in order")
    topic.add_argument(
        "--extend-support", action="store_true", help="with create: messages may have headers"
    )
    topic.set_defaults(run=_change_topics)
    channel = _add_command(commands, "channel", _ABOUT_CHANNEL)
    channel.add_argument("topic", metavar="TOPIC", help="the topic of the channels")
    channel.add_argument("channels", nargs="+", metavar="CHANNEL", help="one channel or more")
    channel.set_defaults(run=_change_channels)


def _add_command(commands: Commands[Parser], name: str, about: str) -> Parser:
    parser = commands.add_parser(name, help=f"make and delete {name}s", description=about)
    parser.add_argument("verb", choices=tuple(_VERBS), metavar="VERB", help=", ".join(_VERBS))
    flags.add_json(parser, f"print a line of JSON for each {name}")
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    return parser


def _change_topics(chosen: argparse.Namespace) -> int:
    """Change one topic after the other, up to one that fails."""
    settings = {
        name: getattr(chosen, name)
        for name in ("partitions", "replicas", "ordered", "extend_support")
        if getattr(chosen, name)
    }
    if settings and chosen.verb != "create":
        raise UsageError(f"--{next(iter(settings)).replace('_', '-')} goes with create")
    topics = [check_topic(topic) for topic in chosen.topics]
    change = _change_of(chosen, "topic")
    for topic in topics:
        with _unknown_is_final():
            change(topic, **settings)
        _tell(chosen, f"topic {topic}", topic=topic)
    return 0


def _change_channels(chosen: argparse.Namespace) -> int:
    """Change one channel after the other, up to one that fails."""
    topic = check_topic(chosen.topic)
    channels = [check_channel(channel) for channel in chosen.channels]
    change = _change_of(chosen, "channel")
    for channel in channels:
        with _unknown_is_final():
            change(topic, channel)
        _tell(chosen, f"channel {topic}/{channel}", topic=topic, channel=channel)
    return 0


def _change_of(chosen: argparse.Namespace, what: str) -> Any:
    """The method of the Admin that the verb names."""
    admin = Admin(flags.address_of(chosen), **flags.client_options(chosen, AdminConfig))
    return getattr(admin, f"{chosen.verb}_{what}")


@contextmanager
def _unknown_is_final() -> Iterator[None]:
    """A missing topic or channel is a mistake: trying again does not help."""
    try:
        yield
    except TopicNotExist as error:
        raise ConfigError(str(error)) from error


def _tell(chosen: argparse.Namespace, what: str, **names: str) -> None:
    """Print that *what* was done, as words or as a line of JSON with *names*."""
    done = _VERBS[chosen.verb]
    print(json.dumps({**names, "done": done}) if chosen.json else f"{what}: {done}", flush=True)
