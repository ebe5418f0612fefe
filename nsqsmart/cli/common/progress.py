"""Bars for people who watch, on stderr; nothing in a pipe, with NO_COLOR or without rich."""

from __future__ import annotations

import sys
from typing import Any, Self

from nsqsmart.terminal import is_watched


class ProgressBar:
    """How far it is, as a context manager; *total* None where it is not known."""

    def __init__(self, title: str, total: int | None = None, *, off: bool = False) -> None:
        self._progress = None if off or not is_watched(sys.stderr) else _rich_progress()
        if self._progress is not None:
            self._task = self._progress.add_task(title, total=total)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def advance(self, amount: int) -> None:
        """*amount* more is done."""
        if self._progress is not None:
            self._progress.advance(self._task, amount)


def _rich_progress() -> Any:
    """None without rich; it is looked for only where it would be seen."""
    try:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )
    except ImportError:
        return None
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
