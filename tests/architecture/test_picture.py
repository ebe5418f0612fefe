"""The picture of floors and rooms is drawn from the imports there are."""

from __future__ import annotations

from tests.picture import FRONT, PICTURE, draw, imported, needed, rows, untangled


def test_the_picture_is_that_of_the_code() -> None:
    assert PICTURE.read_text() == draw(), "run: python -m tests.picture"


def test_rows_import_only_from_below() -> None:
    assert rows({"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": set()}) == [["a"], ["b"], ["c", "d"]]


def test_what_another_one_leads_to_is_left_out() -> None:
    assert needed({"a": {"b", "c"}, "b": {"c"}, "c": set()}, "a") == {"b"}


def test_imports_are_found() -> None:
    source = "import nsqsmart.wire.frames\nfrom nsqsmart.net.pool import Pool\nimport os"
    assert imported(source, "nsqsmart", {"wire", "net"}) == {"wire", "net"}
    source = "from nsqsmart import Producer, net"
    assert imported(source, "nsqsmart", {"wire", "net"}) == {FRONT, "net"}


def test_lines_cross_less() -> None:
    graph = {"a": {"d"}, "b": {"c"}, "c": {"e"}, "d": {"e"}, "e": set()}
    assert untangled(graph) == [["b", "a"], ["c", "d"], ["e"]]
