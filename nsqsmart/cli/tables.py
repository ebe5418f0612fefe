"""Plain tables: figures to the right, everything else to the left, two blanks between columns."""

from __future__ import annotations

from collections.abc import Sequence

Cell = str | int | float | None


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The lines of a table; None is shown as ``-``."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *texts, strict=True)]
    right = [
        any(isinstance(cell, int | float) for cell in column) for column in zip(*rows, strict=True)
    ] or [False] * len(head)
    lines = []
    for cells in [list(head), *texts]:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def plural(count: int, noun: str) -> str:
    """``1 file``, ``2,000 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,.0f}" if isinstance(cell, int | float) else cell
