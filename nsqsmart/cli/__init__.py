"""The ``nsqsmart`` command.

::

    commands/   one module each: its flags, and what it does
    common/     what several commands use
    files/      the files that ``to-file`` writes
    demo/       the story that ``nsqsmart demo`` tells
    pages/      the page of ``nsqsmart dash``

:func:`main` imports the module of the command that was given, and no other one. ``commands`` stand
on the other rooms; ``files`` and ``demo`` do not know each other. What Spark's jobs and the
frameworks use too is in :mod:`nsqsmart.terminal`.

Exit codes: 0 good, 1 a failed check or bad configuration, 2 usage, 75 worth retrying later,
130 after Ctrl-C.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from nsqsmart import __version__
from nsqsmart.cli.common.parsing import Commands, Parser, UsageError
from nsqsmart.errors import NsqError
from nsqsmart.terminal import INTERRUPTED, drop, exit_code, open_missing, signals_to

_ABOUT = """\
Publish to NSQ, consume from it and look at it. Every command has --help. Exit codes: 0 good, 1 a
failed check or bad configuration, 2 usage, 75 worth retrying later, 130 after Ctrl-C.
"""
_COMMANDS = {
    "demo": "demo",
    "server": "server",
    "pub": "pub",
    "tail": "tail",
    "stat": "stat",
    "lookup": "lookup",
    "topic": "changing",
    "channel": "changing",
    "doctor": "doctor",
    "to-file": "to_file",
    "copy": "copy",
    "bench": "bench",
    "trace": "trace",
    "dash": "dash",
    "spool": "spool",
    "completion": "completion",
}
"""Their modules in ``commands``; each has ``add_parser(commands)``, which sets ``run``."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments* (default: those of the process); returns the exit code."""
    open_missing()
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = given[0] if given else ""
    with _surroundings() as handler:
        try:
            parser, commands = make_parser(name)
            if name in _COMMANDS:
                return _run(commands.choices[name], given[1:], handler)
            if name and not name.startswith("-"):
                parser.suggest(name, _COMMANDS, "command")
            parser.parse_args(given)
        except KeyboardInterrupt as interrupt:
            # A command that has told what was left passes it on.
            if not interrupt.args:
                print("\nnsqsmart: interrupted", file=sys.stderr)
            _flush_what_goes()
            return INTERRUPTED
    return 0


def make_parser(only: str = "") -> tuple[Parser, Commands[Any]]:
    """The parser of every command, or of one alone, which is faster."""
    parser = Parser(prog="nsqsmart", description=_ABOUT)
    parser.add_argument("--version", action="version", version=f"nsqsmart {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = [_COMMANDS[only]] if only in _COMMANDS else dict.fromkeys(_COMMANDS.values())
    for module in modules:
        import_module(f"nsqsmart.cli.commands.{module}").add_parser(commands)
    return parser, commands


def _run(parser: Parser, arguments: Sequence[str], handler: logging.Handler) -> int:
    chosen = parser.understand(arguments)
    if getattr(chosen, "runs_on", False):
        # What a command that ends by itself has retried is not worth a line if it went well.
        handler.setLevel(logging.WARNING)
    try:
        return int(chosen.run(chosen))
    except UsageError as error:
        parser.error(str(error))
    except BrokenPipeError:
        drop(sys.stdout)
        return 0
    except (NsqError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return exit_code(error)


def _flush_what_goes() -> None:
    """The reader of stdout may have stopped: the end of the process must not wait."""
    try:
        os.set_blocking(sys.stdout.fileno(), False)
        sys.stdout.flush()
    except OSError:
        drop(sys.stdout)
    else:
        os.set_blocking(sys.stdout.fileno(), True)


# ----------------------------------------------------------------------------------- surroundings


@contextmanager
def _surroundings() -> Iterator[logging.Handler]:
    """SIGTERM is like Ctrl-C; what the library has to say is one line on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.ERROR)
    handler.setFormatter(_OneLine())
    log = logging.getLogger("nsqsmart")
    log.addHandler(handler)
    try:
        with signals_to(_interrupt, [signal.SIGTERM]), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield handler
    finally:
        log.removeHandler(handler)


def _interrupt() -> None:
    raise KeyboardInterrupt


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"nsqsmart: warning: {message}", file=sys.stderr)


class _OneLine(logging.Formatter):
    """Without the traceback, which says nothing to who runs a command; with its last line."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        text = f"nsqsmart: {record.getMessage()}"
        return f"{text}: {error}" if error is not None else text
