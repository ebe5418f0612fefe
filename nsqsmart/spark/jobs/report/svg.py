"""Charts, as SVG in the page: no scripts, hover texts by ``<title>``, colours by style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nsqsmart.spark.jobs.report.figures import Bar, Minute
from nsqsmart.spark.jobs.report.text import duration, escape, moment

WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 10, 34
_HEIGHT = 240
_TICKS = 6
_LINES = ("p50", "p95", "p99")


def histogram(bars: Sequence[Bar]) -> str:
    """Messages by whole latency, which grows to the right by factors."""
    if not bars:
        return "<p>Nothing was finished.</p>"
    most = max(bar.first + bar.again for bar in bars)
    wide = (WIDTH - _LEFT - _RIGHT) / len(bars)
    parts = [begin("How long messages live"), *_count_axis(most)]
    for number, bar in enumerate(bars):
        x, total = _LEFT + number * wide, bar.first + bar.again
        high, low = _scaled(bar.first, most), _scaled(bar.again, most)
        bottom = _HEIGHT - _BOTTOM
        title = (
            f"{duration(bar.least)} to {duration(bar.most)}: {total:,} messages, "
            f"{bar.again:,} of them delivered again"
        )
        parts.append(
            f"<g><title>{escape(title)}</title>"
            f'<rect class="ok" x="{x + 1:.1f}" y="{bottom - high:.1f}" width="{wide - 2:.1f}" '
            f'height="{high:.1f}"/>'
            f'<rect class="again" x="{x + 1:.1f}" y="{bottom - high - low:.1f}" '
            f'width="{wide - 2:.1f}" height="{low:.1f}"/></g>'
        )
        if number % max(1, len(bars) // _TICKS) == 0:
            parts.append(label(x, _HEIGHT - 12, duration(bar.least), "start"))
    return "".join([*parts, "</svg>"])


def ages(minutes: Sequence[Minute]) -> str:
    """Percentiles of the whole latency over the time of publishing, upwards by factors."""
    drawn = [each for each in minutes if each.percentiles and each.percentiles[0] is not None]
    if not drawn:
        return "<p>Nothing was finished.</p>"
    values = [max(1.0, value) for each in drawn for value in each.percentiles if value is not None]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    parts = [begin("Age when finished, by time of publishing")]
    for power in range(low, high + 1):
        y = _level(10.0**power, low, high)
        parts.append(_line(y))
        parts.append(label(_LEFT - 6, y + 4, duration(10.0**power), "end"))
    since, span = drawn[0].begins, max(1, drawn[-1].begins - drawn[0].begins)
    for number, name in enumerate(_LINES):
        points = [
            (_across(each.begins, since, span), _level(each.percentiles[number] or 1, low, high))
            for each in drawn
        ]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="line {name}" points="{line}"/>')
        for (x, y), each in zip(points, drawn, strict=True):
            title = (
                f"{moment(each.begins)}: {name} {duration(each.percentiles[number])}, "
                f"{each.messages:,} published, {each.finished:,} finished"
            )
            parts.append(
                f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                f"<title>{escape(title)}</title></circle>"
            )
    parts.append(label(_LEFT, _HEIGHT - 12, moment(drawn[0].begins), "start"))
    parts.append(label(WIDTH - _RIGHT, _HEIGHT - 12, moment(drawn[-1].begins), "end"))
    return "".join([*parts, "</svg>"])


def attempts(counts: Sequence[tuple[int, int]]) -> str:
    """Messages by how often they were delivered."""
    most = max((count for _, count in counts), default=0)
    height = 24 * max(1, len(counts)) + 8
    parts = [begin("Attempts", height)]
    for row, (number, count) in enumerate(counts):
        y = 4 + 24 * row
        wide = (WIDTH - 2 * _LEFT - 80) * count / max(1, most)
        kind = "ok" if number == 1 else "again"
        parts.append(label(_LEFT - 6, y + 15, f"{number}", "end"))
        parts.append(
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{max(wide, 1):.1f}" height="18">'
            f"<title>{count:,} messages after {number} deliveries</title></rect>"
        )
        parts.append(label(_LEFT + wide + 8, y + 15, f"{count:,}", "start"))
    return "".join([*parts, "</svg>"])


def begin(title: str, height: int = _HEIGHT) -> str:
    """An open ``svg`` element."""
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">'


def label(x: float, y: float, text: str, anchor: str) -> str:
    """Text in a chart; *anchor* is start, middle or end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(y: float) -> str:
    return f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _count_axis(most: int) -> list[str]:
    bottom = _HEIGHT - _BOTTOM
    parts = []
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * (bottom - _TOP)
        parts.append(_line(y))
        parts.append(label(_LEFT - 6, y + 4, f"{round(most * part):,}", "end"))
    return parts


def _scaled(count: int, most: int) -> float:
    """The height of a bar; one message can be seen."""
    high = (_HEIGHT - _BOTTOM - _TOP) * count / max(1, most)
    return max(high, 1.0) if count else 0.0


def _across(at: int, begin: int, span: int) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (at - begin) / span


def _level(value: float, low: int, high: int) -> float:
    part = (math.log10(max(1.0, value)) - low) / (high - low)
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - _TOP)
