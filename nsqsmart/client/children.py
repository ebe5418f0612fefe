"""A child that a handler has forked: it answers nothing, and ends where its handler ends."""

from __future__ import annotations

import contextlib
import logging
import os
import sys

from nsqsmart.errors import UsedAfterFork

log = logging.getLogger("nsqsmart")

_INTERRUPTED = 130  # what a shell says of SIGINT


def check_process(process: int) -> None:
    """Raise UsedAfterFork for a message that came in another *process*."""
    if os.getpid() != process:
        raise UsedAfterFork(
            "the message came on a connection of the parent process: answer it there"
        )


def end_child(process: int, error: BaseException | None = None) -> None:
    """End this process if it is a child of *process*, whose handler has returned or raised here.

    Else it would go on as a second worker, with the parent's messages. The exit code is that of
    SystemExit; 1 for another *error*, which is logged; 0 where the handler returned.
    """
    if os.getpid() == process:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = _code_of(error)
    elif isinstance(error, KeyboardInterrupt):
        code = _INTERRUPTED
    elif error is not None:
        code = 1
        log.error("a handler failed in a child process that it has forked", exc_info=error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


def _code_of(error: SystemExit) -> int:
    """As the interpreter reads it."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{error.code}\n")
    return 1
