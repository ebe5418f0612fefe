"""Faults act on the nth command that matches, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from nsqsmart.embedded.faults import Action, Fault, FaultBook, FaultPlace, FaultUnknown, Match, on
from nsqsmart.names import Dialect

HERE = FaultPlace("a:1", "t", 0)


def acts(
    book: FaultBook, command: str = "PUB", place: FaultPlace = HERE, times: int = 5
) -> list[bool]:
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
        (FaultPlace("b:1", "t", 0), False),
        (FaultPlace("a:1", "u", 0), False),
        (FaultPlace("a:1", "t", 1), False),
        (FaultPlace("a:1"), False),
    ],
)
def test_every_condition_must_hold(place: FaultPlace, fits: bool) -> None:
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


@pytest.mark.parametrize(
    ("command", "near"),
    [
        ("PUBB", "PUB"),
        ("pub", "PUB"),
        ("MESAGE", "MESSAGE"),
        ("/lokup", "/lookup"),
        ("/PUB", "/pub"),
        ("lookup", "/lookup"),
    ],
)
def test_a_misspelt_command_is_refused_with_the_nearest(command: str, near: str) -> None:
    text = rf"know no '{command}'; did you mean '{near}'\? \(known: AUTH, .*PUB.*/lookup"
    with pytest.raises(FaultUnknown, match=text):
        on(command)
    with pytest.raises(FaultUnknown, match=text):
        FaultBook().add(Fault(Match(command=command)).reset())


@pytest.mark.parametrize("command", ["", "QQQQQQQQ", "/config/*", "/config/", "/lookup?topic=t"])
def test_no_server_has_it(command: str) -> None:
    with pytest.raises(FaultUnknown, match="servers know no"):
        on(command)


def test_an_option_has_a_path_of_its_own() -> None:
    FaultBook().add(on("/config/log_level").reply("503"))


@pytest.mark.parametrize(
    ("dialect", "its_own", "foreign"),
    [
        (Dialect.ORIGINAL, "DPUB", "PUB_EXT"),
        (Dialect.REDESIGNED, "PUB_EXT", "DPUB"),
        (Dialect.REDESIGNED, "/listlookup", "/topic/empty"),
    ],
)
def test_a_command_of_the_other_dialect(dialect: Dialect, its_own: str, foreign: str) -> None:
    book = FaultBook()
    book.dialect = dialect
    book.add(on(its_own).reset())
    with pytest.raises(FaultUnknown, match=f"{dialect} servers know no '{foreign}'"):
        book.add(on(foreign).reset())


NO_SENSE: list[tuple[str, Callable[[Fault], Fault], str]] = [
    ("MESSAGE", lambda fault: fault.reply("E_X"), r"\.reply\(\) on the frame MESSAGE"),
    ("RESPONSE", lambda fault: fault.delay(1), r"\.delay\(\) on the frame RESPONSE"),
    ("ERROR", lambda fault: fault.move_leader(), r"\.move_leader\(\) on the frame ERROR"),
    ("HEARTBEAT", lambda fault: fault.store_then_reset(), r"\.store_then_reset\(\) on the frame"),
    ("MESSAGE", lambda fault: fault.no_partitions(), "only /lookup"),
    ("PUB", lambda fault: fault.no_partitions(), "only /lookup"),
    ("/lookup", lambda fault: fault.move_leader(), r"\.move_leader\(\) on /lookup"),
    ("/pub", lambda fault: fault.move_leader(), r"\.move_leader\(\) on /pub"),
    ("IDENTIFY", lambda fault: fault.move_leader(), r"\.move_leader\(\) on IDENTIFY"),
    ("/pub", lambda fault: fault.reply("E_PUB_FAILED"), r"reply\('E_PUB_FAILED'\) on /pub"),
    ("/pub", lambda fault: fault.reply("99"), r"\.reply\('99'\) on /pub"),
]


@pytest.mark.parametrize(("command", "finish", "text"), NO_SENSE)
def test_an_action_that_makes_no_sense(
    command: str, finish: Callable[[Fault], Fault], text: str
) -> None:
    book = FaultBook()
    with pytest.raises(FaultUnknown, match=text):
        book.add(finish(on(command)))
    assert not book.armed


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (on("HEARTBEAT", topic="t").reset(), "topic='t' on HEARTBEAT"),
        (on("RESPONSE", partition=0).reset(), "partition=0 on RESPONSE"),
        (on("IDENTIFY", topic="t").reset(), "topic='t' on IDENTIFY"),
        (on("PUB").cut(after=3), "only a nsqsmart.testing.proxy"),
        (on("PUB").close(after=3), "only a nsqsmart.testing.proxy"),
        (on("PUB").drop(), "only a nsqsmart.testing.proxy"),
        (on("PUB").half_open(), "only a nsqsmart.testing.proxy"),
    ],
)
def test_what_never_holds_or_no_server_does(fault: Fault, text: str) -> None:
    with pytest.raises(FaultUnknown, match=text):
        FaultBook().add(fault)


@pytest.mark.parametrize("count", ["nth", "times"])
def test_both_counts_begin_at_one(count: str) -> None:
    with pytest.raises(FaultUnknown, match=f"{count}=0.* on PUB: both are counted from 1"):
        on("PUB", **{count: 0})


@pytest.mark.parametrize("command", ["MESSAGE", "HEARTBEAT", "RESPONSE", "ERROR"])
def test_what_makes_sense_on_frames(command: str) -> None:
    book = FaultBook()
    for fault in (
        on(command).reset(),
        on(command).close(),
        on(command).stall(),
        on(command).garbage(b"x"),
    ):
        book.add(fault)
    book.add(on("MESSAGE", topic="t", partition=0).reset())


def test_original_servers_have_no_leaders_and_no_partitions() -> None:
    book = FaultBook()
    book.add(on("PUB").move_leader())
    book.dialect = Dialect.ORIGINAL
    with pytest.raises(FaultUnknown, match="original cluster have no leader to move"):
        book.add(on("PUB").move_leader())
    with pytest.raises(FaultUnknown, match="partition=0 on PUB"):
        book.add(on("PUB", partition=0).reset())
