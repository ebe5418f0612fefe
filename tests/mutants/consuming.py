"""What is promised of a consumer: answers, backoff, order, the end."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_WORKERS = "nsqsmart/client/consuming/workers.py"
_SUBSCRIPTION = "nsqsmart/client/subscribing/subscription.py"
_FLOW = "nsqsmart/policy/flow.py"
_MESSAGE = "nsqsmart/client/messages/message.py"

CONSUMING: tuple[Mutant, ...] = (
    Mutant(
        "a-lasting-refusal-is-a-warning",
        "nsqsmart/client/consuming/runtime.py",
        "level = logging.DEBUG if told.tell() is None else logging.ERROR",
        "level = logging.WARNING",
        "a consumer that cannot subscribe for good logs an ERROR, and rarely",
        ("tests/integration/test_log_records.py",),
    ),
    Mutant(
        "a-missing-topic-is-not-told",
        "nsqsmart/client/subscribing/supervisor.py",
        "        self._tell_missing(topology)\n",
        "",
        "a consumer of a topic that no lookup knows says so in the log",
        ("tests/integration/test_log_records.py",),
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
        "nsqsmart/client/consuming/runtime.py",
        "            self.ticker.at(self._shared_until, self.rdy_controller.expect)\n",
        "            pass\n",
        "a connection that cannot be made keeps its share from the others for a second at most",
        (
            "tests/integration/test_flow.py"
            "::test_a_connection_that_is_not_made_keeps_its_share_for_a_moment_only",
        ),
    ),
    Mutant(
        "a-drain-leaves-the-rest-to-others",
        "nsqsmart/net/write_buffer.py",
        "if not self._lock.acquire(timeout=max(0.0, deadline - monotonic())):",
        "if not self._lock.acquire(blocking=False):",
        "close() sends every answer before it ends the connection, also while another thread sends",
        ("tests/unit/net/test_write_buffer.py::test_a_drain_waits_for_the_thread_that_is_sending",),
    ),
    Mutant(
        "a-close-drains-nothing",
        "nsqsmart/client/subscribing/subscription.py",
        "            self.write_buffer.drain(deadline)\n",
        "            self.write_buffer.flush()\n",
        "close() sends every answer before it ends the connection, also while another thread sends",
        ("tests/unit/client/subscribing/test_subscription.py",),
    ),
    Mutant(
        "rdy-is-ignored-unnoticed",
        "nsqsmart/net/reader.py",
        "if self.received - self._write_buffer.settled > self._write_buffer.asked:",
        "if False:",
        "a server that ignores RDY is left before it fills the memory",
        ("tests/unit/net/test_reader.py::test_more_than_was_asked_for_ends_it_and_is_told",),
    ),
    Mutant(
        "what-it-has-sent-too-much-stays",
        "nsqsmart/client/consuming/runtime.py",
        "            self.dispatcher.drop(subscription)",
        "            pass",
        "what a server has sent that ignores RDY is not kept for workers that are stuck",
        (
            "tests/integration/test_bad_peers.py"
            "::test_a_server_that_ignores_rdy_is_left_and_told_of",
        ),
    ),
    Mutant(
        "a-puller-takes-what-it-never-asked-for",
        "nsqsmart/client/pulling/connection.py",
        "raise ignores_rdy(self.target.address, self._asked, unanswered)",
        "pass",
        "a server that ignores RDY is left by a PullSubscription, in its drain too",
        ("tests/integration/test_bad_peers.py::test_so_is_one_that_is_pulled_from[False]",),
    ),
    Mutant(
        "time-outs-are-a-surplus",
        "nsqsmart/policy/surplus.py",
        "periods = 1 + (now - self._since) / self._msg_timeout",
        "periods = 1",
        "a server whose messages time out and come again does not ignore RDY",
        ("tests/unit/policy/test_surplus.py",),
    ),
    Mutant(
        "finished-before-it-is-handled",
        _WORKERS,
        "                result = handler(message)\n",
        "                result = ack(message.id) and handler(message)\n",
        "a message is finished once its handler has returned, no sooner",
        ("tests/unit/client/consuming/test_workers.py",),
    ),
    Mutant(
        "a-failure-is-finished",
        _WORKERS,
        "        self._requeue(message, counts, requeue_for(error))",
        "        message.finish()",
        "a message whose handler raised is requeued",
        ("tests/unit/client/consuming/test_workers.py",),
    ),
    Mutant(
        "false-finishes",
        "nsqsmart/client/messages/results.py",
        "        if result is False:",
        "        if result is NotImplemented:",
        "a handler that returns False has its message requeued",
        ("tests/unit/client/consuming/test_workers.py::test_false_requeues",),
    ),
    Mutant(
        "an-expired-message-is-handled",
        _WORKERS,
        "if self._runtime.draining or message.expired:",
        "if self._runtime.draining:",
        "what has expired in the inbox is not handled",
        ("tests/unit/client/consuming/test_workers.py::test_an_expired_message_is_not_handled",),
    ),
    Mutant(
        "draining-handles-on",
        _WORKERS,
        "if self._runtime.draining or message.expired:",
        "if message.expired:",
        "who drains gives back what no handler has seen",
        (
            "tests/unit/client/consuming/test_workers.py::test_who_drains_gives_back_what_no_handler_has_seen",
        ),
    ),
    Mutant(
        "too-many-attempts-are-handled",
        _WORKERS,
        "        if message.attempts <= self._most_attempts:",
        "        if message.attempts <= self._most_attempts + 1:",
        "beyond max_attempts the handler does not see a message",
        (
            "tests/unit/client/consuming/test_workers.py::test_beyond_the_most_attempts_the_handler_does_not_see_it",
        ),
    ),
    Mutant(
        "given-up-untold",
        "nsqsmart/client/messages/dead_letters.py",
        "            if not message.answered:\n                message.requeue()",
        "            if not message.answered:\n                message.finish()",
        "a message that was not stored elsewhere is requeued, not finished",
        ("tests/unit/client/messages/test_dead_letters.py",),
    ),
    Mutant(
        "a-late-answer-is-sent",
        _SUBSCRIPTION,
        "late = monotonic() >= message._read_batch.deadline and message.expired",
        "late = False",
        "an answer that comes too late is not sent, and is False",
        ("tests/unit/client/subscribing/test_subscription.py::test_late_answers_are_not_sent",),
    ),
    Mutant(
        "a-requeue-in-seconds",
        _SUBSCRIPTION,
        "commands.req(message.id, round(delay * 1000))",
        "commands.req(message.id, round(delay))",
        "the delay of a requeue is in seconds, and milliseconds on the wire",
        ("tests/unit/client/subscribing/test_subscription.py",),
    ),
    Mutant(
        "write-timeout-of-a-subscription",
        _SUBSCRIPTION,
        "connection.transport.socket.block(config.write_timeout)",
        "connection.transport.socket.block(0.0)",
        "write_timeout bounds what a subscribed connection waits for a server that takes nothing",
        (
            "tests/unit/client/subscribing/test_subscription.py"
            "::test_who_takes_nothing_is_waited_for_no_longer_than_the_write_timeout",
        ),
    ),
    Mutant(
        "silence-is-patience",
        _SUBSCRIPTION,
        "_SILENT_INTERVALS = 2.5",
        "_SILENT_INTERVALS = 2500",
        "a connection that is silent for 2.5 heartbeats is replaced",
        (
            "tests/unit/client/subscribing/test_subscription.py::test_silence_is_the_end_and_a_heartbeat_is_not",
        ),
    ),
    Mutant(
        "answered-twice",
        _MESSAGE,
        "        if self.answered:\n"
        '            raise AlreadyResponded("the message was finished or requeued before")',
        "        if False:\n"
        '            raise AlreadyResponded("the message was finished or requeued before")',
        "a second answer raises AlreadyResponded",
        ("tests/unit/client/messages/test_message.py::test_a_second_answer_is_a_mistake",),
    ),
    Mutant(
        "a-with-block-always-finishes",
        _MESSAGE,
        "    if error is None:\n        message.finish()",
        "    if True:\n        message.finish()",
        "a with block requeues its message when it raises",
        ("tests/unit/client/messages/test_message.py::test_a_with_block_finishes_or_requeues",),
    ),
    Mutant(
        "a-touch-beyond-the-maximum",
        _MESSAGE,
        "self._need_extras.until = min(monotonic() + self._subscription.msg_timeout, self._latest)",
        "self._need_extras.until = monotonic() + self._subscription.msg_timeout",
        "no touch goes beyond the server's maximum",
        (
            "tests/unit/client/messages/test_message.py::test_no_touch_goes_beyond_the_servers_maximum",
        ),
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
        "nsqsmart/net/write_buffer.py",
        "            parts.append(commands.fins(ids))",
        "            parts.insert(0, commands.fins(ids))",
        "a lower RDY reaches the server before the FINs that free places",
        ("tests/unit/net/test_write_buffer.py::test_rdy_goes_first_and_only_when_it_changed",),
    ),
    Mutant(
        "an-interrupt-leaves-half-a-command",
        "nsqsmart/net/write_buffer.py",
        "            # An interrupt: how much was sent is unknown, so nothing may follow it.\n"
        "            self.break_off()\n",
        "            # An interrupt: how much was sent is unknown, so nothing may follow it.\n",
        "nothing follows what an interrupt cut off",
        ("tests/unit/net/test_write_buffer.py::test_nothing_follows_what_an_interrupt_cut_off",),
    ),
    Mutant(
        "out-of-order-is-fine",
        "nsqsmart/policy/ordering.py",
        "internal_id <= self._internal_id:\n            return Order.VIOLATION",
        "internal_id <= self._internal_id:\n            return Order.NEXT",
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
        "nsqsmart/client/consuming/rdy_controller.py",
        '        """Send RDY 0 to every connection, for good."""\n',
        '        __import__("time").sleep(2)\n',
        "close() waits for no backoff",
        ("tests/integration/test_connections.py::test_close_waits_for_no_backoff",),
    ),
    Mutant(
        "a-child-answers",
        "nsqsmart/client/shared/process.py",
        "    if os.getpid() != process:\n        raise",
        "    if os.getpid() < 0:\n        raise",
        "a forked child cannot answer its parent's message, and is told so",
        ("tests/integration/test_forked_children.py::test_a_child_of_who_pulls_answers_nothing",),
    ),
    Mutant(
        "a-child-works-on",
        "nsqsmart/client/shared/process.py",
        "    if os.getpid() == process:\n        return",
        "    if os.getpid():\n        return",
        "a child that a handler has forked ends where the handler ends",
        (
            "tests/integration/test_forked_children.py::test_a_child_ends_where_its_handler_ends"
            "[batch_handler=handler-original]",
        ),
    ),
    Mutant(
        "a-child-keeps-its-parents-connection",
        "nsqsmart/net/cancel_scope.py",
        "        thing.drop()",
        "        pass",
        "a forked child closes the connections of its parent at once",
        ("tests/unit/net/test_forking.py",),
    ),
    Mutant(
        "a-child-forked-by-c-speaks",
        "nsqsmart/net/sockets.py",
        "        return os.getpid() == self._process",
        "        return True",
        "who was forked without a hook does not speak on its parent's connection either",
        ("tests/unit/net/test_sockets.py::test_who_was_forked_without_a_hook_does_not_speak",),
    ),
    Mutant(
        "a-deadline-moved-by-hand",
        _MESSAGE,
        "    def _give_back(self) -> None:",
        "    extend = _extend\n\n    def _give_back(self) -> None:",
        "nothing on a Message's public face moves its deadline without the server",
        (
            "tests/unit/client/messages/test_message.py::test_its_public_face_is_what_the_reference_says",
        ),
    ),
    Mutant(
        "timeouts-are-silent",
        _SUBSCRIPTION,
        "        if self.live and message.expired:\n"
        "            self._runtime.timeouts.note(message)",
        "        if self.live and message.expired:\n            pass",
        "a message that was not answered in time is counted and told",
        ("tests/unit/client/subscribing/test_subscription.py::test_late_answers_are_not_sent",),
    ),
    Mutant(
        "timeouts-are-no-reason",
        "nsqsmart/client/consuming/runtime.py",
        "    reasons += [late] if late else []",
        "    reasons += []",
        "a consumer whose messages time out does not say that it is ready",
        ("tests/integration/test_handlers.py::test_messages_that_time_out_are_told",),
    ),
    Mutant(
        "every-timeout-is-a-line",
        "nsqsmart/client/shared/log_fields.py",
        "            if now < self._next:",
        "            if now < 0:",
        "what may happen often is logged at once, and then rarely",
        ("tests/unit/client/shared/test_log_throttle.py",),
    ),
    Mutant(
        "a-head-that-is-late-is-silent",
        "nsqsmart/client/subscribing/ordered_delivery.py",
        "        elif head is not None and head.internal_id == message.internal_id:",
        "        elif head is None:",
        "a head of an ordered partition that times out again and again is told",
        (
            "tests/unit/client/subscribing/test_ordered_delivery.py"
            "::test_a_head_that_times_out_again_and_again_is_told_as_its_failing_twin",
        ),
    ),
    Mutant(
        "what-is-unread-starves",
        "nsqsmart/client/consuming/rdy_controller.py",
        "        return self._is_used_up(lambda each: held[each])",
        "        return self._is_used_up(lambda each: each.in_flight or held[each])",
        "is_starved() counts what handlers and callers hold, not what waits unread",
        (
            "tests/unit/client/consuming/test_rdy_controller.py"
            "::test_who_is_starved_holds_it_and_what_waits_is_only_in_flight",
        ),
    ),
    Mutant(
        "a-failed-copy-undoes-a-finish",
        "nsqsmart/client/subscribing/start_position.py",
        "        copies = (newest, *self._copies.get(offset, ()))",
        "        copies = (newest,)",
        "what was finished is not reported as skipped because a copy of it failed",
        (
            "tests/unit/client/subscribing/test_start_position.py"
            "::test_nothing_is_said_of_what_was_finished_before_its_copy_failed",
        ),
    ),
    Mutant(
        "a-refused-finish-counts",
        _SUBSCRIPTION,
        "                self._memory.refuse(message_id)",
        "                pass",
        "a FIN that the server has refused does not count as finished",
        (
            "tests/unit/client/subscribing/test_subscription.py"
            "::test_a_fin_that_was_refused_leaves_its_message_unfinished",
        ),
    ),
    Mutant(
        "what-was-passed-over-is-a-rewind",
        "nsqsmart/policy/ordering.py",
        "        if missed:\n            return Order.VIOLATION",
        "        if missed:\n            return Order.REWIND",
        "a message that comes for the first time behind those that follow it is out of order",
        ("tests/unit/policy/test_ordering.py",),
    ),
    Mutant(
        "a-reconnect-forgets-the-order",
        "nsqsmart/client/subscribing/ordered_delivery.py",
        "        self._order = before._order",
        "        pass",
        "the order of a partition is checked over its connections",
        (
            "tests/unit/client/subscribing/test_ordered_delivery.py::test_what_came_on_the_connection_before_is_known",
        ),
    ),
    Mutant(
        "what-cannot-start-is-kept",
        "nsqsmart/client/subscribing/supervisor.py",
        "                self._kept.pop(place, None)\n            raise",
        "                pass\n            raise",
        "a subscription whose thread cannot start is tried again",
        ("tests/unit/client/subscribing/test_supervisor.py::test_what_cannot_start_is_not_kept",),
    ),
    Mutant(
        "a-sub-is-a-success-at-once",
        "nsqsmart/client/subscribing/supervisor.py",
        "        if begun is None or monotonic() - begun.at >= max(_STEADY, begun.pause):",
        "        if True or begun is None:",
        "who takes every SUB and ends the connection behind it is dialled ever more rarely",
        (
            "tests/unit/client/subscribing/test_supervisor.py::test_pauses_grow_until_it_is_established",
        ),
    ),
    Mutant(
        "every-refusal-is-a-line",
        "nsqsmart/client/consuming/runtime.py",
        "        if (times := self._refusals.tell()) is not None:",
        "        if times := 1:",
        "a flood of E_FIN_FAILED is logged at a bounded rate",
        ("tests/integration/test_connections.py::test_a_flood_of_refusals_is_a_line_and_a_count",),
    ),
    Mutant(
        "pulled-timeouts-are-silent",
        "nsqsmart/client/pulling/connection.py",
        "        if count and (times := self._timeouts.tell(count)) is not None:",
        "        if count and (times := self._timeouts.tell(count)) is None:",
        "who pulls is told of messages that were not answered in time",
        (
            "tests/integration/test_pull_subscription.py"
            "::test_an_answer_that_the_server_refuses_is_named",
        ),
    ),
    Mutant(
        "a-channel-with-a-finish-is-forgotten",
        "nsqsmart/policy/channel_positions.py",
        "    if known.finished and (ordered or others):",
        "    if known.finished and others:",
        "what another consumer has finished is not reported as skipped",
        ("tests/unit/policy/test_channel_positions.py::test_what_is_to_be_done",),
    ),
)
