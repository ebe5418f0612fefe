"""The ``nsqsmart`` command.

Exit codes: 0 good, 1 a failed check or bad configuration, 2 usage, 75 worth retrying later,
130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nsqsmart import __version__
from nsqsmart.cli import demo
from nsqsmart.errors import ConfigError, NsqError

_RETRY_LATER = 75
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line *arguments* (default: those of the process); returns the exit code."""
    parser = argparse.ArgumentParser(prog="nsqsmart", description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="version", version=f"nsqsmart {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo.add_parser(commands)
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return _INTERRUPTED
    except (ConfigError, OSError) as error:
        print(f"nsqsmart: {error}", file=sys.stderr)
        return 1
    except NsqError as error:
        print(f"nsqsmart: {error}", file=sys.stderr)
        return _RETRY_LATER if getattr(error, "retryable", False) else 1
