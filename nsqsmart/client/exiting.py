"""What clients do when the interpreter ends and nobody has closed them, or that is under way."""

from __future__ import annotations

import atexit
import logging
from time import monotonic
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger("nsqsmart")

_PATIENCE = 2.0


class Leaver(Protocol):
    """A client that may have something on its way; in a child of a fork it has nothing."""

    def leave(self, deadline: float) -> None:
        """Let it end until *deadline* (monotonic seconds), and end the sockets."""


_leavers: WeakSet[Leaver] = WeakSet()
_hooked: list[bool] = []


def at_exit(leaver: Leaver) -> None:
    """Give *leaver* a moment at the end of the process: one hook, at most 2 s for all."""
    _leavers.add(leaver)
    if not _hooked:
        _hooked.append(True)
        atexit.register(_leave)


def _leave() -> None:
    deadline = monotonic() + _PATIENCE
    for leaver in list(_leavers):
        try:
            leaver.leave(deadline)
        except Exception as error:  # noqa: BLE001 - the end of a process is nobody's to disturb
            log.warning("while the process ended: %s", error)
