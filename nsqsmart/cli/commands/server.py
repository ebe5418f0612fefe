"""``nsqsmart server``: servers in this process, in the foreground."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nsqsmart.cli.common import flags
from nsqsmart.cli.common.ending import TURN, Ending
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.embedded import Cluster
from nsqsmart.embedded.cluster_options import ClusterOptions
from nsqsmart.embedded.nsqd.hosting import OriginalTopics
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.program import NsqdProgram
from nsqsmart.embedded.nsqlookupd.program import LookupdProgram
from nsqsmart.embedded.nsqlookupd.server import LookupdOptions
from nsqsmart.errors import ConfigError
from nsqsmart.names import Dialect, check_topic
from nsqsmart.terminal import INTERRUPTED

_LOOKUPD_PORT = 4161
_NSQD_PORT = 4150
_MOST_NSQDS = 16
_HOST = "127.0.0.1"
_ABOUT = """\
Run an nsqlookupd and nsqds in this process, on this machine alone, until Ctrl-C. For work and
tests; for production run the real programs. The first client that names a topic makes
it. Messages are in memory, unless --data-path says where to keep them.
"""


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("server", help="run servers on this machine", description=_ABOUT)
    parser.add_argument(
        "--dialect",
        choices=("redesigned", "original"),
        help="which servers to play (default redesigned; with --data-path original)",
    )
    parser.add_argument(
        "--nsqds", type=_nsqds, metavar="N", help="how many nsqds (default: as many as replicas)"
    )
    flags.add_count(parser, "--partitions", "of each new topic (1)", default=1)
    flags.add_count(parser, "--replicas", "of each new topic (1)", default=1)
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="NAME",
        help="make this topic at the start; may be repeated",
    )
    parser.add_argument("--ordered", action="store_true", help="make the topics of --topic ordered")
    parser.add_argument(
        "--port",
        type=flags.port,
        metavar="PORT",
        help=f"of the nsqlookupd for clients (default {_LOOKUPD_PORT}, or any if that is taken)",
    )
    parser.add_argument(
        "--data-path", type=Path, metavar="DIR", help="keep topics and messages here (original)"
    )
    flags.add_json(parser, "print the address as one line of JSON")
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    chosen.dialect = chosen.dialect or ("original" if chosen.data_path else "redesigned")
    _check(chosen)
    for topic in chosen.topic:
        check_topic(topic)
    with Ending() as ending, _serving(chosen) as url:
        # Who reads the address may send a signal at once.
        ending.begin()
        if chosen.json:
            print(json.dumps({"url": url, "dialect": chosen.dialect}), flush=True)
        else:
            _tell(chosen, url)
        while not ending.wait(TURN):
            pass
    kept = f"kept in {chosen.data_path}" if chosen.data_path else "its messages are gone"
    print(f"nsqsmart server: ended; {kept}", file=sys.stderr)
    return INTERRUPTED


def _check(chosen: argparse.Namespace) -> None:
    if chosen.data_path and chosen.dialect == "redesigned":
        raise UsageError("--data-path keeps what original servers have: add --dialect original")
    only_redesigned = {"--partitions": chosen.partitions > 1, "--replicas": chosen.replicas > 1}
    only_redesigned["--ordered"] = chosen.ordered
    if chosen.dialect == "original" and any(only_redesigned.values()):
        flag = next(name for name, given in only_redesigned.items() if given)
        raise UsageError(f"{flag}: original servers have no such thing")
    chosen.nsqds = chosen.nsqds or chosen.replicas
    if chosen.replicas > chosen.nsqds:
        raise UsageError(f"--replicas {chosen.replicas} needs as many --nsqds")


def _tell(chosen: argparse.Namespace, url: str) -> None:
    print(
        f"nsqsmart server: {chosen.nsqds} {chosen.dialect} nsqd, 1 nsqlookupd, "
        f"{chosen.data_path or 'in memory'}; Ctrl-C ends\n\n"
        f"  export NSQSMART_URL={url}\n\n"
        "  nsqsmart tail orders\n"
        "  nsqsmart pub orders hello",
        flush=True,
    )


@contextmanager
def _serving(chosen: argparse.Namespace) -> Iterator[str]:
    """The servers; gives their address."""
    start = _kept if chosen.data_path else _in_memory
    with ExitStack() as stack:
        try:
            url = start(chosen, stack, chosen.port or _LOOKUPD_PORT, _NSQD_PORT)
        except OSError as error:
            if chosen.port:
                raise ConfigError(f"--port {chosen.port}: {error.strerror}") from error
            # An nsqd saves its folder as it ends: if it ended behind the one that runs in its
            # place, it would save over what that one has saved.
            stack.close()
            url = start(chosen, stack, 0, 0)
        yield url


def _in_memory(chosen: argparse.Namespace, stack: ExitStack, port: int, nsqd_port: int) -> str:
    options: ClusterOptions = {
        "dialect": chosen.dialect,
        "nsqds": chosen.nsqds,
        "log": False,
        "auto_create": True,
        "lookupd_ports": [port],
        # With a port of the user's own the nsqds take any: several such servers get along.
        "tcp_ports": [] if chosen.port or not nsqd_port else _ports(nsqd_port, chosen.nsqds),
    }
    if chosen.dialect == "redesigned":
        options |= {"partitions": chosen.partitions, "replicas": chosen.replicas}
    cluster = stack.enter_context(Cluster(**options))
    for topic in chosen.topic:
        if chosen.dialect == "redesigned":
            cluster.create_topic(topic, chosen.partitions, chosen.replicas, ordered=chosen.ordered)
        else:
            cluster.create_topic(topic)
    return cluster.url


def _kept(chosen: argparse.Namespace, stack: ExitStack, port: int, nsqd_port: int) -> str:
    """Real files under the folder: one of each nsqd."""
    dialect = Dialect(chosen.dialect)
    lookupd = LookupdProgram(
        LookupdOptions(dialect=dialect, http_address=(_HOST, port), tcp_address=(_HOST, 0))
    )
    lookupd.start()
    stack.callback(lookupd.stop)
    ports = [0] * chosen.nsqds if chosen.port or not nsqd_port else _ports(nsqd_port, chosen.nsqds)
    for number, tcp in enumerate(ports):
        folder = chosen.data_path / f"nsqd-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        options = NsqdOptions(
            dialect=dialect, tcp_address=(_HOST, tcp), node_id=number + 1, data_path=folder
        )
        nsqd = NsqdProgram(options, [lookupd.lookupd.tcp_address])
        stack.callback(nsqd.stop)
        nsqd.start()
        if isinstance(nsqd.topics, OriginalTopics):
            for topic in chosen.topic:
                nsqd.topics.get(topic)
    return f"nsq+lookupd://{lookupd.lookupd.name}"


def _ports(first: int, count: int) -> list[int]:
    """As a real nsqd has them, with its HTTP port after its TCP port."""
    return [first + 2 * number for number in range(count)]


def _nsqds(text: str) -> int:
    value = flags.count(text)
    if value > _MOST_NSQDS:
        raise argparse.ArgumentTypeError(f"{text}: {_MOST_NSQDS} at most")
    return value
