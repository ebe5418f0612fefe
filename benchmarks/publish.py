"""How fast nsqsmart publishes: beside bare sockets, beside its peers, and against the gates.

python benchmarks/publish.py [--nsqd PROGRAM] [--without-peers] [--all-cores]
                             [--messages N] [--rounds N] [--cache FOLDER]

Every contestant is a process of its own, and so is the server. The peers are installed by this
program, each into an environment of its own below the cache folder. Without --nsqd everything runs
on the embedded nsqd alone, which judges gate 12 and its own gate 15; gates 11, 13, 14 and 15 are
judged on a real nsqd 1.3.0, where they were measured. 1 if a gate is missed or, for want of a
peer, not measured; --without-peers lets the latter pass.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

from contest import Contestant, ContestantFailed, Entry, play, play_rounds, version_of
from environments import CACHE, NAMES, MissingPeer, command_of, script
from harness import confined, running
from verdicts import LIMIT, LIMIT_AGAIN, Figure, Gate, Rounds, Verdict, pass_judgement, show

EMBEDDED = "the embedded nsqd"
OURS = "nsqsmart"
ASYNC = "publish_async"
SYNC = "publish"
FIGURES = {
    "sync": Figure("PUB, one thread", OURS, by_latency=True),
    "threads": Figure("PUB, 8 threads", OURS, width=8, share=2, one_core=False),
    "mpub": Figure("MPUB of 100", OURS, width=100, share=20),
    "async": Figure("asynchronous PUB", ASYNC, share=4),
}
GATES_NSQD = (
    Gate(11, "sync", "pynsq", 6),
    Gate(11, "sync", "gnsq", 3.5),
    Gate(11, "sync", "nsq-py", 2.2),
    Gate(11, "sync", "go-nsq", 1.5),
    Gate(13, "threads", "pynsq", 3.3),
    Gate(13, "threads", "gnsq", 2.3),
    Gate(13, "threads", "nsq-py", 2.8),
    Gate(13, "threads", "go-nsq", 0.8),
    Gate(14, "mpub", "pynsq", 2.2),
    Gate(14, "mpub", "gnsq", 1.6),
    Gate(14, "mpub", "nsq-py", 1.4),
    Gate(14, "mpub", "go-nsq", 1.1),
    Gate(15, "async", SYNC, 1.6),
)
GATES_EMBEDDED = (
    Gate(12, "sync", LIMIT, 1.6, at_most=True, goal=1.15),
    Gate(15, "async", SYNC, 6),
)
LEAST = 8
"""Messages a turn: with fewer a thread or a batch would have none."""


def options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, or *arguments* instead of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nsqd", metavar="PROGRAM", help="a real nsqd 1.3.0, measured too")
    parser.add_argument("--without-peers", action="store_true", help="nsqsmart and sockets alone")
    parser.add_argument("--all-cores", action="store_true", help="confine no figure to one core")
    parser.add_argument("--messages", type=int, default=5000, help="a turn (default: 5000)")
    parser.add_argument("--rounds", type=int, default=7, help="default: 7")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"default: {CACHE}")
    chosen = parser.parse_args(arguments)
    if chosen.messages < LEAST or chosen.rounds < 1:
        parser.error(f"--messages must be {LEAST} or more, --rounds 1 or more")
    if chosen.nsqd and not shutil.which(chosen.nsqd):
        parser.error(f"--nsqd {chosen.nsqd}: there is no such program")
    return chosen


def recruit(chosen: argparse.Namespace) -> tuple[dict[str, list[str]], dict[str, str]]:
    """What starts each contestant; and the peers that are missing, with the reason."""
    own = {LIMIT: "bare", LIMIT_AGAIN: "bare", OURS: "nsqsmart"}
    commands = {name: [sys.executable, script(player)] for name, player in own.items()}
    if chosen.without_peers:
        return commands, dict.fromkeys(NAMES, "left out by --without-peers")
    missing = {}
    with running(None) as server:
        for name in NAMES:
            try:
                commands[name] = command_of(name, chosen.cache.resolve())
                with Contestant(name, commands[name]) as contestant:
                    play(server, Entry(contestant, "sync"), LEAST, 1)
            except (MissingPeer, ContestantFailed) as error:
                commands.pop(name, None)
                missing[name] = str(error)
                print(f"{name} is missing: {error}", flush=True)
    return commands, missing


def entries(key: str, contestants: dict[str, Contestant]) -> dict[str, Entry]:
    """Who takes part in a figure."""
    if key == "async":
        ours = contestants[OURS]
        return {SYNC: Entry(ours, "sync"), ASYNC: Entry(ours, "async")}
    return {name: Entry(contestant, key) for name, contestant in contestants.items()}


def measure(
    key: str, program: str | None, commands: dict[str, list[str]], chosen: argparse.Namespace
) -> Rounds:
    """One figure on one server, both made for it, and its table."""
    figure = FIGURES[key]
    with ExitStack() as stack:
        confine = figure.one_core and not chosen.all_cores
        cores = stack.enter_context(confined(confine=confine))
        server = stack.enter_context(running(program))
        title = f"nsqd {version_of(server)}" if program else EMBEDDED
        contestants = {
            name: stack.enter_context(Contestant(name, command))
            for name, command in commands.items()
        }
        taking_part = entries(key, contestants)
        count = chosen.messages * figure.share
        rounds = play_rounds(server, taking_part, count, figure.width, chosen.rounds)
    show(figure, rounds, title, cores)
    sys.stdout.flush()
    return rounds


def run(chosen: argparse.Namespace) -> list[Verdict]:
    """Measure on each server, then judge."""
    commands, missing = recruit(chosen)
    servers = {None: GATES_EMBEDDED}
    if chosen.nsqd:
        servers[chosen.nsqd] = GATES_NSQD
    found = {
        program: {key: measure(key, program, commands, chosen) for key in FIGURES}
        for program in servers
    }
    judged = []
    for program, gates in servers.items():
        judged += pass_judgement(gates, FIGURES, found[program], missing, program or EMBEDDED)
    return judged


def main(arguments: list[str] | None = None) -> int:
    """Run it all; the exit code."""
    chosen = options(arguments)
    try:
        judged = run(chosen)
    except ContestantFailed as error:
        raise SystemExit(f"benchmark broken off: {error}") from error
    if not chosen.nsqd:
        print("  not judged: gates 11, 13, 14 and 15 on a real nsqd, which --nsqd names")
    bad = {Verdict.MISSED} if chosen.without_peers else {Verdict.MISSED, Verdict.NOT_MEASURED}
    return int(any(verdict in bad for verdict in judged))


if __name__ == "__main__":
    sys.exit(main())
