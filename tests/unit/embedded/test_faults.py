"""Faults act on the nth command that matches, and on nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nsqsmart.embedded.faults import Action, FaultBook, FaultUnknown, Place, on

HERE = Place("a:1", "t", 0)


def acts(book: FaultBook, command: str = "PUB", place: Place = HERE, times: int = 5) -> list[bool]:
    return [book.take(command, place) is not None for _ in range(times)]


def test_the_nth_and_the_ones_behind_it() -> None:
    book = FaultBook()
    book.add(on("PUB", nth=2, times=2).reset())
    assert acts(book) == [False, True, True, False, False]
    assert not book.armed


def test_a_fault_counts_from_when_it_was_added() -> None:
    book = FaultBook()
    acts(book)
    book.add(on("PUB", nth=2).reset())
    assert acts(book, times=2) == [False, True]


@pytest.mark.parametrize(
    ("place", "fits"),
    [
        (HERE, True),
        (Place("b:1", "t", 0), False),
        (Place("a:1", "u", 0), False),
        (Place("a:1", "t", 1), False),
        (Place("a:1"), False),
    ],
)
def test_every_condition_must_hold(place: Place, fits: bool) -> None:
    book = FaultBook()
    nsqd = SimpleNamespace(name="a:1")
    book.add(on("PUB", nsqd=nsqd, topic="t", partition=0).close())
    assert book.take("MPUB", place) is None
    assert (book.take("PUB", place) is not None) is fits


def test_of_two_the_first_acts_and_both_count() -> None:
    book = FaultBook()
    first = book.add(on("PUB").reset())
    second = book.add(on("PUB", nth=2).close())
    assert book.take("PUB", HERE) is first
    assert book.take("PUB", HERE) is second


def test_what_they_do() -> None:
    refused = on("PUB").store_then_reply("E_PUB_FAILED", "why", fatal=True)
    assert (refused.action, refused.execute) == (Action.REPLY, True)
    assert (refused.code, refused.text, refused.fatal) == ("E_PUB_FAILED", "why", True)
    assert not on("PUB").reply("E_PUB_FAILED").execute
    for fault, action in (
        (on("PUB").store_then_reset(), Action.RESET),
        (on("PUB").store_then_close(), Action.CLOSE),
        (on("PUB").store_then_stall(), Action.STALL),
        (on("PUB").delay(1), Action.DELAY),
        (on("PUB").move_leader(), Action.MOVE_LEADER),
    ):
        assert (fault.action, fault.execute) == (action, True)
    garbage = on("PUB").garbage(b"x")
    assert (garbage.action, garbage.data, garbage.execute) == (Action.GARBAGE, b"x", False)


def test_a_fault_that_does_nothing_is_a_mistake() -> None:
    with pytest.raises(FaultUnknown, match="say what happens on PUB"):
        FaultBook().add(on("PUB"))


def test_cleared_faults_do_not_act() -> None:
    book = FaultBook()
    book.add(on("PUB").reset())
    book.clear()
    assert (book.armed, acts(book, times=1)) == (False, [False])
