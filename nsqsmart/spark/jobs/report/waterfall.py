"""The life of one message on a time line: published, waiting, each attempt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nsqsmart.spark.jobs.report.figures import Event, Life
from nsqsmart.spark.jobs.report.svg import WIDTH
from nsqsmart.spark.jobs.report.text import duration, escape

_LEFT, _RIGHT, _ROW = 150, 90, 20
_MOST = 16
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
    left_out = len(segments) - _MOST
    if left_out > 0:
        half = _MOST // 2
        segments = [*segments[:half], *segments[-half:]]
    begin = min(each.begin for each in segments)
    end = max(each.end if each.end is not None else each.begin for each in segments)
    span = max(1, end - begin)
    height = _ROW * len(segments) + 6
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="life of a message">']
    for row, each in enumerate(segments):
        parts.append(_bar(each, row, begin, span, end))
    note = f"<p>{left_out:,} attempts in the middle are not drawn.</p>" if left_out > 0 else ""
    return "".join([*parts, "</svg>", note])


def _bar(each: Segment, row: int, begin: int, span: int, end: int) -> str:
    y = 3 + _ROW * row
    wide = WIDTH - _LEFT - _RIGHT
    until = end if each.end is None else each.end
    x = _LEFT + wide * (each.begin - begin) / span
    length = max(2.0, wide * (until - each.begin) / span)
    took = "no end in the logs" if each.end is None else duration(until - each.begin)
    title = f"{each.label}, {duration(each.begin - begin)} after the start: {each.told} ({took})"
    return (
        f'<text x="{_LEFT - 6}" y="{y + 12}" text-anchor="end">{escape(each.label)}</text>'
        f'<rect class="{each.kind}" x="{x:.1f}" y="{y}" width="{length:.1f}" height="{_ROW - 6}">'
        f"<title>{escape(title)}</title></rect>"
        f'<text x="{x + length + 5:.1f}" y="{y + 12}">{escape(took)}</text>'
    )


def segments_of(life: Life) -> Iterator[Segment]:
    """Bars in the order of time."""
    events = sorted(life.events, key=lambda each: each.at)
    if not events:
        return
    free = events[0].at if life.born is None else life.born
    stored = _stored(events)
    if stored is not None:
        begin = stored.at - (stored.duration or 0)
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
    who = f"{what} by {begun.client or 'a consumer'} on {begun.nsqd or 'nsqd'}"
    kind = _CLASSES.get(_ENDS[ended.event] if ended else "", "bad")
    return Segment(
        f"attempt {begun.attempts or number}", kind, begun.at, ended.at if ended else None, who
    )
