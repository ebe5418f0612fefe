"""What is promised of the spool: on the disk, in order, and readable by its owner alone."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FILES = "nsqsmart/client/spooling/storage.py"
_QUEUE = "nsqsmart/client/spooling/storage.py"
_SPOOL = "nsqsmart/client/spooling/spool.py"
_SENDING = "nsqsmart/client/spooling/sending.py"

SPOOL: tuple[Mutant, ...] = (
    Mutant(
        "no-room-for-what-was-sent",
        _QUEUE,
        "        self.reserve(count)\n        write_at",
        "        write_at",
        "room for the progress record is reserved before anything is spooled",
        (
            "tests/integration/test_spool_disk.py"
            "::test_on_a_full_disk_nothing_is_sent_twice_and_new_messages_are_stored",
        ),
    ),
    Mutant(
        "sends-what-it-cannot-write-down",
        _SENDING,
        "                        self._queue.reserve(len(records))",
        "                        pass",
        "without room for the progress record nothing is sent from the spool",
        (
            "tests/integration/test_spool_disk.py"
            "::test_on_a_full_disk_nothing_is_sent_twice_and_new_messages_are_stored",
        ),
    ),
    Mutant(
        "what-was-sent-is-forgotten",
        _QUEUE,
        "            progress = further(progress, self._unsaved)",
        "            pass",
        "what was sent and could not be written down is not sent again by the same process",
        (
            "tests/integration/test_spool_disk.py"
            "::test_what_was_sent_and_not_written_down_is_not_sent_again",
        ),
    ),
    Mutant(
        "a-read-only-disk-is-a-mistake",
        _FILES,
        "        if error.errno not in _NO_ROOM:",
        "        if True:",
        "a Producer with a spool works on a read-only disk",
        (
            "tests/integration/test_spool_disk.py"
            "::test_on_a_read_only_disk_a_producer_publishes_and_says_what_it_cannot",
        ),
    ),
    Mutant(
        "not-on-the-disk",
        _FILES,
        "- len(rest)) :]\n    os.fsync(descriptor)\n",
        "- len(rest)) :]\n",
        "what is spooled is on the disk before publish returns",
        ("tests/integration/test_spool_disk.py",),
    ),
    Mutant(
        "the-folder-is-not-on-the-disk",
        _QUEUE,
        "        if not end:\n            sync_folder(self.folder)\n",
        "",
        "the name of a new segment is on the disk before publish returns",
        ("tests/integration/test_spool_disk.py",),
    ),
    Mutant(
        "half-a-record-stays",
        _FILES,
        "            with suppress(OSError):\n                os.ftruncate(descriptor, position)",
        "            with suppress(OSError):\n                pass",
        "a disk that is full leaves nothing written half",
        (
            "tests/integration/test_spool.py::test_a_full_disk_is_told_and_nothing_is_written_half",
            "tests/integration/test_spool_disk.py",
        ),
    ),
    Mutant(
        "the-limit-is-ignored",
        _QUEUE,
        "        if len(data) + self.lacking(count) > room:",
        "        if len(data) > room << 20:",
        "the spool never grows beyond spool_max_bytes",
        ("tests/integration/test_spool.py::test_the_limit_is_kept_and_nothing_is_written_half",),
    ),
    Mutant(
        "passes-by-what-waits",
        _SPOOL,
        "        if not waiting:\n            try:",
        "        if True:\n            try:",
        "what is published goes behind what waits of its topic",
        (
            "tests/integration/test_spool.py"
            "::test_who_finds_another_one_sending_does_not_keep_the_next_one_from_it",
        ),
    ),
    Mutant(
        "spools-what-is-refused",
        _SPOOL,
        "                if not failure.retryable:\n                    raise",
        "                if False:\n                    raise",
        "what a server will never take raises, and is not kept",
        ("tests/integration/test_spool.py::test_what_is_refused_raises",),
    ),
    Mutant(
        "a-split-batch-is-kept-whole",
        _SPOOL,
        "        stored = error.accepted if error else 0\n        records",
        "        stored = 0\n        records",
        "of a split batch only what was not stored is kept",
        ("tests/integration/test_spool.py::test_a_split_batch_keeps_only_what_was_not_stored",),
    ),
    Mutant(
        "a-delay-begins-anew",
        _SENDING,
        "delay = min(delay, max(0, delay - (now - first.written) // 1_000_000))",
        "delay = min(delay, max(0, delay))",
        "of a spooled message's delay what is left counts",
        ("tests/integration/test_spool.py::test_of_a_delay_what_is_left_counts",),
    ),
    Mutant(
        "what-is-refused-later-is-lost",
        _SENDING,
        "            file = self._queue.set_aside(each.record)",
        "            file = self._queue.folder",
        "what is refused when it is sent is set aside",
        ("tests/integration/test_spool.py::test_what_is_refused_later_is_set_aside",),
    ),
    Mutant(
        "what-waits-is-thrown-away",
        _SENDING,
        "            records = queue.next_window(self._progress, size)",
        "            records = ()",
        "a spool that is empty has been sent",
        (
            "tests/integration/test_spool.py"
            "::test_threads_that_publish_all_the_time_come_to_the_end_of_it",
        ),
    ),
    Mutant(
        "a-delay-is-lost-in-the-spool",
        _SENDING,
        "        delay=delay,\n",
        "        delay=delay and delay // 1_000_000,\n",
        "a delayed message that was spooled is still one",
        ("tests/integration/test_spool.py::test_a_delayed_message_is_still_one",),
    ),
)
