"""What is promised of a consumer: answers, backoff, order, the end."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CREW = "nsqsmart/client/crew.py"
_SUBSCRIPTION = "nsqsmart/client/subscription.py"
_FLOW = "nsqsmart/policy/flow.py"
_MESSAGE = "nsqsmart/client/message.py"

CONSUMING: tuple[Mutant, ...] = (
    Mutant(
        "a-lasting-refusal-is-a-warning",
        "nsqsmart/client/engine.py",
        "level = logging.ERROR if due else logging.DEBUG",
        "level = logging.WARNING",
        "a consumer that cannot subscribe for good logs an ERROR, and rarely",
        ("tests/integration/test_log_records.py",),
    ),
    Mutant(
        "a-missing-topic-is-not-told",
        "nsqsmart/client/keeper.py",
        "        self._tell_missing(topology)\n",
        "",
        "a consumer of a topic that no lookup knows says so in the log",
        ("tests/integration/test_log_records.py",),
    ),
    Mutant(
        "what-is-rare-is-always",
        "nsqsmart/policy/rarely.py",
        "if last is not None and now < last + self._interval:",
        "if last is None and now < 0:",
        "what lasts is logged at once, and then rarely",
        ("tests/unit/policy/test_rarely.py",),
    ),
    Mutant(
        "the-first-has-all",
        _FLOW,
        "count = max(len(self._ceilings), self._expected)",
        "count = len(self._ceilings)",
        "the first connections of a consumer leave the others their shares of max_in_flight",
        (
            "tests/integration/test_flow.py::test_the_first_connection_leaves_the_others_their_shares",
        ),
    ),
    Mutant(
        "what-hangs-keeps-its-share",
        "nsqsmart/client/engine.py",
        "            self.ticker.at(monotonic() + _FIRST_SHARES, self.regulator.expect)\n",
        "            pass\n",
        "a connection that cannot be made keeps its share from the others for a second at most",
        (
            "tests/integration/test_flow.py"
            "::test_a_connection_that_is_not_made_keeps_its_share_for_a_moment_only",
        ),
    ),
    Mutant(
        "a-drain-leaves-the-rest-to-others",
        "nsqsmart/net/outbox.py",
        "if not self._lock.acquire(timeout=max(0.0, deadline - monotonic())):",
        "if not self._lock.acquire(blocking=False):",
        "close() sends every answer before it ends the connection, whoever else is sending",
        ("tests/unit/net/test_outbox.py::test_a_drain_waits_for_the_thread_that_is_sending",),
    ),
    Mutant(
        "a-close-drains-nothing",
        "nsqsmart/client/subscription.py",
        "            self.outbox.drain(deadline)\n",
        "            self.outbox.flush()\n",
        "close() sends every answer before it ends the connection, whoever else is sending",
        ("tests/unit/client/test_subscription.py",),
    ),
    Mutant(
        "finished-before-it-is-handled",
        _CREW,
        "                result = handler(message)\n",
        "                result = ack(message.id) and handler(message)\n",
        "a message is finished once its handler has returned, no sooner",
        ("tests/unit/client/test_crew.py",),
    ),
    Mutant(
        "a-failure-is-finished",
        _CREW,
        "        self._requeue(message, tally, wish_of(error))",
        "        message.finish()",
        "a message whose handler raised is requeued",
        ("tests/unit/client/test_crew.py",),
    ),
    Mutant(
        "false-finishes",
        "nsqsmart/client/results.py",
        "        if result is False:",
        "        if result is NotImplemented:",
        "a handler that returns False has its message requeued",
        ("tests/unit/client/test_crew.py::test_false_requeues",),
    ),
    Mutant(
        "an-expired-message-is-handled",
        _CREW,
        "if self._boss.draining or message.expired:",
        "if self._boss.draining:",
        "what has expired in the inbox is not handled",
        ("tests/unit/client/test_crew.py::test_an_expired_message_is_not_handled",),
    ),
    Mutant(
        "draining-handles-on",
        _CREW,
        "if self._boss.draining or message.expired:",
        "if message.expired:",
        "who drains gives back what no handler has seen",
        ("tests/unit/client/test_crew.py::test_who_drains_gives_back_what_no_handler_has_seen",),
    ),
    Mutant(
        "too-many-attempts-are-handled",
        _CREW,
        "        if message.attempts <= self._most_attempts:",
        "        if message.attempts <= self._most_attempts + 1:",
        "beyond max_attempts the handler does not see a message",
        (
            "tests/unit/client/test_crew.py::test_beyond_the_most_attempts_the_handler_does_not_see_it",
        ),
    ),
    Mutant(
        "given-up-for-nobody",
        "nsqsmart/client/giving_up.py",
        "            if not message.answered:\n                message.requeue()",
        "            if not message.answered:\n                message.finish()",
        "a message that nobody could take over is requeued, not finished",
        ("tests/unit/client/test_giving_up.py",),
    ),
    Mutant(
        "a-late-answer-is-sent",
        _SUBSCRIPTION,
        "late = monotonic() >= message.arrival.deadline and message.expired",
        "late = False",
        "an answer that comes too late is not sent, and is False",
        ("tests/unit/client/test_subscription.py::test_late_answers_are_not_sent",),
    ),
    Mutant(
        "a-requeue-in-seconds",
        _SUBSCRIPTION,
        "commands.req(message.id, round(delay * 1000))",
        "commands.req(message.id, round(delay))",
        "the delay of a requeue is in seconds, and milliseconds on the wire",
        ("tests/unit/client/test_subscription.py",),
    ),
    Mutant(
        "write-timeout-of-a-subscription",
        _SUBSCRIPTION,
        "connection.transport.socket.block(config.write_timeout)",
        "connection.transport.socket.block(0.0)",
        "write_timeout bounds what a subscribed connection waits for a server that takes nothing",
        (
            "tests/unit/client/test_subscription.py"
            "::test_who_takes_nothing_is_waited_for_no_longer_than_the_write_timeout",
        ),
    ),
    Mutant(
        "silence-is-patience",
        _SUBSCRIPTION,
        "_SILENT_INTERVALS = 2.5",
        "_SILENT_INTERVALS = 2500",
        "a connection that is silent for 2.5 heartbeats is replaced",
        ("tests/unit/client/test_subscription.py::test_silence_is_the_end_and_a_heartbeat_is_not",),
    ),
    Mutant(
        "answered-twice",
        _MESSAGE,
        "        if self.answered:\n"
        '            raise AlreadyResponded("the message was finished or requeued before")',
        "        if False:\n"
        '            raise AlreadyResponded("the message was finished or requeued before")',
        "a second answer raises AlreadyResponded",
        ("tests/unit/client/test_message.py::test_a_second_answer_is_a_mistake",),
    ),
    Mutant(
        "a-with-block-always-finishes",
        _MESSAGE,
        "    if error is None:\n        message.finish()",
        "    if True:\n        message.finish()",
        "a with block requeues its message when it raises",
        ("tests/unit/client/test_message.py::test_a_with_block_finishes_or_requeues",),
    ),
    Mutant(
        "a-touch-beyond-the-maximum",
        _MESSAGE,
        "self.rarities.until = min(monotonic() + self.subscription.msg_timeout, self.latest)",
        "self.rarities.until = monotonic() + self.subscription.msg_timeout",
        "no touch goes beyond the server's maximum",
        ("tests/unit/client/test_message.py::test_no_touch_goes_beyond_the_servers_maximum",),
    ),
    Mutant(
        "no-backoff",
        _FLOW,
        "        self._until = now + self._pause()\n",
        "        self._until = now\n",
        "after a failure nothing is delivered for the time of the backoff",
        ("tests/unit/policy/test_flow.py",),
    ),
    Mutant(
        "backoff-without-limit",
        _FLOW,
        "return min(pause, self._limits.max_backoff_duration)",
        "return pause",
        "no backoff is longer than max_backoff_duration",
        ("tests/unit/policy/test_flow.py",),
    ),
    Mutant(
        "more-in-flight-than-allowed",
        _FLOW,
        "name: total // count + (place < total % count)",
        "name: total // count + 1",
        "the shares of all connections are max_in_flight together",
        ("tests/unit/policy/test_flow.py",),
    ),
    Mutant(
        "rdy-behind-the-fins",
        "nsqsmart/net/outbox.py",
        "            parts.append(commands.fins(ids))",
        "            parts.insert(0, commands.fins(ids))",
        "a lower RDY reaches the server before the FINs that free places",
        ("tests/unit/net/test_outbox.py::test_rdy_goes_first_and_only_when_it_changed",),
    ),
    Mutant(
        "an-interrupt-leaves-half-a-command",
        "nsqsmart/net/outbox.py",
        "            # An interrupt: nobody knows how much has left, and nothing may follow it.\n"
        "            self.break_off()\n",
        "            # An interrupt: nobody knows how much has left, and nothing may follow it.\n",
        "nothing follows what an interrupt cut off",
        ("tests/unit/net/test_outbox.py::test_nothing_follows_what_an_interrupt_cut_off",),
    ),
    Mutant(
        "out-of-order-is-fine",
        "nsqsmart/policy/ordering.py",
        "            return Order.VIOLATION",
        "            return Order.NEXT",
        "a message out of order is told",
        ("tests/unit/policy/test_ordering.py",),
    ),
    Mutant(
        "sampling-is-not-asked-for",
        "nsqsmart/net/handshake.py",
        "sample_rate=config.sample_rate,",
        "sample_rate=0,",
        "sample_rate says how many of a hundred messages come",
        ("tests/integration/test_sample_rate.py",),
    ),
    Mutant(
        "close-sits-out-a-backoff",
        "nsqsmart/client/regulator.py",
        '        """RDY 0 everywhere, for good."""\n',
        '        __import__("time").sleep(2)\n',
        "close() waits for no backoff",
        ("tests/integration/test_connections.py::test_close_waits_for_no_backoff",),
    ),
)
