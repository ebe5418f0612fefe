"""Charts, as SVG in the page: no scripts, hover texts by ``<title>``, colours by style sheet.

A histogram, ages, attempts; the time line of partitions, a row each in the colour of the nsqd that
led it; and the life of one message: published, waiting, each attempt.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from nsqsmart.spark.report.figures import Bar, Event, Life, Minute, Term
from nsqsmart.spark.report.text import duration, escape, moment
from nsqsmart.terminal import plural

WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 16, 10, 34
_HEIGHT = 240
_TICKS = 6
_LINES = ("p50", "p95", "p99")

_COLOURS = ("ok", "again", "publish", "p95", "waits", "bad", "deep")
_NAMES, _EDGE = 200, 16
_TERM_ROW, _TERM_BAR = 22, 14
_LEAST_WIDTH = 2.0

_LABELS, _TIMES, _ROW = 150, 90, 20
_MOST_SEGMENTS = 16
_ENDS = {
    "finished": "finished",
    "requeued": "requeued",
    "timed_out": "not answered in time",
    "lost": "connection lost",
    "fin": "finished",
    "req": "requeued",
    "timeout": "not answered in time",
}
_CLASSES = {"finished": "ok", "requeued": "again"}


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
    wide = WIDTH - _LEFT - _RIGHT
    since, span = drawn[0].begins, max(1, drawn[-1].begins - drawn[0].begins)
    for number, name in enumerate(_LINES):
        points = [
            (
                _LEFT + wide * (each.begins - since) / span,
                _level(each.percentiles[number] or 1, low, high),
            )
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


def _level(value: float, low: int, high: int) -> float:
    part = (math.log10(max(1.0, value)) - low) / (high - low)
    return _HEIGHT - _BOTTOM - part * (_HEIGHT - _BOTTOM - _TOP)


def colours(terms: Sequence[Term]) -> dict[str, str]:
    """A class for each nsqd; beyond seven they repeat, and the hover texts tell them apart."""
    nsqds = dict.fromkeys(term.nsqd for term in sorted(terms, key=lambda term: term.nsqd))
    return {nsqd: _COLOURS[number % len(_COLOURS)] for number, nsqd in enumerate(nsqds)}


def leaders(terms: Sequence[Term]) -> str:
    """The terms of all partitions on one line of time."""
    start, stop = min(term.begins for term in terms), max(term.ends for term in terms)
    scale = (WIDTH - _NAMES - _EDGE) / max(1, stop - start)
    colour = colours(terms)
    rows = [list(part) for _, part in groupby(terms, key=lambda term: term[:2])]
    height = _TERM_ROW * len(rows) + 30
    parts = [begin("Partitions and their leaders", height)]
    for number, row in enumerate(rows):
        y = 4 + _TERM_ROW * number
        parts.append(label(_NAMES - 8, y + 11, f"{row[0].topic} {row[0].partition}", "end"))
        for term in row:
            x = _NAMES + (term.begins - start) * scale
            wide = max(_LEAST_WIDTH, (term.ends - term.begins) * scale)
            title = (
                f"{term.topic} {term.partition} at {term.nsqd}: "
                f"{plural(term.messages, 'message')}, {moment(term.begins)} to {moment(term.ends)}"
            )
            parts.append(
                f'<rect class="{colour[term.nsqd]}" x="{x:.1f}" y="{y}" width="{wide:.1f}" '
                f'height="{_TERM_BAR}"><title>{escape(title)}</title></rect>'
            )
    parts.append(label(_NAMES, height - 10, moment(start), "start"))
    parts.append(label(WIDTH - _EDGE, height - 10, moment(stop), "end"))
    return "".join([*parts, "</svg>"])


class Segment(NamedTuple):
    """A bar of the waterfall; ``end`` is None if the logs do not say."""

    label: str
    kind: str
    begin: int
    end: int | None
    told: str


def waterfall(life: Life) -> str:
    """Its SVG; of very many attempts the first and the last."""
    segments = list(segments_of(life))
    if not segments:
        return "<p>No event of it has a time.</p>"
    left_out = len(segments) - _MOST_SEGMENTS
    if left_out > 0:
        half = _MOST_SEGMENTS // 2
        segments = [*segments[:half], *segments[-half:]]
    start = min(each.begin for each in segments)
    end = max(each.end if each.end is not None else each.begin for each in segments)
    span = max(1, end - start)
    height = _ROW * len(segments) + 6
    parts = [begin("life of a message", height)]
    for row, each in enumerate(segments):
        parts.append(_bar(each, row, start, span, end))
    note = f"<p>{left_out:,} attempts in the middle are not drawn.</p>" if left_out > 0 else ""
    return "".join([*parts, "</svg>", note])


def _bar(each: Segment, row: int, begin: int, span: int, end: int) -> str:
    y = 3 + _ROW * row
    wide = WIDTH - _LABELS - _TIMES
    until = end if each.end is None else each.end
    x = _LABELS + wide * (each.begin - begin) / span
    length = max(2.0, wide * (until - each.begin) / span)
    took = "no end in the logs" if each.end is None else duration(until - each.begin)
    title = f"{each.label}, {duration(each.begin - begin)} after the start: {each.told} ({took})"
    return (
        f"{label(_LABELS - 6, y + 12, each.label, 'end')}"
        f'<rect class="{each.kind}" x="{x:.1f}" y="{y}" width="{length:.1f}" height="{_ROW - 6}">'
        f"<title>{escape(title)}</title></rect>"
        f"{label(x + length + 5, y + 12, took, 'start')}"
    )


def segments_of(life: Life) -> Iterator[Segment]:
    """Bars in the order of time."""
    events = sorted(life.events, key=lambda each: each.at)
    if not events:
        return
    free = events[0].at if life.born is None else life.born
    stored = _stored(events)
    if stored is not None:
        begin = stored.at - (stored.duration_us or 0)
        free = stored.at
        yield Segment("publish", "publish", begin, free, f"stored by {stored.nsqd or 'nsqd'}")
    mine = [each for each in events if each.channel == life.channel and each.channel is not None]
    is_told = any(each.source == "client" for each in mine)
    source, start = ("client", "received") if is_told else ("server", "start")
    for each in _attempts([each for each in mine if each.source == source], start):
        if each.begin > free:
            yield Segment("waits", "waits", free, each.begin, "until it is delivered")
        yield each
        free = each.begin if each.end is None else each.end


def _stored(events: Sequence[Event]) -> Event | None:
    """The end of the publish: the publisher's word, which has its length, or the server's."""
    for name in ("published", "put"):
        for each in events:
            if each.event == name:
                return each
    return None


def _attempts(events: Sequence[Event], start: str) -> Iterator[Segment]:
    begun: Event | None = None
    number = 0
    for each in events:
        if each.event == start:
            if begun is not None:
                yield _attempt(begun, None, number)
            begun, number = each, number + 1
        elif each.event in _ENDS and begun is not None:
            yield _attempt(begun, each, number)
            begun = None
    if begun is not None:
        yield _attempt(begun, None, number)


def _attempt(begun: Event, ended: Event | None, number: int) -> Segment:
    what = _ENDS[ended.event] if ended else "no answer in the logs"
    if ended and ended.error:
        what += f" after {ended.error}"
    if ended and ended.delay_ms:
        what += f", again in {ended.delay_ms:,} ms"
    who = f"{what} by {begun.client_id or 'a consumer'} on {begun.nsqd or 'nsqd'}"
    kind = _CLASSES.get(_ENDS[ended.event] if ended else "", "bad")
    return Segment(
        f"attempt {begun.attempts or number}", kind, begun.at, ended.at if ended else None, who
    )
