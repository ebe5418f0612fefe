"""What belongs to one process: objects for each PID, forked children, signals, the exit."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Collection
from time import monotonic
from types import CodeType, FrameType
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from nsqsmart.errors import UsedAfterFork

log = logging.getLogger("nsqsmart")

_INTERRUPTED = 130  # what a shell says of SIGINT


_PATIENCE = 2.0

_said: list[bool] = []


class Droppable(Protocol):
    """Something with descriptors that a child inherits."""

    def drop(self) -> None:
        """Close them alone, without a word to the parent's peers."""


T = TypeVar("T", bound=Droppable)


class PerProcess(Generic[T]):
    """One object for each process, keyed by PID; no lock is there to be inherited held."""

    def __init__(self) -> None:
        self.held: dict[int, T] = {}
        """By PID. A publish reads it directly; everything else goes through the methods."""

    def get(self) -> T | None:
        """The object of this process, or None."""
        return self.held.get(os.getpid())

    def get_or_make(self, make: Callable[[], T]) -> T:
        """The object of this process, made if need be; the parent's is dropped."""
        found = self.held.get(os.getpid())
        if found is None:
            self.drop_inherited()
            # setdefault: two threads may get here at once.
            found = self.held.setdefault(os.getpid(), make())
        return found

    def take(self) -> T | None:
        """Remove and return the object of this process, or None."""
        self.drop_inherited()
        return self.held.pop(os.getpid(), None)

    def drop_inherited(self) -> None:
        """Close what came with a fork."""
        # A copy first: other threads may be adding theirs.
        for process in [pid for pid in list(self.held) if pid != os.getpid()]:
            inherited = self.held.pop(process, None)
            if inherited:
                inherited.drop()


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
    """The exit code of *error*, as the interpreter reads it."""
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{error.code}\n")
    return 1


def interrupts(
    client: object, calls: Collection[CodeType], others: Collection[CodeType] = ()
) -> bool:
    """Whether the caller's caller runs on top of one of the *calls* of *client*.

    Or of the *others*, of whatever object. A signal handler does, and so does a callback; the locks
    the call holds are held meanwhile. The stack knows, and no interrupt can make it forget, as it
    could a note that a call would keep.
    """
    above: FrameType | None = sys._getframe(2)  # noqa: SLF001 - there is no other way to it
    while above is not None:
        code = above.f_code
        if code in others or (code in calls and above.f_locals.get("self") is client):
            return True
        above = above.f_back
    return False


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
        except Exception as error:  # noqa: BLE001 - nothing may disturb the end of a process
            log.warning("while the process ended: %s", error)


def warn_in_event_loop() -> None:
    """Say once that a blocking call was made in a running event loop, and what to do instead."""
    # A process that runs a loop has imported asyncio.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or _said:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    _said.append(True)
    log.warning(
        "a Producer blocks the event loop it is used in; "
        "write await asyncio.to_thread(producer.publish, topic, body)"
    )
