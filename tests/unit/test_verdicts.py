"""The judge of the runs under load sees what it is there to see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsqsmart.errors import Outcome, PublishFailed
from tests.integration.load import ASYNC_KEYED, KEYED, RETRY, UNKEYED, Failure, keys_of
from tests.integration.verdicts import Collector, Copy, Gaps, Verdict, disorder, gap, in_log_order

GOOD = Verdict("row", 9, [], (0.1, KEYED), 1, {("loss", 0): Gaps(3.0, 3.5, 3.0)}, 0, [], set())


def lost_answer() -> PublishFailed:
    return PublishFailed("x", outcome=Outcome.UNCERTAIN, answered=False, code="ConnectionLost")


def failures(*places: tuple[str, int | None]) -> list[Failure]:
    return [Failure(stream, place, lost_answer(), 1.0) for stream, place in places]


def record(number: int, offset: int, *, internal_id: int = 0, stream: str = KEYED) -> Copy:
    return Copy(0, internal_id or offset, offset, f"m {stream} k {number}".encode())


@pytest.mark.parametrize(
    "bad",
    [
        {"lost": {b"x"}},
        {"disorder": ["x"]},
        {"failures": failures((UNKEYED, None))},
        {"failures": failures((RETRY, 0))},
        {"failures": failures((KEYED, 0), (ASYNC_KEYED, 0))},
        {"failures": [Failure(KEYED, 0, PublishFailed("x", outcome=Outcome.UNCERTAIN), 1.0)]},
        {"failures": [Failure(KEYED, 0, PublishFailed("x", answered=False), 1.0)]},
        {"gaps": {("loss", 0): Gaps(3.0, 3.0, 3.0), ("loss", 1): Gaps(4.1, 1.0, 3.0)}},
        {"gaps": {("loss", 0): Gaps(3.0, 4.1, 3.0)}},
        {"gaps": {("return", 0): Gaps(4.1, 3.0, 3.0)}},
    ],
)
def test_what_was_not_promised_is_found(bad):
    with pytest.raises(AssertionError):
        replace(GOOD, **bad).check(patience=1.0)


def test_what_was_promised_is_passed():
    GOOD.check(patience=1.0)
    replace(GOOD, failures=failures((KEYED, 0), (ASYNC_KEYED, 1))).check(patience=1.0)
    replace(GOOD, gaps={("loss", 0): Gaps(9.0, 9.0, 3.0)}).check(patience=None)
    replace(GOOD, gaps={("loss", 0): Gaps(9.0, 9.0, 3.0)}).check(patience=1.0, hung=5.0)
    with pytest.raises(AssertionError):
        replace(GOOD, gaps={("return", 0): Gaps(9.0, 9.0, 3.0)}).check(patience=1.0, hung=5.0)


def test_a_batch_has_one_error():
    error = lost_answer()
    batch = [Failure(ASYNC_KEYED, 0, error, 1.0), Failure(ASYNC_KEYED, 0, error, 1.1)]
    verdict = replace(GOOD, failures=batch)
    verdict.check(patience=1.0)
    assert verdict.errors() == "1 PublishFailed ConnectionLost uncertain, async-keyed 0"
    assert "lost 0" in str(verdict)


def test_the_longest_gap_is_found_in_any_order():
    assert gap([5.0, 1.0, 2.0]) == 3.0
    assert gap([]) == gap([1.0]) == 0.0
    assert gap([1.0, 2.0, 4.0, 7.0], since=1.5, until=6.0) == 2.0


def test_a_first_copy_behind_a_later_one_is_disorder():
    assert disorder([record(1, 0), record(2, 9), record(1, 18), record(3, 27)]) == []
    assert disorder([record(2, 0), record(1, 9)]) == ["b'k': 1 after 2"]
    assert disorder([record(2, 0, stream=UNKEYED), record(1, 9, stream=UNKEYED)]) == []


def test_what_is_delivered_again_is_one_record():
    first, second = record(1, 0, internal_id=7), record(2, 9, internal_id=8)
    assert in_log_order([second, first, second]) == [first, second]


def test_only_what_bears_the_mark_is_collected():
    class Message:
        partition, internal_id, offset, body = 0, 1, 2, b"row1 keyed k 1"

    collector = Collector("row1")
    collector(Message())
    Message.body = b"row10 keyed k 1"
    collector(Message())
    assert collector.bodies == {b"row1 keyed k 1"}
    assert len(collector.copies) == 1


def test_keys_belong_to_their_partitions():
    assert set(keys_of(0, 2, "k")).isdisjoint(keys_of(1, 2, "k"))
