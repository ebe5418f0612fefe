"""The time line of partitions: a row each, in the colour of the nsqd that led it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from nsqsmart.spark.jobs.report.figures import Term
from nsqsmart.spark.jobs.report.svg import WIDTH, begin, label
from nsqsmart.spark.jobs.report.text import escape, messages, moment

_COLOURS = ("ok", "again", "publish", "p95", "waits", "bad", "deep")
_LEFT, _RIGHT = 200, 16
_ROW, _BAR = 22, 14
_LEAST = 2.0


def colours(terms: Sequence[Term]) -> dict[str, str]:
    """A class for each nsqd; beyond seven they repeat, and the hover texts tell them apart."""
    nsqds = dict.fromkeys(term.nsqd for term in sorted(terms, key=lambda term: term.nsqd))
    return {nsqd: _COLOURS[number % len(_COLOURS)] for number, nsqd in enumerate(nsqds)}


def draw(terms: Sequence[Term]) -> str:
    """The terms of all partitions on one line of time."""
    start, stop = min(term.begins for term in terms), max(term.ends for term in terms)
    scale = (WIDTH - _LEFT - _RIGHT) / max(1, stop - start)
    colour = colours(terms)
    rows = [list(part) for _, part in groupby(terms, key=lambda term: term[:2])]
    height = _ROW * len(rows) + 30
    parts = [begin("Partitions and their leaders", height)]
    for number, row in enumerate(rows):
        y = 4 + _ROW * number
        parts.append(label(_LEFT - 8, y + 11, f"{row[0].topic} {row[0].partition}", "end"))
        for term in row:
            x = _LEFT + (term.begins - start) * scale
            wide = max(_LEAST, (term.ends - term.begins) * scale)
            title = (
                f"{term.topic} {term.partition} at {term.nsqd}: {messages(term.messages)}, "
                f"{moment(term.begins)} to {moment(term.ends)}"
            )
            parts.append(
                f'<rect class="{colour[term.nsqd]}" x="{x:.1f}" y="{y}" width="{wide:.1f}" '
                f'height="{_BAR}"><title>{escape(title)}</title></rect>'
            )
    parts.append(label(_LEFT, height - 10, moment(start), "start"))
    parts.append(label(WIDTH - _RIGHT, height - 10, moment(stop), "end"))
    return "".join([*parts, "</svg>"])
