"""Watches the locks of the client: what is called while one is held.

The rule is in docs/architecture.md: decide inside, act outside. A profile function runs in a thread
for as long as that holds a lock made by ``client``, ``net`` or ``tracing``, and sees each call.
A try-lock counts as a lock: it cannot block, but the order of two locks is then in the code.
"""

from __future__ import annotations

import gc
import logging
import socket
import sys
import threading
import time
from _thread import LockType, RLock
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Any

import pytest

from nsqsmart.client.messages import message
from tests.helpers import PACKAGE, ROOT

_WATCHED = tuple(str(PACKAGE / each) for each in ("client", "net", "tracing.py"))
# A lock there is a waiter: it guards nothing, and the thread that takes it waits for another.
_WAITERS = ("net/waiters.py", "client/pipelining/pending.py", "client/publishing/placement.py")
_LOCK = threading.Lock
_BLOCKING = {
    *((kind, name) for kind in (LockType, RLock) for name in ("acquire", "__enter__")),
    *((socket.socket, name) for name in ("recv", "recv_into", "send", "sendall", "connect")),
    (SimpleQueue, "get"),
}
# What is allowed under which lock, and why.
ALLOWED = (
    # A send lock is there to keep one send whole: TLS encrypts, and the socket sends.
    ("net/write_buffer.py", "net/transport.py"),
    ("net/write_buffer.py", "net/sockets.py"),
    ("net/pipeline.py", "net/transport.py"),
    ("net/pipeline.py", "net/sockets.py"),
    # One thread reads the source, which may be the user's; the others do not wait for it.
    ("tracing.py", ""),
)


def _where(frame: FrameType | None) -> str:
    """``file:line`` of the first frame that is not of ``threading``; the file from our package."""
    while frame is not None and frame.f_code.co_filename in (threading.__file__, __file__):
        frame = frame.f_back
    if frame is None:
        return "?"
    file = frame.f_code.co_filename.removeprefix(f"{PACKAGE}/").removeprefix(f"{ROOT}/")
    return f"{file}:{frame.f_lineno}"


class LockAudit:
    """``violations`` are sentences, each once."""

    def __init__(self) -> None:
        self.violations: dict[str, None] = {}
        self.seen: set[str] = set()
        """Where the locks were made that were held."""
        self._local = threading.local()

    def make_lock(self) -> Any:
        """Stands for ``threading.Lock``: a watched lock, if a watched module makes it."""
        made = _LOCK()
        caller = sys._getframe(1)
        inner: FrameType | None = caller
        while inner is not None and inner.f_code.co_filename == threading.__file__:
            inner = inner.f_back
        if inner is None or not inner.f_code.co_filename.startswith(_WATCHED):
            return made
        place = _where(inner)
        return made if place.startswith(_WAITERS) else _Watched(made, place, self)

    def taken(self, lock: _Watched) -> None:
        """The calling thread has it."""
        held = self._held()
        if held:
            self._note(held, f"the lock of {lock.place} is taken", sys._getframe(2))
        held.append((lock, _where(sys._getframe(2))))
        self.seen.add(lock.place.partition(":")[0])
        sys.setprofile(self._look)

    def released(self, lock: _Watched) -> None:
        """The calling thread lets it go, or another thread's."""
        held = self._held()
        held[:] = [each for each in held if each[0] is not lock]
        if not held:
            sys.setprofile(None)

    def _held(self) -> list[tuple[_Watched, str]]:
        if not hasattr(self._local, "held"):
            self._local.held = []
        return self._local.held

    def _note(self, held: list[tuple[_Watched, str]], what: str, frame: FrameType | None) -> None:
        for lock, taken_at in held:
            passed, each = set(), frame
            while each is not None:
                passed.add(_where(each).partition(":")[0])
                each = each.f_back
            made_in = lock.place.partition(":")[0]
            if any(made_in == made and (not via or via in passed) for made, via in ALLOWED):
                continue
            sentence = f"under the lock of {lock.place}, taken at {taken_at}: {what}"
            self.violations[f"{sentence}, from {_where(frame)}"] = None

    def _look(self, frame: FrameType, event: str, argument: Any) -> None:
        held = self._held()
        file = frame.f_code.co_filename
        if file == __file__ or not held:
            return
        if event == "call":
            caller = frame.f_back
            name = frame.f_code.co_qualname
            if file == logging.__file__ and caller and caller.f_code.co_filename != file:
                self._note(held, f"logging is called ({name})", caller)
            elif file == threading.__file__ and name == "Thread.start":
                self._note(held, "a thread is started", caller)
            elif file.startswith(str(ROOT / "tests")):
                self._note(held, f"a function of the application is called ({name})", caller)
        elif event == "c_call" and file != threading.__file__:
            kind = type(getattr(argument, "__self__", None))
            named = (kind, argument.__name__)
            blocks = any(issubclass(kind, each) and named[1] == name for each, name in _BLOCKING)
            if blocks or argument is time.sleep:
                self._note(held, f"{kind.__name__}.{named[1]} is called, which may block", frame)


class _Watched:
    """A lock, and what :class:`threading.Condition` asks of one."""

    def __init__(self, lock: LockType, place: str, audit: LockAudit) -> None:
        self._lock = lock
        self.place = place
        self._audit = audit

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        got = self._lock.acquire(blocking, timeout)
        if got:
            self._audit.taken(self)
        return got

    def release(self) -> None:
        self._audit.released(self)
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()

    def _is_owned(self) -> bool:
        return self._lock.locked()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def audited() -> Iterator[LockAudit]:
    """Watch the locks that are made in the block."""
    audit = LockAudit()
    patch = pytest.MonkeyPatch()
    patch.setattr(threading, "Lock", audit.make_lock)
    patch.setattr(message, "_making", _Watched(_LOCK(), "client/messages/message.py", audit))
    # What the collector ends runs wherever it is due.
    gc.disable()
    try:
        yield audit
    finally:
        gc.enable()
        patch.undo()
        sys.setprofile(None)
