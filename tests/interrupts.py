"""KeyboardInterrupt, or a call, at a chosen one of the places where the interpreter can deliver it.

Those are not all the lines: CPython looks for signals, and for exceptions that other threads set,
when a function begins, when one written in C returns, and when a loop begins anew. One between any
two instructions would strike where none ever does, as behind the entry of a ``with``; one between
any two lines would miss many, as the inside of ``threading.Condition.__enter__``.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

import pytest

from tests.helpers import PACKAGE

# Our own code and what guards it; what is inside of requests is made anew for every lookup.
_WHERE = (str(PACKAGE), threading.__file__)
_LOOKS = ("RESUME", "CALL", "JUMP_BACKWARD")
_DOES_NOT = "JUMP_BACKWARD_NO_INTERRUPT"


class _Places:
    """Counts them in this thread, and strikes at the one that is asked for."""

    def __init__(self, position: int, strike: Callable[[], object]) -> None:
        self._position = position
        self._strike = strike
        self._callers: set[int] = set()  # by id: to hold a frame is to hold what it refers to
        self.passed = 0

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        """To be called as each function begins."""
        if frame.f_code.co_name != "__init__":  # which is called by the class, in C
            self._callers.add(id(frame.f_back))
        if not frame.f_code.co_filename.startswith(_WHERE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        code = frame.f_code.co_code
        before = "RESUME"

        def step(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
            nonlocal before
            if event == "exception":
                # The call did not return, and no signal is looked for on the way to a handler.
                before = ""
                self._callers.discard(id(frame))
            elif event == "opcode":
                if before.startswith(_LOOKS) and before != _DOES_NOT:
                    into_python = id(frame) in self._callers
                    self._callers.discard(id(frame))
                    if before != "CALL" or not into_python:
                        self._pass()
                before = dis.opname[code[frame.f_lasti]]
            return step

        return step

    def _pass(self) -> None:
        self.passed += 1
        if self.passed == self._position:
            self._strike()


def interrupted_at(
    position: int, error: type[BaseException] = KeyboardInterrupt
) -> AbstractContextManager[_Places]:
    """*error* at the place of that number, counted from 1; 0 only counts."""

    def strike() -> None:
        raise error

    return calling_at(position, strike)


@contextmanager
def calling_at(position: int, call: Callable[[], object]) -> Iterator[_Places]:
    """*call*, as a signal handler, at the place of that number; what it raises is raised there."""
    if sys.version_info >= (3, 12):
        pytest.skip(
            "later CPythons than 3.11 trace the opcodes of a function from its second call on"
        )
    places = _Places(position, call)
    before = sys.gettrace()
    sys.settrace(places.trace)
    try:
        yield places
    finally:
        sys.settrace(before)


def count_places(call: Callable[[], object]) -> int:
    """How many places *call* has."""
    with interrupted_at(0) as places:
        call()
    return places.passed
