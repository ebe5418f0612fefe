"""Which servers there are, and what of a project's declared use they cannot do."""

from __future__ import annotations

import pytest

from nsqsmart.contrib.shared.declaring import declare
from nsqsmart.contrib.shared.fitting import describe_dialects, find_misfits
from nsqsmart.contrib.shared.settings import Settings
from nsqsmart.names import Dialect

ORIGINAL = {"h:4150": Dialect.ORIGINAL}
REDESIGNED = {"h:4150": Dialect.REDESIGNED}


def use(dialect=None, handlers=(), **options):
    told = {"where": "", "url": None, "source": "OPTIONS"}
    return Settings(dialect=dialect, options=options, **told), handlers


def handler(**options):
    return declare(print, "orders", "billing", options)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (use("redesigned"), "the settings say redesigned, and h:4150 is original"),
        (use(sharding="crc32", serialize=True), "OPTIONS has sharding and serialize"),
        (use(trace=True), "original NSQ traces nothing"),
        (use(handlers=[handler(ordered=True)]), "ordered=True: original NSQ has no ordered topics"),
        (use(handlers=[handler(start_at="head")]), "start_at='head'"),
        (use(handlers=[handler(desired_tag="x")]), "every message comes"),
        (use(handlers=[handler(positions=True)]), "no offsets to tell"),
    ],
)
def test_what_original_servers_cannot_do(declared, words):
    (wrong,) = find_misfits(ORIGINAL, *declared)
    assert words in wrong
    if declared[0].dialect is None:
        assert find_misfits(REDESIGNED, *declared) == []


@pytest.mark.parametrize(
    "declared",
    [
        use(),
        use("original"),
        use(handlers=[handler(ordered="auto"), handler(workers=2)]),
        use(sharding="crc32", ordering="best-effort"),
    ],
)
def test_what_they_can_do(declared):
    assert find_misfits(ORIGINAL, *declared) == []


def test_servers_are_described_by_what_they_refuse():
    (line,) = describe_dialects(ORIGINAL, use()[0])
    assert line.startswith("original NSQ: key=, partition=, headers=, tag= and trace= are refused")
    (line,) = describe_dialects(ORIGINAL, use(ordering="best-effort")[0])
    assert "key= is sent without order" in line
    (line,) = describe_dialects(REDESIGNED, use()[0])
    assert line.startswith("redesigned NSQ: delay= is refused")
    assert len(describe_dialects({**ORIGINAL, "i:1": Dialect.REDESIGNED}, use()[0])) == 2
