"""The option table: a default, a range and a help text in the field of a dataclass.

The dataclasses of :mod:`nsqsmart.config.common` and :mod:`nsqsmart.config.roles` are the only
table there is: documentation, command line and every check are made from them by
:func:`options_of`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from nsqsmart.config.values import NOUNS, Choices, Kind, read
from nsqsmart.errors import ConfigError

_OPTION: Final = "option"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One row of the table; its name is that of the field it belongs to.

    Attributes:
        default: the value where no source gives one; None means that None is permitted.
        help: one or two sentences.
        kind: how text is read.
        minimum: the smallest value, itself permitted; None for no bound.
        maximum: the largest value, likewise.
        off: one value outside the range that switches the thing off.
        choices: every value of a CHOICE.
        accepts: which objects are permitted beside text.
        noun: what *accepts* permits, in words.
        secret: never printed.
    """

    default: Any
    help: str
    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    off: int | None = None
    choices: Choices = ()
    accepts: Callable[[object], bool] | None = None
    noun: str = ""
    secret: bool = False

    @property
    def permitted(self) -> str:
        """What the value may be, in words."""
        alternatives = [repr(choice) for choice in self.choices]
        if self.kind in NOUNS:
            alternatives.append(NOUNS[self.kind] + self._range())
        if self.noun:
            alternatives.append(self.noun)
        if self.off is not None:
            alternatives.append(f"{self.off} for off")
        if self.default is None:
            alternatives.append("None")
        *most, last = alternatives
        return f"{', '.join(most)} or {last}" if most else last

    def check(self, name: str, value: object, source: str = "") -> Any:
        """Return *value* as a config keeps it, with text read according to the kind.

        *source* says where the value was found. Raises :class:`ConfigError`, which names the
        option, the value unless it is secret, the source and what is permitted.
        """
        if self.accepts is not None and self.accepts(value):
            return value
        result = read(self.kind, value, self.choices)
        if result is not None and self._in_range(result):
            return result
        # "none" is looked at last: it is a fine client_id.
        absent = value is None or (isinstance(value, str) and value.lower() == "none")
        if absent and self.default is None:
            return None
        shown = "***" if self.secret else repr(value)
        found = f" from {source}" if source else ""
        raise ConfigError(f"{name}={shown}{found} is not permitted: it must be {self.permitted}")

    def _in_range(self, value: float | str) -> bool:
        if isinstance(value, str) or value == self.off:
            return True
        low = -math.inf if self.minimum is None else self.minimum
        return low <= value <= (math.inf if self.maximum is None else self.maximum)

    def _range(self) -> str:
        if self.minimum is None:
            return ""
        if self.maximum is None:
            return f", {_figure(self.minimum)} or more"
        return f" from {_figure(self.minimum)} to {_figure(self.maximum)}"


def _figure(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def options_of(kind: type) -> dict[str, Option]:
    """The options of a config class by name, in the order of the class."""
    return {field.name: field.metadata[_OPTION] for field in dataclasses.fields(kind)}


def check_fields(config: object) -> None:
    """Check every field of a new *config* and put what was read from text in its place."""
    for name, row in options_of(type(config)).items():
        # Frozen for all others.
        object.__setattr__(config, name, row.check(name, getattr(config, name)))


# Each of these makes a field. They return Any, as dataclasses.field does for a type checker, so
# that `dial_timeout: float = seconds(5, ...)` is a float with a default.


def _field(kind: Kind, default: Any, about: str, **more: Any) -> Any:
    row = Option(default=default, help=about, kind=kind, **more)
    return dataclasses.field(default=row.default, repr=not row.secret, metadata={_OPTION: row})


def seconds(
    default: float | None,
    about: str,
    *,
    minimum: float,
    maximum: float,
    off: int | None = None,
) -> Any:
    """A time in seconds."""
    return _field(Kind.SECONDS, default, about, minimum=minimum, maximum=maximum, off=off)


def integer(
    default: int,
    about: str,
    *,
    minimum: int,
    maximum: int | None = None,
    off: int | None = None,
) -> Any:
    """A whole number."""
    return _field(Kind.INTEGER, default, about, minimum=minimum, maximum=maximum, off=off)


def number(default: float, about: str, *, minimum: float, maximum: float) -> Any:
    """A number without a unit."""
    return _field(Kind.NUMBER, default, about, minimum=minimum, maximum=maximum)


def flag(about: str, *, default: bool = False) -> Any:
    """On or off."""
    return _field(Kind.FLAG, default, about)


def text(about: str, *, kind: Kind = Kind.TEXT, secret: bool = False) -> Any:
    """A text that is not empty, or None."""
    return _field(kind, None, about, secret=secret)


def place(about: str) -> Any:
    """A place in a log: bytes, a time or a word, or None."""
    return _field(Kind.TEXT, None, about, accepts=_is_place, noun="an int, a datetime")


def _is_place(value: object) -> bool:
    return isinstance(value, int | datetime) and not isinstance(value, bool)


def choice(choices: Choices, about: str, *, or_callable: bool = False) -> Any:
    """One of *choices*, the first being the default, or a callable where that is permitted."""
    accepts, noun = (callable, "a callable") if or_callable else (None, "")
    return _field(Kind.CHOICE, choices[0], about, choices=choices, accepts=accepts, noun=noun)


def thing(about: str, *, noun: str, accepts: Callable[[object], bool]) -> Any:
    """An object that no text can spell, or None."""
    return _field(Kind.OBJECT, None, about, noun=noun, accepts=accepts)
