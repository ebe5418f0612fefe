"""argparse, with flags as the Go tools take them and a suggestion for a wrong one."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

USAGE = 2
_TRUE = frozenset({"true", "1", "t"})
_FALSE = frozenset({"false", "0", "f"})

Commands = argparse._SubParsersAction  # noqa: SLF001 - argparse has no other name for it


class UsageError(Exception):
    """The flags do not go together; says how they would."""


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviations, one dash for two, and words between flags."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        keywords.setdefault("allow_abbrev", False)
        super().__init__(*arguments, **keywords)

    def understand(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse what follows the name of a command; ends the process as argparse does."""
        return self.parse_intermixed_args(list(self._normal(arguments)))

    def error(self, message: str) -> NoReturn:
        """One line, and the exit code of a usage error."""
        print(f"{self.prog}: {message} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(USAGE)

    def suggest(self, name: str, known: Iterable[str], what: str) -> NoReturn:
        """Refuse *name*, an unknown *what*, with the nearest one that is known."""
        near = difflib.get_close_matches(name, list(known), n=1)
        self.error(f"unknown {what} {name}" + (f": did you mean {near[0]}?" if near else ""))

    def _normal(self, arguments: Sequence[str]) -> Iterable[str]:
        """``-topic x`` as ``--topic x``, ``--gzip=true`` as ``--gzip``; wrong names are refused."""
        known = self._option_string_actions
        rest = iter(arguments)
        for argument in rest:
            if argument == "--":
                yield argument
                yield from rest
                return
            name, equals, value = argument.partition("=")
            if name.startswith("-") and f"-{name}" in known:
                name = f"-{name}"
            if name.startswith("--") and name not in known:
                self.suggest(name, known, "flag")
            action = known.get(name)
            if action is None or not equals:
                yield name + equals + value
            elif action.nargs != 0:
                yield from (name, value) if value.startswith("-") is False else (argument,)
            else:
                yield from self._switch(name, value)

    def _switch(self, name: str, value: str) -> Iterable[str]:
        """Go's programs take ``--gzip=false``."""
        if value.lower() in _TRUE:
            yield name
        elif value.lower() not in _FALSE:
            self.error(f"{name}={value}: it is true or false")
        elif (opposite := f"--no-{name[2:]}") in self._option_string_actions:
            yield opposite
