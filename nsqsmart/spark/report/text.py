"""Words and numbers for people."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

_MOST = 100
_MILLI, _MICRO = 1000, 1_000_000
_MINUTE, _HOUR = 60 * _MICRO, 3600 * _MICRO
_PRECISE, _ROUGH = 10, 100


def escape(value: object) -> str:
    """*value*, cut to a sane length, as HTML shows it; what cannot be shown is a mark."""
    text = str(value)
    text = text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"
    shown = "".join(each if each.isprintable() else "�" for each in text)
    return html.escape(shown, quote=True)


def duration(micros: float | None) -> str:
    """A time in the unit that suits it; the input is microseconds."""
    if micros is None:
        return "-"
    if micros < _MILLI:
        return f"{micros:.0f} µs"
    if micros < _MICRO:
        return f"{_figures(micros / _MILLI)} ms"
    if micros < _MINUTE:
        return f"{_figures(micros / _MICRO)} s"
    if micros < _HOUR:
        minutes, rest = divmod(round(micros / _MICRO), 60)
        return f"{minutes} min {rest} s"
    hours, rest = divmod(round(micros / _MICRO / 60), 60)
    return f"{hours:,} h {rest} min"


def _figures(value: float) -> str:
    """Three figures."""
    if value < _PRECISE:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < _ROUGH else f"{value:.0f}"


def moment(micros: int | None) -> str:
    """A time of day in UTC, with its date."""
    if micros is None:
        return "-"
    try:
        found = datetime.fromtimestamp(micros / _MICRO, UTC)
    except (OverflowError, ValueError, OSError):
        return "-"
    return f"{found:%Y-%m-%d %H:%M:%S}"


def share(part: int, whole: int) -> str:
    """A percentage that is never rounded to all or nothing."""
    if not whole:
        return "-"
    percent = 100 * part / whole
    for digits in (1, 2, 3, 4):
        shown = f"{percent:.{digits}f}"
        if part in (0, whole) or 0 < float(shown) < 100:
            return f"{shown} %"
    return f"{'<' if part < whole / 2 else '>'} {'0.0001' if part < whole / 2 else '99.9999'} %"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, names: int = 1) -> str:
    """A table; the first *names* columns are text, the others figures. Escapes everything."""
    cells = "".join(
        f"<th>{escape(each)}</th>" if number < names else f'<th class="n">{escape(each)}</th>'
        for number, each in enumerate(head)
    )
    lines = [f"<table><thead><tr>{cells}</tr></thead><tbody>"]
    for row in rows:
        cells = "".join(
            f"<td>{escape(each)}</td>" if number < names else f'<td class="n">{escape(each)}</td>'
            for number, each in enumerate(row)
        )
        lines.append(f"<tr>{cells}</tr>")
    return "".join([*lines, "</tbody></table>"])
