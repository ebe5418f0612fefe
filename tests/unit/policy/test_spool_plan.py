"""What of a spool goes next, and how far it has been sent."""

from __future__ import annotations

import pytest

from nsqsmart.policy import spool_plan
from nsqsmart.policy.spool_plan import Progress, batches, read_progress, window
from nsqsmart.wire.spool_records import Placed, SpoolRecord


def placed(*records: SpoolRecord) -> list[Placed]:
    return [Placed(record, 16 + 10 * n, 26 + 10 * n) for n, record in enumerate(records)]


def bodies(found: list[list[Placed]]) -> list[str]:
    return ["".join(each.record.body.decode() for each in batch) for batch in found]


def plain(text: str, **more) -> list[SpoolRecord]:
    return [SpoolRecord(letter.encode(), 1, **more) for letter in text]


def by_key(record: SpoolRecord) -> object:
    return record.key


def test_what_was_encoded_is_read():
    progress = Progress(3, 170, frozenset({190, 210}))
    assert read_progress(progress.encode()) == progress


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"segment":1,"offset":2}',
        b'{"segment":1,"offset":-2,"done":[]}',
        b'{"segment":1.5,"offset":2,"done":[]}',
        b'{"segment":1,"offset":2,"done":["x"]}',
        b'{"segment":1,"offset":2,"done":[[]]}',
    ],
)
def test_garbage_is_no_progress(data: bytes):
    assert read_progress(data) is None


def test_what_is_sent_in_order_moves_the_offset():
    records = placed(*plain("abc"))
    assert Progress(1, 16).settle(records, records[:2]) == Progress(1, 36)
    assert Progress(1, 16).settle(records, records) == Progress(1, 46)


def test_what_is_sent_in_several_commands():
    records = placed(*plain("abc"))
    progress = Progress(1, 16)
    for each in records:
        progress = progress.settle(records, [each])
    assert progress == Progress(1, 46)


def test_what_is_sent_out_of_turn_is_remembered():
    records = placed(*plain("abc"))
    progress = Progress(1, 16).settle(records, records[1:2])
    assert progress == Progress(1, 16, frozenset({26}))
    assert progress.settle(records, records[:1]) == Progress(1, 36)


def test_what_goes_to_one_place_goes_in_one_command_and_in_order():
    records = placed(*(SpoolRecord(b"%d" % n, 1, key="ab"[n % 2]) for n in range(6)), *plain("xy"))
    assert bodies(batches(records, by_key)) == ["024", "135", "xy"]


def test_another_manner_ends_a_command_and_keeps_the_order():
    records = placed(
        *plain("a"), *plain("b", trace_id=1), *plain("c"), *plain("de", headers={"x": 1})
    )
    assert bodies(batches(records, by_key)) == ["a", "b", "c", "de"]


def test_a_delayed_one_goes_alone():
    records = placed(*plain("ab", delay=5), *plain("cd"))
    assert bodies(batches(records, by_key)) == ["a", "b", "cd"]


def test_a_window_is_bounded_in_number_and_size(monkeypatch):
    monkeypatch.setattr(spool_plan, "WINDOW_MESSAGES", 3)
    monkeypatch.setattr(spool_plan, "WINDOW_BYTES", 10)
    assert len(window(placed(*plain("abcde")))) == 3
    large = [SpoolRecord(b"x" * size, 1) for size in (50, 1, 1)]
    assert len(window(placed(*large))) == 1
    assert len(window(placed(*large[1:], large[0]))) == 2
    assert len(window(placed(*plain("ab")))) == 2


@pytest.mark.parametrize("records", [1, 13, 14, 300, 1000, 5000])
def test_room_for_any_progress_is_known_beforehand(records: int):
    size = spool_plan.slot_size(records)
    inside = min(records, spool_plan.WINDOW_MESSAGES)
    starts = frozenset(range(9_000_000_000, 9_000_000_000 + inside))
    worst = Progress(999_999_999_999, 9_000_000_000, starts)
    written = spool_plan.encode_slot(worst, 4_000_000_000, size)
    assert len(written) == size
    assert spool_plan.read_slot(written) == (4_000_000_000, worst)


def test_a_progress_of_which_a_part_was_written_is_none():
    old = spool_plan.encode_slot(Progress(1, 16, frozenset(range(100))), 7, 1024)
    new = spool_plan.encode_slot(Progress(1, 5000, frozenset(range(50))), 9, 1024)
    cuts = [spool_plan.read_slot(new[:cut] + old[cut:]) for cut in range(1024)]
    whole = len(new.rstrip())
    assert {found for found in cuts if found} == {
        spool_plan.read_slot(old),
        spool_plan.read_slot(new),
    }
    assert not any(cuts[10:whole])
    assert spool_plan.read_slot(b" " * 1024) is None


def test_who_knows_more():
    near, far = Progress(1, 16, frozenset({40})), Progress(1, 30)
    assert spool_plan.further(near, far) == spool_plan.further(far, near) == far
    assert spool_plan.further(far, Progress(2)) == Progress(2)
    both = spool_plan.further(near, Progress(1, 16, frozenset({60})))
    assert both.done == {40, 60}


def test_a_progress_alone_is_the_oldest_one():
    assert spool_plan.read_slot(Progress(3, 170).encode()) == (0, Progress(3, 170))
    assert spool_plan.read_slot(b"\xff{") is None
