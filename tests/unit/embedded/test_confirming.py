"""What is finished, in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.embedded.broker.confirming import Confirmed


@given(st.permutations(range(12)), st.integers(0, 12))
def test_the_position_is_the_first_that_is_missing(order: list[int], count: int) -> None:
    confirmed = Confirmed(0)
    done = set(order[:count])
    for index in order[:count]:
        confirmed.add(index)
    position = next(index for index in range(13) if index not in done)
    above = {index for index in done if index > position}
    runs = sum(1 for index in above if index - 1 not in above)
    assert (confirmed.position, confirmed.above, confirmed.intervals) == (position, above, runs)


def test_twice_and_too_early_change_nothing() -> None:
    confirmed = Confirmed(5)
    for index in (3, 7, 7, 5, 5):
        confirmed.add(index)
    assert (confirmed.position, confirmed.above, confirmed.intervals) == (6, {7}, 1)
