"""The page: what it says, that nothing of a log gets out of its place, and how large it may be."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from nsqsmart.spark.report.drawing import segments_of
from nsqsmart.spark.report.figures import Bar, ChannelFigures, Event, Figures, Life, Minute, Term
from nsqsmart.spark.report.page import MOST, render
from nsqsmart.spark.report.text import duration, escape, share

EVIL = "<script>alert(1)</script>\"'&\x00\u202e" + "x" * 5000
PERCENTILES: list[float | None] = [1000.0, 2000.0, 3000.0, 4000.0, 5_000_000.0]


def event(at: int, kind: str, **more: Any) -> Event:
    base: dict[str, Any] = dict.fromkeys(
        ("attempts", "duration_us", "delay_ms", "client_id", "nsqd", "error")
    )
    return Event(at=at, event=kind, **{"source": "client", "channel": "c", **base, **more})


def life(events: list[Event], **more: Any) -> Life:
    return Life(
        **{
            "topic": "orders",
            "partition": 0,
            "internal_id": "18446744073709551615",
            "trace_id": "9",
            "channel": "c",
            "state": "ok",
            "attempts": 2,
            "born": 1000,
            "whole": 500,
            "events": events,
            **more,
        }
    )


def figures(**more: Any) -> Figures:
    channel = ChannelFigures(
        "orders",
        "c",
        10,
        {"ok": 7, "redelivered": 2, "unconsumed": 1, "late": 0},
        2,
        1,
        dict.fromkeys(("to_receive", "to_finish", "whole"), PERCENTILES),
    )
    base: dict[str, Any] = {
        "made_at": "now",
        "version": "1",
        "sources": ["trace.jsonl"],
        "late": None,
        "lines": 30,
        "events": {"published (client)": 10},
        "dropped": {},
        "published": 10,
        "failed": 0,
        "begins": 0,
        "ends": 60_000_000,
        "channels": [channel],
        "histogram": [Bar(100.0, 158.0, 7, 2)],
        "width": 60_000_000,
        "minutes": [Minute(0, 10, 9, [1000.0, 2000.0, 3000.0])],
        "attempts": [(1, 7), (2, 2)],
        "terms": [],
        "parties": [],
        "slowest": [],
        "given_up": [],
        "given_up_count": 0,
    }
    return Figures(**(base | more))


class Tags(HTMLParser):
    """What a browser would see: tags, and whether they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on") or name == "href"]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def tags(page: bytes) -> list[str]:
    parser = Tags()
    parser.feed(page.decode())
    assert parser.open == []
    return parser.seen


def test_the_numbers_are_said_in_words() -> None:
    page = render(figures()).decode()
    assert "9 of 10 finished (90.0 %); half of them within 1.00 ms" in page
    assert "2 were delivered more than once, 1 were never finished, 1 given up." in page
    assert "100 µs to 158 µs: 9 messages, 2 of them delivered again" in page


def test_nothing_of_a_log_gets_out_of_its_place() -> None:
    evil = life(
        [event(1000, "published", nsqd=EVIL), event(1200, "received", client_id=EVIL, error=EVIL)],
        topic=EVIL,
        internal_id=EVIL,
        trace_id=EVIL,
        state=EVIL,
        channel=EVIL,
    )
    party = {"messages": 1, "again": 0, "unconsumed": 0, "percentiles": [None] * 3}
    channel = ChannelFigures(EVIL, EVIL, 1, {}, 0, 0, dict.fromkeys(("to_receive", "to_finish", "whole"), PERCENTILES))  # fmt: skip  # noqa: E501
    page = render(
        figures(
            sources=[EVIL],
            channels=[channel],
            events={EVIL: 1},
            dropped={EVIL: 1},
            parties=[{**party, "kind": "consumer", "name": EVIL}],
            slowest=[evil],
            given_up=[evil],
            given_up_count=1,
            made_at=EVIL,
        )
    )
    assert "script" not in tags(page)
    assert b"\x00" not in page
    assert "\u202e" not in page.decode()
    assert len(page) < 100_000


def test_the_page_is_small_whatever_is_in_it() -> None:
    events = [event(1000, "published")]
    for number in range(40):
        events.append(event(2000 + 10 * number, "received", attempts=number + 1, client_id=EVIL))
        events.append(event(2005 + 10 * number, "requeued", error=EVIL, delay_ms=5))
    many = [life(events, internal_id=f"{number}") for number in range(100)]
    page = render(figures(slowest=many[:20], given_up=many, given_up_count=12345))
    assert len(page) < MOST
    tags(page)
    assert "12,345 messages given up; " in page.decode()
    assert "are not drawn" in page.decode()


def test_an_empty_log_has_a_page_too() -> None:
    empty = figures(channels=[], histogram=[], minutes=[], attempts=[], begins=None, ends=None)
    assert "Nothing was finished" in render(empty).decode()
    tags(render(empty))


def test_a_life_is_drawn_as_what_happened() -> None:
    events = [
        event(1000, "published", duration_us=200, nsqd="n:1", channel=None),
        event(1500, "received", attempts=1),
        event(1600, "requeued", delay_ms=1, error="ValueError"),
        event(2600, "received", attempts=2, client_id="w1"),
        event(2700, "finished", client_id="w1"),
        event(9000, "received", attempts=1, channel="another"),
    ]
    found = [(each.label, each.kind, each.begin, each.end) for each in segments_of(life(events))]
    assert found == [
        ("publish", "publish", 800, 1000),
        ("waits", "waits", 1000, 1500),
        ("attempt 1", "again", 1500, 1600),
        ("waits", "waits", 1600, 2600),
        ("attempt 2", "ok", 2600, 2700),
    ]
    last = list(segments_of(life(events[:4])))[-1]
    assert (last.kind, last.end) == ("bad", None)
    requeued = list(segments_of(life(events)))[2]
    assert "requeued after ValueError, again in 1 ms" in requeued.told


def test_the_server_tells_where_consumers_keep_no_log() -> None:
    events = [
        event(1000, "put", source="server", channel=None),
        event(1100, "start", source="server"),
        event(1200, "timeout", source="server"),
        event(1300, "start", source="server"),
        event(1400, "fin", source="server"),
    ]
    kinds = [each.kind for each in segments_of(life(events))]
    assert kinds == ["publish", "waits", "bad", "waits", "ok"]


@pytest.mark.parametrize(
    ("micros", "shown"),
    [
        (None, "-"),
        (0, "0 µs"),
        (999, "999 µs"),
        (1500, "1.50 ms"),
        (15_000, "15.0 ms"),
        (2_000_000, "2.00 s"),
        (61_000_000, "1 min 1 s"),
        (7_260_000_000, "2 h 1 min"),
    ],
)
def test_times_have_the_unit_that_suits_them(micros: float | None, shown: str) -> None:
    assert duration(micros) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, "-"),
        (0, 5, "0.0 %"),
        (5, 5, "100.0 %"),
        (199_999, 200_000, "99.999 %"),
        (1, 10**9, "< 0.0001 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part: int, whole: int, shown: str) -> None:
    assert share(part, whole) == shown


def test_long_and_strange_text_is_cut_and_marked() -> None:
    assert len(escape("x" * 1000)) == 100
    assert escape("a\x00b<") == "a\ufffdb&lt;"


def test_a_leader_that_moved_is_a_change_of_colour() -> None:
    terms = [
        Term("orders", 0, "one:4150", 0, 20, 5),
        Term("orders", 0, EVIL, 20, 30, 3),
        Term("orders", 1, "one:4150", 0, 30, 1),
    ]
    page = render(figures(terms=terms)).decode()
    assert "moved: 1 time." in page
    assert "orders 1 at one:4150: 1 message," in page
    assert "<script>" not in page
    rows = re.findall(r'<rect class="(\w+)"[^>]*><title>orders (\d) at', page)
    assert [number for _, number in rows] == ["0", "0", "1"]
    assert rows[0][0] == rows[2][0] != rows[1][0]
    assert "name no nsqd" in render(figures()).decode()
