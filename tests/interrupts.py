"""KeyboardInterrupt, or a call, at a chosen one of the places where the interpreter can deliver it.

Those are not all the lines: CPython looks for signals, and for exceptions that other threads set,
when a function begins, when one written in C returns, and when a loop begins anew. One between any
two instructions would strike where none ever does, as behind the entry of a ``with``; one between
any two lines would miss many, as the inside of ``threading.Condition.__enter__``.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import Any

from tests.helpers import PACKAGE

# Our own code and what guards it; what is inside of requests is made anew for every lookup.
_WHERE = (str(PACKAGE), threading.__file__)
_LOOKS = ("RESUME", "CALL", "JUMP_BACKWARD")
_DOES_NOT = "JUMP_BACKWARD_NO_INTERRUPT"
_TOOL = 4  # ``sys.monitoring`` has no name for it


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
                        self.come_by()
                before = dis.opname[code[frame.f_lasti]]
            return step

        return step

    def come_by(self) -> None:
        """One more place."""
        self.passed += 1
        if self.passed == self._position:
            self._strike()


class _Monitor:
    """Counts on later CPythons, where a trace misses the opcodes of a function's first call.

    What a callback raises is raised by the instruction that is reported, as an interrupt would be.
    The end of a loop's turn is a place from 3.13 on, which skips the handlers around the loop in
    its function (python/cpython#130279); 3.12 raises a line later, which cannot be done here.
    """

    def __init__(self, places: _Places) -> None:
        self._places = places
        self._thread = threading.get_ident()
        self._codes = _codes(len(sys.modules))
        events = sys.monitoring.events
        self._callbacks: dict[int, Callable[..., None]] = {
            events.PY_START: self._come_by,
            events.PY_RESUME: self._come_by,
            events.C_RETURN: self._come_by,
        }
        self._watched = events.PY_START | events.PY_RESUME | events.CALL
        if sys.version_info >= (3, 13):
            self._callbacks[events.JUMP] = self._jump
            self._watched |= events.JUMP

    def begin(self) -> None:
        """Watch every function from now on."""
        sys.monitoring.use_tool_id(_TOOL, "interrupts")
        for event, callback in self._callbacks.items():
            sys.monitoring.register_callback(_TOOL, event, callback)
        for code in self._codes:
            sys.monitoring.set_local_events(_TOOL, code, self._watched)

    def end(self) -> None:
        """Watch none any more."""
        for code in self._codes:
            sys.monitoring.set_local_events(_TOOL, code, 0)
        for event in self._callbacks:
            sys.monitoring.register_callback(_TOOL, event, None)
        sys.monitoring.free_tool_id(_TOOL)

    def _come_by(self, _code: CodeType, _offset: int, *_details: object) -> None:
        if threading.get_ident() == self._thread:
            self._places.come_by()

    def _jump(self, code: CodeType, offset: int, _destination: int) -> None:
        if dis.opname[code.co_code[offset]] == "JUMP_BACKWARD":
            self._come_by(code, offset)


@functools.lru_cache(maxsize=1)
def _codes(_modules: int) -> list[CodeType]:
    """Every function that is watched, as of so many modules."""
    files = ((module, getattr(module, "__file__", None)) for module in sys.modules.values())
    modules = [module for module, file in files if file and file.startswith(_WHERE)]
    found = [code for module in modules for code in _codes_in(module)]
    for code in found:  # it grows: those that are defined within
        found += [each for each in code.co_consts if isinstance(each, CodeType)]
    return [*{id(code): code for code in found if code.co_filename.startswith(_WHERE)}.values()]


def _codes_in(holder: object) -> Iterator[CodeType]:
    """Those of the functions and classes of a module or a class."""
    for each in list(vars(holder).values()):
        kind = type(each)  # isinstance() would have Django's lazy settings look for theirs
        if issubclass(kind, type) and each.__module__ == getattr(holder, "__name__", ""):
            yield from _codes_in(each)
        elif issubclass(kind, property):
            yield from (part.__code__ for part in (each.fget, each.fset) if part)
        else:
            function = each.__func__ if issubclass(kind, staticmethod | classmethod) else each
            if issubclass(type(function), FunctionType):
                yield inspect.unwrap(function).__code__


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
    places = _Places(position, call)
    if sys.version_info < (3, 12):
        before = sys.gettrace()
        begin, end = partial(sys.settrace, places.trace), partial(sys.settrace, before)
    else:
        monitor = _Monitor(places)
        begin, end = monitor.begin, monitor.end
    begin()
    try:
        yield places
    finally:
        end()


def count_places(call: Callable[[], object]) -> int:
    """How many places *call* has."""
    with interrupted_at(0) as places:
        call()
    return places.passed
