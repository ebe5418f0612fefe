"""What is promised of bytes: limits, layouts, units."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WIRE: tuple[Mutant, ...] = (
    Mutant(
        "frames-of-any-size",
        "nsqsmart/wire/frames.py",
        "    if size > max_frame_size:",
        "    if size > max_frame_size << 20:",
        "nothing is allocated for a frame beyond max_frame_size",
        ("tests/unit/wire/test_frames.py::test_a_size_too_large",),
    ),
    Mutant(
        "deliveries-of-any-size",
        "nsqsmart/wire/deliveries.py",
        "            if frame_type != MESSAGE or size > limit or size < _WHOLE_HEAD_SIZE - 4:",
        "            if frame_type != MESSAGE or size < _WHOLE_HEAD_SIZE - 4:",
        "a message beyond max_frame_size is refused",
        ("tests/unit/wire/test_deliveries.py",),
    ),
    Mutant(
        "attempts-and-time-swapped",
        "nsqsmart/wire/deliveries.py",
        "messages.append(make(arrival, timestamp, attempts, message_id, body))",
        "messages.append(make(arrival, attempts, timestamp, message_id, body))",
        "a message knows how often it was tried, and when it was published",
        ("tests/unit/wire/test_deliveries.py",),
    ),
    Mutant(
        "sizes-of-a-batch-in-reverse",
        "nsqsmart/wire/commands.py",
        "    parts[0::2] = map(words.__getitem__, lengths)",
        "    parts[0::2] = map(words.__getitem__, reversed(lengths))",
        "a batch is what it counts",
        ("tests/unit/wire/test_commands.py::test_a_batch_is_what_it_counts",),
    ),
    Mutant(
        "any-answer-is-ok",
        "nsqsmart/wire/receipts.py",
        "    if len(data) == _TRACED.size and data.startswith(OK):",
        "    if len(data) == _TRACED.size:",
        "no success without the OK of the server",
        ("tests/unit/wire/test_receipts.py",),
    ),
    Mutant(
        "a-record-is-not-summed",
        "nsqsmart/wire/spool_records.py",
        "    if _crc(content) != crc:",
        "    if False:",
        "a changed byte in the spool is noticed",
        ("tests/unit/wire/test_spool_records.py::test_a_changed_byte_costs_one_record",),
    ),
    Mutant(
        "what-waits-has-what-is-in-flight",
        "nsqsmart/policy/answers/stats.py",
        "        return max(0, self.unfinished - self.in_flight - self.deferred)",
        "        return max(0, self.unfinished - self.deferred)",
        "what waits is neither in flight nor put off",
        ("tests/unit/policy/answers/test_stats.py",),
    ),
)
