"""Ids of both dialects."""

from __future__ import annotations

from nsqsmart.embedded.broker.ids import OriginalIds, RedesignedIds

NOW = 1_800_000_000_000_000_000


def test_a_lone_nsqd_counts_from_one_a_cluster_from_two_above_its_partition() -> None:
    assert [RedesignedIds(3, coordinated=False).take() for _ in range(1)] == [1]
    ids = RedesignedIds(3, coordinated=True)
    assert [ids.take(), ids.take()] == [3 << 50 | 2, 3 << 50 | 3]


def test_a_leader_switch_skips_one_and_a_restart_none() -> None:
    ids = RedesignedIds(1, coordinated=True)
    last = ids.take()
    ids.skip()
    assert ids.take() == last + 2
    again = RedesignedIds(1, coordinated=True)
    again.resume(last)
    assert again.take() == last + 1


def test_an_original_id_holds_time_node_and_sequence() -> None:
    ids = OriginalIds(5)
    number = ids.take(NOW)
    assert (number >> 22) + 1288834974288 == NOW >> 20
    assert number >> 12 & 0x3FF == 5
    assert number & 0xFFF == 0
    assert ids.take(NOW) == number + 1
    assert ids.take(NOW + (1 << 20)) & 0xFFF == 0


def test_original_ids_stay_unique_when_a_tick_is_used_up_or_the_clock_goes_back() -> None:
    ids = OriginalIds(1)
    taken = [ids.take(NOW) for _ in range(5000)] + [ids.take(NOW - 10**9) for _ in range(10)]
    assert taken == sorted(set(taken))


def test_many_ids_at_once_are_those_that_one_after_another_would_be():
    one, other = OriginalIds(5), OriginalIds(5)
    for count in (1, 100, 4000, 300, 1):
        assert list(one.take_many(NOW, count)) == [other.take(NOW) for _ in range(count)]
