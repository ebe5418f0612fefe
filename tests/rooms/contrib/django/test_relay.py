"""A relay under way: one topic that fails costs the others little, and a signal ends it."""

from __future__ import annotations

import signal
from contextlib import suppress
from itertools import count

from django.core.management import call_command

from nsqsmart.contrib.shared.sending import Failure
from nsqsmart.errors import PublishTimeout
from tests.interrupts import calling_at
from tests.rooms.contrib.django.writing import write


def lose(monkeypatch, models, is_lost):
    """Publishing fails for lanes and topics that *is_lost* names; what was tried, in order."""
    from nsqsmart.contrib.django import relaying

    tried = []

    def dispatch(alias, letters):
        found = [(models.lane_of(each), each.topic) for each in letters]
        tried.extend(dict.fromkeys(found))
        return [
            Failure(each, PublishTimeout("no nsqd"))
            for each, place in zip(letters, found, strict=True)
            if is_lost(*place)
        ]

    monkeypatch.setattr(relaying, "_dispatch", dispatch)
    return tried


def test_a_topic_that_fails_rests_and_the_others_do_not_wait_for_it(
    database, recorded, models, make_relay, rows, monkeypatch
):
    from nsqsmart.contrib.django import relaying

    tried = lose(monkeypatch, models, lambda lane, topic: topic == "dead")
    now = 0.0
    relay = make_relay(clock=lambda: now)
    write(database, 1, topic="dead")
    pauses = []
    for number in range(10):
        write(database, number)
        passage = relay.run_once(brief=True)
        assert passage.sent == 1
        tried.clear()
        # It was looked at just now.
        assert relay.run_once(brief=True) == relaying.Passage()
        assert tried == []
        began = now
        while not relay.run_once(brief=True).kept:
            now += 0.5
        pauses.append(now - began)
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30, 30, 30]
    assert [row.topic for row in rows()] == ["dead"]
    # Once it goes it is as any other.
    lose(monkeypatch, models, lambda lane, topic: False)
    now += 30
    assert relay.run_once(brief=True).sent == 1


def test_a_topic_that_fails_in_every_lane_costs_one_timeout_a_look(
    database, recorded, models, make_relay, monkeypatch
):
    tried = lose(monkeypatch, models, lambda lane, topic: topic == "dead")
    for number in range(200):
        write(database, number, key=f"{number}", topic="dead")
        write(database, number, key=f"{number}")
    relay = make_relay()
    lanes = set()
    for _ in range(models.LANES):
        tried.clear()
        relay.run_once(brief=True)
        (lane,) = (lane for lane, topic in tried if topic == "dead")
        lanes.add(lane)
    # None is tried again before each has been.
    assert len(lanes) == models.LANES
    tried.clear()
    assert make_relay().run_once().kept == 200  # as --once does
    assert len(tried) == models.LANES


def test_lanes_that_go_do_not_wait_for_one_that_does_not(
    database, recorded, models, make_relay, monkeypatch, rows
):
    lose(monkeypatch, models, lambda lane, topic: lane == 3)
    for number in range(200):
        write(database, number, key=f"{number}")
    relay = make_relay()
    relay.run_once(brief=True)
    relay.run_once(brief=True)
    assert {row.lane for row in rows()} == {3}


def test_a_signal_ends_the_relay_wherever_it_comes(database, recorded, monkeypatch):
    from nsqsmart.contrib.django.relaying import Relay

    passes = 0
    run_once = Relay.run_once

    def count_pass(relay, *, brief):
        nonlocal passes
        passes += 1
        return run_once(relay, brief=brief)

    monkeypatch.setattr(Relay, "run_once", count_pass)
    # As long as the relay has not installed its own.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for position in count(1):
            passes = 0
            with (
                suppress(KeyboardInterrupt),
                calling_at(position, lambda: signal.raise_signal(signal.SIGTERM)),
            ):
                call_command("nsq_relay", interval=0.001, database=database)
            if passes == 3:
                break
    finally:
        signal.signal(signal.SIGTERM, before)
