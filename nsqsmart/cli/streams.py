"""stdin, stdout and stderr whose other end is closed."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def open_missing() -> None:
    """Those the process was started without, as after ``<&-``, are nothing, and lead nowhere."""
    # In this order each becomes the descriptor it should be, which no connection may get.
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        ("stdout", os.O_WRONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, closefd=False))


def drop(stream: TextIO) -> None:
    """Its reader has gone: what is left in its buffer must not be complained of at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
