"""One server as a program of its own: ``python -m nsqsmart.embedded nsqd|nsqlookupd FLAGS``."""

from __future__ import annotations

import sys
from typing import NoReturn

_USAGE = "usage: python -m nsqsmart.embedded nsqd|nsqlookupd [flags]; --help lists the flags"


def main(arguments: list[str]) -> int:
    """Run a server until SIGTERM or SIGINT; the exit code."""
    program, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if program == "nsqd":
        from nsqsmart.embedded.nsqd.program import run  # noqa: PLC0415 - only what is needed
    elif program == "nsqlookupd":
        from nsqsmart.embedded.nsqlookupd.program import run  # noqa: PLC0415
    else:
        print(_USAGE, file=sys.stderr)  # noqa: T201 - a program prints
        return 1
    return run(rest)


def _exit() -> NoReturn:
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    _exit()
