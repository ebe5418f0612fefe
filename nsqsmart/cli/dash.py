"""``nsqsmart dash``: one page that shows what is in the cluster, on this machine alone.

The page asks this process, and this process asks the servers, while a browser has it open.
"""

from __future__ import annotations

import argparse
import sys

from nsqsmart import Admin, AdminConfig
from nsqsmart.cli import flags
from nsqsmart.cli.dash_figures import Figures
from nsqsmart.cli.dash_server import listen
from nsqsmart.cli.exits import INTERRUPTED
from nsqsmart.cli.parsing import Commands, Parser

_PORT = 4175
_PATIENCE = "5s"
_ABOUT = """\
Serve a page with topics, channels, depths and rates, and the partitions by node with their
leaders, at http://127.0.0.1:PORT/ until Ctrl-C. Only this machine can see it: to look from another
machine, tunnel the port. The servers are asked only while the page is open.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("dash", help="a page about the cluster", description=_ABOUT)
    parser.add_argument(
        "--port",
        type=flags.port,
        metavar="PORT",
        help=f"where (default {_PORT}, or any if it is taken)",
    )
    parser.add_argument(
        "--interval",
        type=flags.seconds,
        default=2.0,
        metavar="SECONDS",
        help="how often the servers are asked (2)",
    )
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    # A page must not hang where an nsqd does.
    options = {"admin_timeout": _PATIENCE} | flags.client_options(chosen, AdminConfig)
    figures = Figures(Admin(flags.address_of(chosen), **options), chosen.interval)
    with listen(figures, _ports(chosen.port)) as server:
        try:
            # Who reads the address may send a signal at once.
            print(
                f"nsqsmart dash: http://127.0.0.1:{server.server_port}/ ; Ctrl-C ends", flush=True
            )
            server.serve_forever()
        except KeyboardInterrupt:
            print("\nnsqsmart dash: ended", file=sys.stderr)
    return INTERRUPTED


def _ports(wanted: int | None) -> list[int]:
    return [_PORT, 0] if wanted is None else [wanted]
