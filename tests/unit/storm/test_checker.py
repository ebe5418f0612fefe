"""The checker of storms finds what it is there to find, and nothing else."""

from __future__ import annotations

import pytest

from tests.storm.checker import Margins, Verdict, judge, missing
from tests.storm.notes import Event

MARGINS = Margins(deadline=2, handover=0.5, left_behind=30, sight=5)


def sent(at: float, name: str, key: str | None = None, limit: float = 10) -> Event:
    return {"kind": "sent", "at": at, "id": name, "topic": "t", "key": key, "limit": limit}


def done(at: float, name: str, outcome: str = "stored", began: float = 0, nsqd: str = "a") -> Event:
    facts = {"id": name, "outcome": outcome, "began": began or at, "nsqd": nsqd}
    return {"kind": "done", "at": at, **facts}


def got(at: float, name: str, who: str = "one", nsqd: str = "a", message: str = "") -> Event:
    facts = {"id": name, "who": who, "nsqd": nsqd, "message": message or name}
    return {"kind": "got", "at": at, "topic": "t", "place": "0", **facts}


def finished(at: float, name: str, who: str = "one", nsqd: str = "a", ok: bool = True) -> Event:
    facts = {"message": name, "who": who, "nsqd": nsqd, "ok": ok}
    return {"kind": "finished", "at": at, "place": "0", **facts}


def leaders(at: float, **places: str) -> Event:
    return {"kind": "leaders", "at": at, "topic": "t", "places": places}


def state(at: float, *places: str, who: str = "one") -> Event:
    return {"kind": "state", "at": at, "who": who, "topic": "t", "places": list(places)}


def fault(at: float, what: str, server: str) -> Event:
    return {"kind": "fault", "at": at, "what": what, "server": server}


def kill(at: float, kind: str, server: str) -> list[Event]:
    mended = {"kind": "mended", "at": at + 1, "what": f"kill {kind}", "server": server}
    return [fault(at, f"kill {kind}", server), mended]


def publish(at: float, name: str, key: str | None = None) -> list[Event]:
    return [sent(at, name, key), done(at + 0.1, name)]


def found(events: list[Event], held: set[str] | None = frozenset()) -> Verdict:
    return judge(events, held, MARGINS)


def failing(events: list[Event], held: set[str] | None = frozenset()) -> list[str]:
    """What is not 0."""
    return [name for name, each in found(events, held).failures.items() if each]


def test_what_went_well_is_good():
    events = [*publish(1, "m1", "k"), *publish(2, "m2", "k"), got(3, "m1"), got(4, "m2")]
    verdict = found([*events, finished(3.5, "m1"), fault(1.5, "kill nsqd", "b")])
    assert verdict.good
    assert (verdict.acknowledged, verdict.deliveries, verdict.copies) == (2, 2, 0)
    assert verdict.faults == {"kill nsqd": 1}


def test_what_was_acknowledged_and_a_server_still_has_is_lost():
    events = [*publish(1, "m1"), *publish(2, "m2"), got(3, "m2")]
    assert missing(events) == {"m1"}
    verdict = found(events, {"m1"})
    assert (verdict.lost, verdict.lost_by_servers, verdict.good) == (["m1"], [], False)


def test_what_is_in_no_log_is_the_servers_loss_and_counted_apart():
    verdict = found(publish(1, "m1"), set())
    assert (verdict.lost, verdict.lost_by_servers, verdict.good) == ([], ["m1"], True)


def test_without_logs_only_a_kill_behind_it_excuses():
    events = [*publish(1, "m1"), *publish(5, "m2"), *kill(3, "nsqd", "a")]
    verdict = found(events, None)
    assert (verdict.lost, verdict.lost_by_servers) == (["m2"], ["m1"])
    assert found([*publish(1, "m1"), *kill(3, "nsqd", "b")], None).lost == ["m1"]
    assert found([*publish(1, "m1"), *kill(3, "nsqlookupd", "a")], None).lost == ["m1"]


def test_an_nsqd_is_known_by_its_address_and_its_name():
    events = [leaders(0.5, a="nsqd0"), *publish(1, "m1"), *kill(3, "nsqd", "nsqd0")]
    assert found(events, None).lost_by_servers == ["m1"]
    just_then = [leaders(0.5, a="nsqd0"), *kill(0.9, "nsqd", "nsqd0"), *publish(1, "m1")]
    assert found(just_then, None).lost_by_servers == ["m1"]


def test_what_was_not_acknowledged_may_be_lost():
    events = [sent(1, "m1"), done(2, "m1", "uncertain"), sent(3, "killed meanwhile")]
    assert failing(events, {"m1"}) == []


def test_a_key_out_of_order_is_found():
    events = [*publish(1, "m1", "k"), *publish(2, "m2", "k"), got(3, "m2"), got(4, "m1")]
    assert found(events).disorder == ["m1 behind m2"]
    assert failing(events) == ["out of order"]


def test_other_keys_copies_and_what_was_not_acknowledged_have_no_order():
    two = [*publish(1, "m1", "k"), *publish(2, "m2", "other")]
    assert failing([*two, got(3, "m2"), got(4, "m1")]) == []
    copies = [*publish(1, "m1", "k"), *publish(2, "m2", "k")]
    assert failing([*copies, got(3, "m1"), got(4, "m2"), got(5, "m1")]) == []
    doubt = [sent(1, "m1", "k"), done(1.5, "m1", "uncertain"), *publish(2, "m2", "k")]
    assert failing([*doubt, got(3, "m2"), got(4, "m1")]) == []
    unkeyed = [*publish(1, "m1"), *publish(2, "m2")]
    assert failing([*unkeyed, got(3, "m2"), got(4, "m1")]) == []


def test_not_sent_of_what_was_delivered_is_a_lie():
    events = [sent(1, "m1"), done(2, "m1", "not_sent"), got(3, "m1")]
    assert found(events).false_not_sent == ["m1"]
    assert failing(events) == ["not_sent, and delivered"]
    assert failing(events[:2]) == []
    assert failing([sent(1, "m1"), done(2, "m1", "uncertain"), got(3, "m1")]) == []


def test_finish_true_of_what_the_nsqd_gave_to_another_is_a_lie():
    events = [got(1, "m"), got(60, "m", "two"), finished(61, "m", ok=True)]
    assert failing(events) == ["finish() True for another's"]
    assert failing([*events[:2], finished(61, "m", ok=False)]) == []


@pytest.mark.parametrize(
    "events",
    [
        [got(1, "m"), got(60, "m", "two"), finished(60.4, "m")],
        [got(1, "m"), got(60, "m", "two", nsqd="b"), finished(61, "m")],
        [got(1, "m", "two"), got(60, "m"), finished(61, "m")],
        [got(1, "m"), finished(2, "m"), got(60, "m", "two"), finished(61, "m", "two")],
    ],
    ids=["just then", "from another leader", "given back before", "later"],
)
def test_what_nobody_could_know_is_none(events):
    assert failing(events) == []


def test_a_call_beyond_its_deadline_is_found():
    late = [sent(1, "m1", limit=10), done(13.1, "m1", "uncertain", began=1)]
    assert found(late).late == ["m1: 12.1 s of 10"]
    assert failing([sent(1, "m1", limit=10), done(12.9, "m1", "uncertain", began=1)]) == []


def test_a_client_that_died_is_told():
    died = {"kind": "error", "at": 1.0, "who": "one", "error": "exit code 1"}
    assert failing([died]) == ["clients that died, or raised what they may not"]


def every_second(until: int, **places: str) -> list[Event]:
    return [leaders(float(at), **places) for at in range(1, until)]


def states(until: int, *places: str, since: int = 1) -> list[Event]:
    return [state(at + 0.5, *places) for at in range(since, until)]


def test_a_consumer_that_is_not_where_a_leader_is_was_left_behind():
    led = every_second(40, p0="a", p1="b")
    assert failing([*led, *states(40, "p0", "p1")]) == []
    assert found([*led, *states(40, "p0")]).left_behind == ["one: t p1 for 38 s"]
    assert failing([*led, *states(25, "p0")]) == []


def test_a_leader_that_has_just_come_gives_time():
    moves = [leaders(float(at), p0="a" if at // 20 % 2 else "b") for at in range(1, 200)]
    assert failing([*moves, *states(200)]) == []
    absent = [each for each in every_second(60, p0="a") if each["at"] % 20 > 3]
    gaps = [leaders(float(at)) for at in range(1, 60) if at % 20 <= 3]
    assert failing([*absent, *gaps, *states(60)]) == []


def test_leaders_that_nobody_has_seen_for_a_while_prove_nothing():
    assert failing([*every_second(10, p0="a"), *states(100)]) == []


def test_a_consumer_that_was_there_between_or_has_ended_was_not_left_behind():
    led = every_second(60, p0="a")
    between = [*states(20), state(20.6, "p0"), *states(45, since=21)]
    assert failing([*led, *between]) == []
    ended = [*states(20), {"kind": "gone", "at": 20.6, "who": "one"}, *states(45, since=21)]
    assert failing([*led, *ended]) == []
