"""How an epoch is shared among tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.spark.spool.plan import Backlog, Plan, Task, share


def originals(*depths: int) -> list[Backlog]:
    return [Backlog("t", None, f"h:{number}", depth) for number, depth in enumerate(depths)]


@given(
    depths=st.lists(st.integers(0, 10_000), max_size=8),
    most=st.none() | st.integers(1, 20_000),
    tasks=st.integers(1, 10),
)
def test_budgets_add_up(depths: list[int], most: int | None, tasks: int) -> None:
    made = share(originals(*depths), most, tasks)
    total = sum(depths)
    assert sum(each.budget for each in made) == (total if most is None else min(most, total))
    assert all(each.budget > 0 for each in made)
    assert len({each.name for each in made}) == len(made)
    for number, depth in enumerate(depths):
        assert sum(each.budget for each in made if each.nsqd == f"h:{number}") <= depth


def test_an_original_nsqd_may_serve_several_tasks() -> None:
    assert [each.budget for each in share(originals(10), None, 3)] == [4, 3, 3]


def test_a_partition_is_read_by_one_task() -> None:
    backlogs = [Backlog("t", partition, "h:1", 10) for partition in range(2)]
    assert [each.partition for each in share(backlogs, None, 5)] == [0, 1]


def test_a_plan_is_what_it_was() -> None:
    plan = Plan(3, 17, (Task("t", 0, "h:1", 0, 5), Task("t", None, "h:2", 1, 6, size=9)))
    assert Plan.from_json(plan.to_json()) == plan


def test_a_newer_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="newer"):
        Plan.from_json(b'{"v": 2}')


def test_names_are_safe_for_files() -> None:
    assert Task("t", None, "[::1]:4150").name == "t@[__1]_4150-000"
    assert Task("t", 3, "h:1").place == "t@p3"
