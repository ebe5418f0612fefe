"""``nsqsmart topic``: make, delete, pause and empty topics."""

from __future__ import annotations

import argparse

from nsqsmart import Admin, AdminConfig
from nsqsmart.cli import flags
from nsqsmart.cli.changing import VERBS, tell, unknown_is_final
from nsqsmart.cli.parsing import Commands, Parser, UsageError
from nsqsmart.names import check_topic

_ABOUT = """\
Make topics, delete them with all that is in them, pause, unpause or empty them. On a redesigned
cluster a topic takes messages once it has a channel (nsqsmart channel create), and only its
channels can be paused and emptied.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("topic", help="make and delete topics", description=_ABOUT)
    parser.add_argument("verb", choices=tuple(VERBS), metavar="VERB", help=", ".join(VERBS))
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="one topic or more")
    parser.add_argument("--partitions", type=flags.count, metavar="N", help="with create (1)")
    parser.add_argument(
        "--replicas", type=flags.count, metavar="N", help="with create: copies of each (1)"
    )
    parser.add_argument("--ordered", action="store_true", help="with create: consumed in order")
    parser.add_argument(
        "--extend-support", action="store_true", help="with create: messages may have headers"
    )
    flags.add_json(parser, "print a line of JSON for each topic")
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Do it for one topic after the other, up to one that fails."""
    settings = {
        name: getattr(chosen, name)
        for name in ("partitions", "replicas", "ordered", "extend_support")
        if getattr(chosen, name)
    }
    if settings and chosen.verb != "create":
        raise UsageError(f"--{next(iter(settings)).replace('_', '-')} goes with create")
    topics = [check_topic(topic) for topic in chosen.topics]
    admin = Admin(flags.address_of(chosen), **flags.client_options(chosen, AdminConfig))
    change = getattr(admin, f"{chosen.verb}_topic")
    for topic in topics:
        with unknown_is_final():
            change(topic, **settings)
        tell(chosen, f"topic {topic}", topic=topic)
    return 0
