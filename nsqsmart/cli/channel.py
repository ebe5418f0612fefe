"""``nsqsmart channel``: make, delete, pause and empty channels."""

from __future__ import annotations

import argparse

from nsqsmart import Admin, AdminConfig
from nsqsmart.cli import flags
from nsqsmart.cli.changing import VERBS, tell, unknown_is_final
from nsqsmart.cli.parsing import Commands, Parser
from nsqsmart.names import check_channel, check_topic

_ABOUT = """\
Make channels, delete them with all that waits in them, pause, unpause or empty them. On a
redesigned cluster a new channel begins at the end: it gets what is published from then on.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("channel", help="make and delete channels", description=_ABOUT)
    parser.add_argument("verb", choices=tuple(VERBS), metavar="VERB", help=", ".join(VERBS))
    parser.add_argument("topic", metavar="TOPIC", help="the topic of the channels")
    parser.add_argument("channels", nargs="+", metavar="CHANNEL", help="one channel or more")
    flags.add_json(parser, "print a line of JSON for each channel")
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Do it for one channel after the other, up to one that fails."""
    topic = check_topic(chosen.topic)
    channels = [check_channel(channel) for channel in chosen.channels]
    admin = Admin(flags.address_of(chosen), **flags.client_options(chosen, AdminConfig))
    change = getattr(admin, f"{chosen.verb}_channel")
    for channel in channels:
        with unknown_is_final():
            change(topic, channel)
        tell(chosen, f"channel {topic}/{channel}", topic=topic, channel=channel)
    return 0
