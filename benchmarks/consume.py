"""How fast nsqsmart consumes: beside a bare loop, beside its peers, and against the gates.

python benchmarks/consume.py [--nsqd PROGRAM] [--without-peers] [--all-cores] [--seconds S]
                             [--rounds N] [--cache FOLDER] [--only FIGURE ...]

Every contestant is a process of its own, and so is what it reads from: benchmarks/source.py, which
always has one more message, or with --nsqd a real nsqd 1.3.0, where gates 6, 7 and 16 are judged.
A gate whose source was busier than its client is not measured. 1 if a gate is missed or not
measured; --without-peers lets the latter pass.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import ExitStack
from pathlib import Path

from contest import Contestant, ContestantFailed, Entry, version_of
from environments import CACHE, GO, NAMES, MissingPeer, command_of, script
from feast import LATENCY_RATE, Table
from harness import confined, running
from source import source
from verdicts import LIMIT, LIMIT_AGAIN, Figure, Gate, Rounds, Verdict, pass_judgement, show

OURS = "nsqsmart"
GO_4 = "go-nsq, 4 handlers"
INLINE = "nsqsmart, workers=0"
BATCH = "nsqsmart, batches"
PULL = "PullSubscription"
MANY = "nsqsmart, 64 connections"
BUFFERED = "nsqsmart, rdy_mode=level"
IDEAL = "16 workers that only wait"
PYTHON = ("pynsq", "gnsq", "nsq-py")
ALL = (*PYTHON, GO)
RIVALS = {"memory": ("pynsq",), "block": PYTHON}
"""Of figures in which not everybody takes part."""

VERBS = {"nsqd": "consume", "cpu": "consume", "level": "latency", "trickle": "latency"}
"""What a contestant is asked for, where the figure has another name."""

FIGURES = {
    "consume": Figure("consume, RDY 200, 4 workers", OURS, width=4, one_core=False),
    "cpu": Figure("the same, CPU", OURS, by_cpu=True),
    "inline": Figure("consume, handler on the reader", INLINE, one_core=False),
    "batch": Figure("consume, batches of 100", BATCH, one_core=False),
    "pull": Figure("pulled in hundreds, no thread", PULL, one_core=False),
    "block": Figure("a handler that blocks for 1 ms", OURS, width=16, one_core=False),
    "one": Figure("RDY 1, handler on the reader", OURS),
    "memory": Figure("bytes a message in flight", OURS, by_latency=True),
    "many": Figure("64 connections", MANY, width=64, one_core=False),
    "nsqd": Figure("consume, RDY 200, 4 workers", OURS, width=4, one_core=False),
    "latency": Figure("publish to handler, 100 a second", OURS, by_latency=True),
    "level": Figure("the same with the 25 ms buffer", BUFFERED, by_latency=True),
    "unbuffered": Figure("the same without buffers", OURS, by_latency=True),
    "trickle": Figure("source to handler, 100 a second", OURS, by_latency=True),
}
GATES_SOURCE = (
    Gate(1, "consume", "pynsq", 25),
    Gate(1, "consume", "gnsq", 30),
    Gate(1, "consume", "nsq-py", 2.5),
    Gate(2, "consume", GO, 4.5),
    Gate(2, "consume", GO_4, 4),
    Gate(3, "consume", LIMIT, 0.33, goal=0.6),
    Gate(4, "inline", LIMIT, 0.48, goal=0.75),
    Gate(5, "batch", LIMIT, 0.38, goal=0.75),
    Gate(8, "cpu", "pynsq", 25),
    Gate(8, "cpu", "gnsq", 30),
    Gate(8, "cpu", "nsq-py", 2.5),
    Gate(8, "cpu", GO, 4),
    Gate(9, "block", "pynsq", 14),
    Gate(9, "block", "gnsq", 14),
    Gate(9, "block", "nsq-py", 14),
    Gate(9, "block", IDEAL, 0.88),
    Gate(10, "one", "pynsq", 2.5),
    Gate(10, "one", GO, 1.05),
    Gate(17, "trickle", "pynsq", 1.5),
    Gate(17, "trickle", "gnsq", 1.5),
    Gate(17, "trickle", "nsq-py", 1.1),
    Gate(18, "memory", "pynsq", 2),
    Gate(19, "many", OURS, 0.3),
)
GATES_NSQD = (
    Gate(6, "nsqd", "pynsq", 12),
    Gate(6, "nsqd", "gnsq", 14),
    Gate(6, "nsqd", "nsq-py", 1.6),
    Gate(6, "nsqd", GO, 2.3),
    Gate(7, "nsqd", LIMIT, 0.7),
    *(Gate(16, "level", name, 6) for name in (*PYTHON, GO)),
    *(Gate(16, "latency", name, 100) for name in (*PYTHON, GO)),
)


def options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line, or *arguments* instead of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nsqd", metavar="PROGRAM", help="a real nsqd 1.3.0, measured too")
    parser.add_argument("--without-peers", action="store_true", help="nsqsmart and sockets alone")
    parser.add_argument("--all-cores", action="store_true", help="confine no figure to one core")
    parser.add_argument("--seconds", type=float, default=1.0, help="a turn takes about so long")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"default: {CACHE}")
    parser.add_argument("--only", nargs="+", choices=FIGURES, help="these figures alone")
    chosen = parser.parse_args(arguments)
    if chosen.seconds <= 0 or chosen.rounds < 1:
        parser.error("--seconds must be above 0, --rounds 1 or more")
    if chosen.nsqd and not shutil.which(chosen.nsqd):
        parser.error(f"--nsqd {chosen.nsqd}: there is no such program")
    return chosen


def recruit(chosen: argparse.Namespace) -> tuple[dict[str, list[str]], dict[str, str]]:
    """What starts each contestant; and the peers that are missing, with the reason."""
    own = {LIMIT: "bare", OURS: "nsqsmart"}
    commands = {name: [sys.executable, script(player, "eat")] for name, player in own.items()}
    missing: dict[str, str] = {}
    if chosen.without_peers:
        missing = dict.fromkeys((*NAMES, GO_4), "left out by --without-peers")
        return commands, missing
    with source() as load:
        for name in NAMES:
            try:
                commands[name] = command_of(name, chosen.cache.resolve(), "eat")
                with Contestant(name, commands[name]) as contestant:
                    Table(load).play(Entry(contestant, "consume"), 8, 1)
            except (MissingPeer, ContestantFailed) as error:
                commands.pop(name, None)
                missing[name] = str(error)
                print(f"{name} is missing: {error}", flush=True)
    if GO in missing:
        missing[GO_4] = missing[GO]
    return commands, missing


def seats(key: str, found: dict[str, Contestant]) -> dict[str, tuple[Entry, int]]:
    """Who takes part in a figure, and with how many workers or handlers."""
    verb = VERBS.get(key, key)
    ours, width = found[OURS], FIGURES[key].width
    bare = {LIMIT: (Entry(found[LIMIT], "consume"), 1)}
    alone = {
        "inline": bare | {INLINE: (Entry(ours, "inline"), 1)},
        "batch": bare | {BATCH: (Entry(ours, "batch"), 4)},
        "pull": bare | {PULL: (Entry(ours, "pull"), 1)},
        "many": {OURS: (Entry(ours, "consume"), 4), MANY: (Entry(ours, "many"), width)},
    }
    if key in alone:
        return alone[key]
    peers = {name: (Entry(found[name], verb), 1) for name in RIVALS.get(key, ALL) if name in found}
    if key == "level":
        return {BUFFERED: (Entry(ours, "buffered"), 4)} | peers
    mine = {OURS: (Entry(ours, verb), width)}
    if verb != "consume":
        return mine | peers
    again = {LIMIT_AGAIN: (Entry(found[LIMIT_AGAIN], "consume"), 1)}
    four = {GO_4: (Entry(found[GO], verb), 4)} if GO in found else {}
    return bare | again | mine | peers | four


def measure(
    key: str, program: str | None, commands: dict[str, list[str]], chosen: argparse.Namespace
) -> Rounds:
    """One figure, what it reads from made for it, and its table."""
    figure = FIGURES[key]
    with ExitStack() as stack:
        confine = figure.one_core and not chosen.all_cores
        cores = stack.enter_context(confined(confine=confine))
        if program:
            server = stack.enter_context(running(program))
            title, table = f"nsqd {version_of(server)}", Table(server)
        else:
            rate = LATENCY_RATE if key == "trickle" else 0
            title, table = "the source", Table(stack.enter_context(source(figure.width, rate)))
        found = {
            name: stack.enter_context(Contestant(name, command))
            for name, command in commands.items()
        }
        found[LIMIT_AGAIN] = stack.enter_context(Contestant(LIMIT, commands[LIMIT]))
        rounds = table.rounds(key, seats(key, found), chosen.rounds, chosen.seconds)
    if key == "block":
        for turn in rounds:
            turn[IDEAL] = turn[OURS]._replace(rate=figure.width * 1000.0, cpu=0.0, source=0.0)
    show(figure, rounds, title, cores)
    sys.stdout.flush()
    return rounds


def run(chosen: argparse.Namespace) -> list[Verdict]:
    """Measure on each server, then judge."""
    commands, missing = recruit(chosen)
    places = {None: GATES_SOURCE}
    if chosen.nsqd:
        places[chosen.nsqd] = GATES_NSQD
    judged: list[Verdict] = []
    for program, gates in places.items():
        # No gate is on the last one.
        unjudged = "unbuffered" if program else "pull"
        keys = dict.fromkeys([*(gate.figure for gate in gates), unjudged])
        found: dict[str, Rounds] = {}
        for key in keys:
            if chosen.only and key not in chosen.only:
                continue
            if key == "cpu" and "consume" in found:
                found[key] = found["consume"]
                show(FIGURES[key], found[key], "the source", "as above")
            else:
                found[key] = measure(key, program, commands, chosen)
        judged += pass_judgement(gates, FIGURES, found, missing, program or "the source")
    return judged


def main(arguments: list[str] | None = None) -> int:
    """Run it all; the exit code."""
    chosen = options(arguments)
    try:
        judged = run(chosen)
    except ContestantFailed as error:
        raise SystemExit(f"benchmark broken off: {error}") from error
    if not chosen.nsqd:
        print("  not judged: gates 6, 7 and 16 on a real nsqd, which --nsqd names")
    bad = {Verdict.MISSED} if chosen.without_peers else {Verdict.MISSED, Verdict.NOT_MEASURED}
    return int(any(verdict in bad for verdict in judged))


if __name__ == "__main__":
    sys.exit(main())
