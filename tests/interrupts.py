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


def _trace(places: _Places) -> Callable[[], None]:
    """Begin to count on CPython 3.11; returns what ends it."""
    before = sys.gettrace()
    sys.settrace(places.trace)
    return lambda: sys.settrace(before)


def _monitor(places: _Places) -> Callable[[], None]:
    """The same on later ones, where a trace misses the opcodes of a function's first call.

    What a callback raises is raised by the instruction that is reported, as an interrupt would be.
    The ends of loops are left out: there 3.13 skips the handlers of ``with`` and ``try``
    (python/cpython#130279), so that no lock is safe, whatever the code around it.
    """
    monitoring = sys.monitoring
    events = monitoring.events
    thread = threading.get_ident()

    def come_by(_code: CodeType, _offset: int, *_details: object) -> None:
        if threading.get_ident() == thread:
            places.come_by()

    reported = (events.PY_START, events.PY_RESUME, events.C_RETURN)
    watched = events.PY_START | events.PY_RESUME | events.CALL
    codes = _codes(len(sys.modules))
    monitoring.use_tool_id(_TOOL, "interrupts")
    for event in reported:
        monitoring.register_callback(_TOOL, event, come_by)
    for code in codes:
        monitoring.set_local_events(_TOOL, code, watched)

    def end() -> None:
        for code in codes:
            monitoring.set_local_events(_TOOL, code, 0)
        for event in reported:
            monitoring.register_callback(_TOOL, event, None)
        monitoring.free_tool_id(_TOOL)

    return end


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
    end = _trace(places) if sys.version_info < (3, 12) else _monitor(places)
    try:
        yield places
    finally:
        end()


def count_places(call: Callable[[], object]) -> int:
    """How many places *call* has."""
    with interrupted_at(0) as places:
        call()
    return places.passed
