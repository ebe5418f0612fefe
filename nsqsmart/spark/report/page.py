"""The page: its style sheet (light, dark, and print) and its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from nsqsmart.spark.report import drawing
from nsqsmart.spark.report.drawing import waterfall
from nsqsmart.spark.report.figures import LATENCIES, PERCENTS, ChannelFigures, Figures, Life, Term
from nsqsmart.spark.report.text import duration, escape, moment, share, table
from nsqsmart.terminal import plural

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1f24;--soft:#5b6670;--line:#d8dde2;
--ok:#2a7ab0;--again:#d98a1f;--bad:#b3372e;--waits:#c3ccd4;--publish:#4d8f5b;--p95:#8a5fb0}
@media (prefers-color-scheme:dark){:root{--paper:#14181c;--ink:#e4e8ec;--soft:#98a4ae;
--line:#333b43;--ok:#5aa7da;--again:#e8a54a;--bad:#e46a5f;--waits:#46515b;--publish:#6fb57f;
--p95:#b48ad6}}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1000px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;margin:0 0 12px}h2{font-size:19px;margin:36px 0 8px}
h3{font-size:14px;margin:22px 0 0;overflow-wrap:anywhere}
p{margin:6px 0}section p{color:var(--soft);font-size:13px}
table{border-collapse:collapse;font-size:13px;margin:10px 0;display:block;overflow-x:auto}
th,td{padding:4px 12px 4px 0;text-align:left;border-bottom:1px solid var(--line);
white-space:nowrap}
th{color:var(--soft);font-weight:600}td.n,th.n{text-align:right}td.n{font-variant-numeric:tabular-nums}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:11px}
.grid{stroke:var(--line);stroke-width:1}
.ok,.p50{fill:var(--ok);background:var(--ok);stroke:var(--ok)}
.again,.p99{fill:var(--again);background:var(--again);stroke:var(--again)}
.bad{fill:var(--bad);background:var(--bad)}.waits{fill:var(--waits);background:var(--waits)}
.publish{fill:var(--publish);background:var(--publish)}
.deep{fill:var(--soft);background:var(--soft)}
.p95{fill:var(--p95);background:var(--p95);stroke:var(--p95)}
rect.ok,rect.again{stroke:none}
.line{fill:none;stroke-width:1.6}
.p95.line{stroke-dasharray:7 3}.p99.line{stroke-dasharray:2 3}
.key{display:inline-block;width:11px;height:11px;margin:0 4px 0 12px;vertical-align:-1px}
@media print{section{break-inside:avoid}}
"""

MOST = 500_000
_CHANNELS = 40
_WORDS = {
    "to_receive": "publish to receive",
    "to_finish": "receive to finish",
    "whole": "publish to finish",
}


def render(figures: Figures) -> bytes:
    """UTF-8, less than MOST bytes: if need be fewer waterfalls are drawn."""
    drawn = len(figures.given_up)
    while True:
        page = _page(figures, drawn).encode()
        if len(page) < MOST or not drawn:
            return page
        drawn //= 2


def _page(figures: Figures, drawn: int) -> str:
    return "".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>Trace report</title><style>{STYLE}</style></head><body><main>",
            "<h1>The life of messages</h1>",
            *(f"<p>{line}</p>" for line in _headline(figures)),
            _channels(figures.channels),
            "<h2>How long messages live</h2>",
            "<p>From publish to finish; every bar is a range of times, growing by factors. "
            '<span class="key ok"></span> delivered once <span class="key again"></span> '
            "delivered again</p>",
            drawing.histogram(figures.histogram),
            f"<h2>Age when finished, by time of publishing</h2><p>Each point is "
            f"{_stretch(figures.width)}. "
            '<span class="key p50"></span> half are younger <span class="key p95"></span> 95 of '
            '100 are <span class="key p99"></span> 99 of 100 are</p>',
            drawing.ages(figures.minutes),
            "<h2>Attempts</h2><p>How often a message was delivered in a channel.</p>",
            drawing.attempts(figures.attempts),
            _leaders(figures.terms),
            _parties(figures),
            _slowest(figures.slowest),
            _given_up(figures, drawn),
            _making(figures),
            "</main></body></html>",
        ]
    )


def _headline(figures: Figures) -> Iterator[str]:
    """The numbers in words."""
    yield (
        f"<strong>{plural(figures.published, 'message')}</strong> published with a trace id, "
        f"between {moment(figures.begins)} and {moment(figures.ends)} UTC."
        + (f" {figures.failed:,} publishes failed." if figures.failed else "")
    )
    for each in figures.channels[:_CHANNELS]:
        done = each.messages - each.states.get("unconsumed", 0)
        p50, _, _, p99, most = each.latencies["whole"]
        yield (
            f"<strong>{escape(each.name)}</strong>: {done:,} of {each.messages:,} finished "
            f"({share(done, each.messages)})"
            + (
                f"; half of them within {duration(p50)}, 99 of 100 within {duration(p99)}, the "
                f"slowest after {duration(most)}"
                if done
                else ""
            )
            + f". {each.again:,} were delivered more than once, "
            + f"{each.states.get('unconsumed', 0):,} were never finished, "
            + f"{each.gave_up:,} given up"
            + (
                f", {each.states.get('late', 0):,} later than {figures.late:g} s"
                if figures.late is not None
                else ""
            )
            + "."
        )


def _channels(channels: Sequence[ChannelFigures]) -> str:
    head = ["topic / channel", "messages", "ok", "redelivered", "late", "unconsumed", "given up"]
    shown = channels[:_CHANNELS]
    states = table(
        head,
        (
            [
                each.name,
                f"{each.messages:,}",
                *(f"{each.states.get(name, 0):,}" for name in head[2:6]),
                f"{each.gave_up:,}",
            ]
            for each in shown
        ),
    )
    percentiles = table(
        ["topic / channel", "time", *(f"p{each}" for each in PERCENTS[:-1]), "longest"],
        (
            [each.name, _WORDS[name], *map(duration, each.latencies[name])]
            for each in shown
            for name in LATENCIES
        ),
        names=2,
    )
    more = len(channels) - len(shown)
    note = f"<p>{more:,} more channels are not shown.</p>" if more > 0 else ""
    return f"<h2>Channels</h2>{states}{percentiles}{note}"


def _leaders(terms: Sequence[Term]) -> str:
    title = "<h2>Partitions and their leaders</h2>"
    if not terms:
        return f"{title}<p>The logs name no nsqd that took a message of a partition.</p>"
    moves = sum(
        before[:2] == after[:2] and before.nsqd != after.nsqd for before, after in pairwise(terms)
    )
    keys = "".join(
        f'<span class="key {colour}"></span> {escape(nsqd)} '
        for nsqd, colour in drawing.colours(terms).items()
    )
    return (
        f"{title}<p>Who took the messages of each partition; where the colour changes, its leader "
        f"moved: {plural(moves, 'time')}.</p><p>{keys}</p>"
        f"{drawing.leaders(terms)}"
    )


def _parties(figures: Figures) -> str:
    rows = (
        [
            each["kind"],
            each["name"],
            f"{each['messages']:,}",
            f"{each['again']:,}",
            f"{each['unconsumed']:,}",
            *map(duration, each["percentiles"]),
        ]
        for each in figures.parties
    )
    head = ["", "name", "messages", "redelivered", "unconsumed", "p50", "p99", "longest"]
    return f"<h2>Consumers and nsqds</h2>{table(head, rows, names=2)}"


def _slowest(lives: Sequence[Life]) -> str:
    if not lives:
        return "<h2>The slowest</h2><p>Nothing was finished.</p>"
    return (
        "<h2>The slowest</h2><p>The time line of each begins when it is published.</p>"
        + "".join(map(_life, lives))
    )


def _given_up(figures: Figures, drawn: int) -> str:
    title = "<h2>Given up</h2>"
    if not figures.given_up_count:
        return f"{title}<p>No message was given up.</p>"
    left = figures.given_up_count - drawn
    note = (
        f"<p>{plural(figures.given_up_count, 'message')} given up; {left:,} of them are not "
        "drawn: the job's --table has them all.</p>"
        if left
        else f"<p>{plural(figures.given_up_count, 'message')} given up.</p>"
    )
    return title + note + "".join(map(_life, figures.given_up[:drawn]))


def _life(life: Life) -> str:
    name = f"{life.topic}/{life.partition} {life.internal_id}"
    rest = (
        f"trace id {life.trace_id}, channel {life.channel}, {life.state}, "
        f"{plural(life.attempts or 0, 'attempt')}, {duration(life.whole)}"
    )
    return (
        f"<section><h3>{escape(name)}</h3><p>{escape(rest)}; published "
        f"{moment(life.born)} UTC</p>{waterfall(life)}</section>"
    )


def _making(figures: Figures) -> str:
    rows = [("lines read", f"{figures.lines:,}")]
    rows += [(f"event {name}", f"{count:,}") for name, count in figures.events.items()]
    rows += [(f"left out: {why}", f"{count:,}") for why, count in figures.dropped.items()]
    sources = ", ".join(map(escape, figures.sources))
    return (
        f"<h2>How this was made</h2><p>By nsqsmart {escape(figures.version)} at "
        f"{escape(figures.made_at)}, in {figures.seconds:.0f} s, from {sources}. Events are joined "
        "by topic, partition and internal id. Times are those of the machines that wrote them: "
        "where their clocks differ, so do the times. Percentiles are approximate. Did order hold? "
        f"The job order-audit --trace-log tells.</p>{table(['', 'count'], rows)}"
    )


def _stretch(width: int) -> str:
    seconds = width // 1_000_000
    return "a minute" if seconds == 60 else f"a stretch of {duration(width)}"
