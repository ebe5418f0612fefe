"""Nodes that failed are left alone for a while, then tried by one."""

from __future__ import annotations

from nsqsmart.policy.outages import Outages


def test_a_node_that_failed_is_avoided_until_its_pause_is_over() -> None:
    outages: Outages[str] = Outages()
    assert not outages.nodes
    outages.failed("a", 10.0)
    assert outages.avoided(10.9) == {"a"}
    assert outages.avoided(11.0) == frozenset()


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    outages: Outages[str] = Outages()
    pauses = []
    now = 0.0
    for _ in range(7):
        outages.probe("a", now)
        outages.failed("a", now)
        pauses.append(outages.nodes["a"].until - now)
        now = outages.nodes["a"].until
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_what_many_say_at_once_is_one_failure() -> None:
    outages: Outages[str] = Outages()
    for _ in range(40):
        outages.failed("a", 0.0)
    assert outages.avoided(1.0) == frozenset()
    outages.probe("a", 1.0)
    for _ in range(40):
        outages.failed("a", 1.5)
    assert outages.avoided(3.4) == {"a"}
    assert outages.avoided(3.5) == frozenset()


def test_while_one_probes_others_stay_away() -> None:
    outages: Outages[str] = Outages()
    outages.failed("a", 0.0)
    outages.probe("a", 0.5)
    assert outages.avoided(1.0) == frozenset()
    outages.probe("a", 2.0)
    outages.failed("a", 2.0)
    assert outages.avoided(3.9) == {"a"}
    outages.probe("a", 4.0)
    assert outages.avoided(5.9) == {"a"}
    assert outages.avoided(6.0) == frozenset()


def test_one_success_clears_it_and_one_failure_after_it_begins_anew() -> None:
    outages: Outages[str] = Outages()
    outages.failed("a", 0.0)
    outages.failed("a", 0.0)
    outages.worked("a")
    outages.worked("a")
    assert not outages.nodes
    outages.failed("a", 0.0)
    assert outages.avoided(1.0) == frozenset()


def test_nodes_are_told_apart() -> None:
    outages: Outages[str] = Outages()
    outages.failed("a", 0.0)
    outages.failed("b", 0.5)
    outages.probe("c", 0.5)
    assert outages.avoided(0.9) == {"a", "b"}
    assert outages.avoided(1.2) == {"b"}
