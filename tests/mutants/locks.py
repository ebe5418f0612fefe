"""What is promised of locks: decide inside, act outside; and what is changed only inside."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCENES = "tests/integration/test_locks.py::test_nothing_is_called_under_a_lock"
_LIFE = "tests/integration/test_producer_life.py::"
_PRODUCER = "nsqsmart/client/producer/runtime.py"
_CONSUMER = "nsqsmart/client/consuming/runtime.py"
_DEAD_LETTERS = "nsqsmart/client/messages/dead_letters.py"
_PIPELINE = "nsqsmart/net/pipeline.py"

LOCKS: tuple[Mutant, ...] = (
    Mutant(
        "a-thread-starts-under-a-lock",
        _PRODUCER,
        "            made = AsyncPublisher(self.publishing, self.open)\n",
        "            with self._lock:\n"
        "                made = AsyncPublisher(self.publishing, self.open)\n",
        "no thread is started under a lock",
        (f"{_SCENES}[publish_async]",),
    ),
    Mutant(
        "metrics-are-told-under-a-lock",
        _PRODUCER,
        "            self._meter.watch(self)\n",
        "            with self._lock:\n                self._meter.watch(self)\n",
        "nothing of the application is called under a lock",
        (f"{_SCENES}[publish]",),
    ),
    Mutant(
        "a-lock-is-taken-under-another",
        _CONSUMER,
        "            self.ticker.at(self._shared_until, self.rdy_controller.expect)\n",
        "            with self._lock:\n"
        "                self.ticker.at(self._shared_until, self.rdy_controller.expect)\n",
        "no lock is taken under another",
        (f"{_SCENES}[consume]",),
    ),
    Mutant(
        "a-line-is-logged-under-a-lock",
        _DEAD_LETTERS,
        "            self.given_up += 1\n",
        '            self.given_up += 1\n            log.debug("one more")\n',
        "nothing is logged under a lock",
        (f"{_SCENES}[consume]",),
    ),
    Mutant(
        "a-pipeline-ends-under-its-lock",
        _PIPELINE,
        "            self._lock.release()\n        self._ended = True",
        "            pass\n        self._ended = True",
        "what a pipeline leaves is told to its callers, and their callbacks, outside its lock",
        (f"{_SCENES}[publish_async]",),
    ),
    Mutant(
        "what-waits-is-told-under-the-send-lock",
        "nsqsmart/net/write_buffer.py",
        "        if self._unsent:\n            self.dirty = True\n",
        "        if self._unsent:\n            self.dirty = not self._on_dirty(self)\n",
        "the ticker is asked to send the rest outside the send lock",
        ("tests/unit/net/test_write_buffer.py",),
    ),
    Mutant(
        "who-gives-back-does-not-ask-who-sends",
        _PIPELINE,
        "(self._ended or self._lock.acquire(blocking=False))",
        "(self._ended or self._lock.acquire(blocking=False) or True)",
        "an item is sent or given back, never both",
        ("tests/unit/net/test_pipeline.py",),
    ),
    Mutant(
        "who-sends-gives-nothing-back",
        _PIPELINE,
        "        if self.over:\n            self._give_back()\n\n    def retire",
        "\n    def retire",
        "what came while another thread was sending is given back by that thread",
        ("tests/unit/net/test_pipeline.py",),
    ),
    Mutant(
        "an-item-is-in-neither-queue",
        _PIPELINE,
        "        self._waiting += batch\n        del self._gathered[:count]\n",
        "        del self._gathered[:count]\n        self._waiting += batch\n",
        "the watch over what is unanswered sees an item at every moment",
        ("tests/unit/net/test_pipeline.py",),
    ),
    Mutant(
        "a-count-without-its-lock",
        "nsqsmart/net/pool.py",
        "            with self._lock:\n                host.stats.requests_errors += 1\n",
        "            host.stats.requests_errors += 1\n",
        "no count is lost where the interpreter has no lock",
        ("tests/architecture/test_locked_counts.py",),
    ),
    Mutant(
        "a-drain-overtakes-a-start",
        _CONSUMER,
        "        with self._starting:\n",
        "        with self._lock:\n",
        "all threads of a consumer begin before its drain, or none does",
        ("tests/unit/client/consuming/test_runtime_close.py",),
    ),
    Mutant(
        "the-second-publisher-lives-on",
        _PRODUCER,
        "if self._async is not made:",
        "if False:",
        "of threads that begin publish_async at once no unused thread is left",
        (f"{_LIFE}test_of_threads_that_begin_publish_async_at_once_one_has_made_what_all_use",),
    ),
    Mutant(
        "the-second-dead-letter-producer-lives-on",
        _DEAD_LETTERS,
        "            if not used:",
        "            if False:",
        "of producers of dead letters made at once the unused one is closed",
        ("tests/unit/client/messages/test_dead_letters.py",),
    ),
    Mutant(
        "what-is-closed-while-it-is-watched-stays",
        _PRODUCER,
        "        if ended:  #",
        "        if False:  #",
        "a closed Producer is not left in the metrics",
        (f"{_LIFE}test_a_producer_that_is_closed_while_it_is_made_known_is_forgotten_after_that",),
    ),
)
