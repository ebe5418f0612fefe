"""What a forked child inherits and may not use: the connections of its parent.

A child that wrote to one would speak in its parent's name, and a descriptor that it keeps hides the
parent's end from the server. So both are ended in the child at once, by a hook of ``os.fork``; who
was forked without it (by uWSGI, by C) is known by its number.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """Something that a child must not use."""

    def drop(self) -> None:
        """In a child: end it here alone. It takes no lock, whose holder is gone."""


_inherited: WeakSet[Inherited] = WeakSet()


def keep_from_children(thing: Inherited) -> None:
    """Have *thing* dropped in every child that is forked; it is not kept alive."""
    _inherited.add(thing)


def _drop_all() -> None:
    for thing in list(_inherited):
        thing.drop()
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_all)
