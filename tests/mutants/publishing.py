"""What is promised of a publish: its outcome, its order, its time."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CALL = "nsqsmart/client/publishing/call.py"
_WAY = "nsqsmart/client/publishing/placement.py"
_RETRY = "nsqsmart/policy/retry.py"
_DIRECTORY = "nsqsmart/client/shared/directory.py"
_POOL = "nsqsmart/net/pool.py"

PUBLISHING: tuple[Mutant, ...] = (
    Mutant(
        "keyed-without-a-look",
        "nsqsmart/client/publishing/shared_state.py",
        "        look = keyed or self._one_attempt\n",
        "        look = self._one_attempt\n",
        "a keyed message is not sent to a connection that has ended, however recently it was used",
        (
            "tests/integration/test_publish_faults.py"
            "::test_a_keyed_message_is_not_sent_to_a_connection_that_has_ended",
        ),
    ),
    Mutant(
        "one-attempt-without-a-look",
        "nsqsmart/client/publishing/shared_state.py",
        "        look = keyed or self._one_attempt\n",
        "        look = keyed\n",
        "an only attempt is not spent on a connection that has ended",
        (
            "tests/integration/test_publish_faults.py"
            "::test_the_nsqd_ends_a_connection_that_was_used_a_moment_ago",
        ),
    ),
    Mutant(
        "seen-alive-for-ever",
        _POOL,
        "recent = now < connection.seen_alive + _TRUST and",
        "recent = connection.seen_alive > 0 and",
        "a connection that was not looked at for 5 ms is looked at before it is lent",
        ("tests/unit/net/test_pool.py::test_any_other_is_looked_at",),
    ),
    Mutant(
        "seen-alive-after-its-tls",
        _POOL,
        "recent = now < connection.seen_alive + _TRUST and now < connection.expires_at",
        "recent = now < connection.seen_alive + _TRUST",
        "a TLS connection is not lent after its lifetime",
        ("tests/unit/net/test_pool.py::test_any_other_is_looked_at",),
    ),
    Mutant(
        "nodes-are-forgotten-too",
        "nsqsmart/client/shared/directory.py",
        "        return nodes or self._nodes\n",
        "        return nodes\n",
        "a lookup that has just begun keeps no new topic of an original cluster from its nsqds",
        (
            "tests/integration/test_publish_lookups.py"
            "::test_a_topic_that_a_publish_has_made_outlives_a_lookup_that_forgot",
        ),
    ),
    Mutant(
        "a-pipeline-that-never-begins",
        "nsqsmart/client/pipelining/connections.py",
        "            pipeline.retire()\n            raise\n",
        "            raise\n",
        "an interrupt leaves no pipeline that gathers messages and never begins",
        ("tests/unit/client/pipelining/test_connections.py",),
    ),
    Mutant(
        "unanswered-keyed-is-resent",
        _RETRY,
        "retry=not keyed or retry_unanswered, moved=True",
        "retry=True, moved=True",
        "a keyed message that got no answer is not sent again: it could surface behind later ones",
        ("tests/unit/policy/test_retry.py",),
    ),
    Mutant(
        "unanswered-is-rejected",
        _RETRY,
        "        Outcome.UNCERTAIN, answered=False, retry=not keyed",
        "        Outcome.REJECTED, answered=False, retry=not keyed",
        "what was sent and not answered is UNCERTAIN",
        ("tests/unit/policy/test_retry.py",),
    ),
    Mutant(
        "outcome-improves",
        _RETRY,
        "outcome=max(self.outcome, verdict.outcome,",
        "outcome=min(self.outcome, verdict.outcome,",
        "the outcome of a call is the worst of its attempts",
        ("tests/unit/policy/test_retry.py",),
    ),
    Mutant(
        "attempts-without-limit",
        _RETRY,
        "if self.limit and len(self.attempts) >= self.limit:",
        "if self.limit and len(self.attempts) > self.limit + 1:",
        "publish_attempts bounds the tries",
        ("tests/unit/policy/test_retry.py",),
    ),
    Mutant(
        "turn-given-up-before-the-pause",
        _CALL,
        "        if not elsewhere:\n            self._pause(",
        "        if not elsewhere:\n            self._placement.release()\n"
        "            self._pause(",
        "a keyed call keeps its turn until it ends: nothing of its partition passes it by",
        ("tests/integration/test_turns.py",),
    ),
    Mutant(
        "no-turns",
        _WAY,
        "if self._turn is None and self._shared.config.serialize:",
        "if self._turn is None and False:",
        "keyed messages of one partition are sent one after the other",
        ("tests/integration/test_turns.py",),
    ),
    Mutant(
        "no-fence",
        _WAY,
        "        if left <= 0:\n            fences.pop(",
        "        if left <= 3600:\n            fences.pop(",
        "nothing keyed follows an unanswered command before the fence is over",
        (
            "tests/integration/test_publish_memory.py"
            "::test_a_fence_holds_what_follows_an_unanswered_publish",
        ),
    ),
    Mutant(
        "last-come-first-served",
        "nsqsmart/client/publishing/turns.py",
        "self._queues.setdefault(key, deque()).append(ref(waiter))",
        "self._queues.setdefault(key, deque()).insert(1, ref(waiter))",
        "who came first is served first",
        ("tests/unit/client/publishing/test_turns.py",),
    ),
    Mutant(
        "a-spoiled-connection-is-kept",
        _POOL,
        "if connection.spoiled or connection.generation != host.generation:",
        "if connection.generation != host.generation:",
        "a connection with an answer outstanding is never lent again",
        ("tests/unit/net/test_pool.py::test_a_spoiled_connection_is_closed_instead",),
    ),
    Mutant(
        "an-exchange-begins-clean",
        "nsqsmart/net/connection.py",
        "        self.spoiled = True  # until proven clean",
        "        self.spoiled = False  # until proven clean",
        "an exchange that was interrupted spoils its connection",
        ("tests/unit/net/test_connection.py",),
    ),
    Mutant(
        "a-surplus-answer-is-taken",
        "nsqsmart/net/connection.py",
        "if len(frames) > 1 or (frames and self._frames.buffered):",
        "if frames and self._frames.buffered:",
        "a server that answers more than was asked is not believed",
        ("tests/unit/net/test_connection.py::test_any_other_answer_spoils_it",),
    ),
    Mutant(
        "a-batch-leaves-its-connection",
        "nsqsmart/client/publishing/shared_state.py",
        "connection.spoiled |= batch",
        "connection.spoiled |= False",
        "an error to a batch ends its connection",
        ("tests/integration/test_publish_kinds.py::test_an_error_to_a_batch_ends_its_connection",),
    ),
    Mutant(
        "any-receipt-will-do",
        "nsqsmart/client/publishing/shared_state.py",
        "if traced is not None and (receipt is None or receipt.trace_id != traced):",
        "if traced is not None and receipt is None:",
        "the receipt of a traced message shows its trace id",
        ("tests/integration/test_receipts.py",),
    ),
    Mutant(
        "a-pipeline-goes-on",
        "nsqsmart/net/pipeline.py",
        "        elif frame.type == ERROR:\n            self.over = True\n",
        "        elif frame.type == ERROR:\n",
        "a pipeline takes nothing more after an error frame",
        ("tests/unit/net/test_pipeline_errors.py",),
    ),
    Mutant(
        "the-deadline-of-a-send-is-ignored",
        "nsqsmart/net/sockets.py",
        "        if (monotonic() if now is None else now) >= deadline:",
        "        if (monotonic() if now is None else now) >= deadline + 3600:",
        "nothing is sent behind the deadline",
        ("tests/unit/net/test_sockets.py::test_behind_the_deadline_nothing_is_sent",),
    ),
    Mutant(
        "the-threshold-is-ignored",
        "nsqsmart/client/shared/discovery.py",
        "config.lookupd_failure_threshold,",
        "3,",
        "lookupd_failure_threshold says when a lookup is asked less often",
        ("tests/unit/client/shared/test_discovery.py",),
    ),
    Mutant(
        "two-lookups-at-once",
        _DIRECTORY,
        "if not entry.flying and now >= allowed:",
        "if now >= allowed:",
        "at most one lookup of a topic is under placement",
        ("tests/integration/test_lookup_flights.py", "tests/unit/client/shared/test_directory.py"),
    ),
    Mutant(
        "lookups-keep-no-distance",
        _DIRECTORY,
        "allowed = entry.asked_at + self._config.lookupd_min_refresh_interval",
        "allowed = entry.asked_at",
        "lookups of a topic keep lookupd_min_refresh_interval",
        ("tests/unit/client/shared/test_directory.py::test_forced_lookups_keep_their_distance",),
    ),
    Mutant(
        "a-failed-lookup-forgets",
        _DIRECTORY,
        "        before = entry.topology\n",
        "        before, entry.topology = entry.topology, None\n",
        "the last good topology is used while lookups fail",
        (
            "tests/unit/client/shared/test_directory.py::test_the_last_good_picture_serves_while_lookups_fail",
        ),
    ),
    Mutant(
        "java-hash-unsigned",
        "nsqsmart/policy/routing.py",
        "return value - (1 << 32) if value & _SIGN32 else value",
        "return value",
        "a key goes to the partition where Java and Go clients put it",
        ("tests/unit/policy/test_routing.py",),
    ),
    Mutant(
        "delay-in-seconds",
        "nsqsmart/client/shared/arguments.py",
        "return round(delay * 1000)",
        "return round(delay)",
        "delay= is in seconds, and milliseconds on the wire",
        ("tests/integration/test_delays.py",),
    ),
    Mutant(
        "no-delay-at-all",
        "nsqsmart/wire/commands.py",
        'return with_body(f"DPUB {topic} {delay_ms}\\n".encode(), body)',
        'return with_body(f"DPUB {topic} 0\\n".encode(), body)',
        "a delayed message comes no sooner than its delay says",
        (
            "tests/integration/test_publish_kinds.py"
            "::test_a_delayed_message_waits_on_an_original_nsqd",
        ),
    ),
    Mutant(
        "a-host-that-is-anothers",
        "nsqsmart/client/shared/receipt.py",
        "offset=self.offset if known and number == 0 else None,",
        "offset=self.offset,",
        "a receipt tells no host that is another message's",
        ("tests/integration/test_publish_async.py::test_a_traced_message_knows_its_place",),
    ),
    Mutant(
        "no-host-is-told",
        "nsqsmart/client/shared/receipt.py",
        "offset=self.offset if known and number == 0 else None,",
        "offset=None,",
        "the receipt of a traced message tells its host where the server does",
        ("tests/integration/test_publish_async.py::test_a_traced_message_knows_its_place",),
    ),
    Mutant(
        "who-waits-for-room-is-deaf",
        "nsqsmart/client/pipelining/in_flight.py",
        "self._changed.wait(min(left, LOOK_AGAIN))",
        "self._changed.wait(left)",
        "a signal just before publish_async sleeps is handled a second later, not at its deadline",
        ("tests/unit/client/pipelining/test_in_flight.py",),
    ),
    Mutant(
        "a-ticker-wakes-who-is-gone",
        "nsqsmart/net/ticker.py",
        "if self._due[0][0] == when:\n                self._changed.notify_all()",
        "if self._due[0][0] == when:\n                self._changed.notify()",
        "an interrupt in publish_async leaves its timer thread one that can be woken",
        ("tests/unit/net/test_ticker.py",),
    ),
    Mutant(
        "an-interrupt-is-a-thread-too-many",
        "nsqsmart/net/threads.py",
        "raise interrupt from None",
        "pass",
        "Ctrl-C while publish_async starts a thread reaches the caller",
        ("tests/unit/net/test_threads.py",),
    ),
    Mutant(
        "who-comes-late-is-not-told-why",
        "nsqsmart/net/pipeline.py",
        'lost = self._why or ConnectionLost(f"{self.address} {why}")',
        'lost = ConnectionLost(f"{self.address} {why}")',
        "publish_async tries no port again that speaks HTTP, whichever thread is faster",
        ("tests/unit/net/test_pipeline.py",),
    ),
)
