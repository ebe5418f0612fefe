"""What the commands promise: what is given back when, and what they tell."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GIVEN_BACK = "tests/rooms/cli/test_given_back.py"

COMMANDS: tuple[Mutant, ...] = (
    Mutant(
        "the-copier-asks-for-all",
        "nsqsmart/cli/copying.py",
        "max_in_flight=min(chosen.n, config.max_in_flight)",
        "max_in_flight=config.max_in_flight",
        "copy -n asks for no more than it is to copy",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "given-back-before-the-end",
        "nsqsmart/cli/ending.py",
        "        message.detach()",
        "        message.requeue(0.0, backoff=False)",
        "what a command did not want is given back once, when nothing more is asked for",
        (f"{_GIVEN_BACK}::test_files_give_nothing_back_by_themselves",),
    ),
    Mutant(
        "a-failed-copy-has-no-successor",
        "nsqsmart/cli/copier.py",
        "chosen = self._choose([])",
        "chosen = []",
        "copy -n copies what it kept in the place of what failed",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "max-messages-given-back-at-once",
        "nsqsmart/contrib/shared/running.py",
        "                    message.detach()",
        "                    message.requeue(0.0, backoff=False)",
        "what --max-messages did not want is given back once, when nothing more is asked for",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "a-drain-gives-back-under-an-open-rdy",
        "nsqsmart/client/engine.py",
        "        self.regulator.stop()\n        with self._beginning",
        "        self.draining = True\n        self.regulator.stop()\n        with self._beginning",
        "a drain asks for no more before anything is given back",
        ("tests/integration/test_drain_order.py",),
    ),
    Mutant(
        "best-effort-is-refused",
        "nsqsmart/client/publisher.py",
        "return publication._replace(key=None)",
        "return publication",
        'ordering="best-effort" sends a key without order where there is none',
        ("tests/integration/test_keys_on_original.py",),
    ),
    Mutant(
        "ordering-is-always-loose",
        "nsqsmart/client/publisher.py",
        'if publication.key is None or self.config.ordering == "required":',
        "if publication.key is None:",
        "a key on an original NSQ is refused unless best effort was asked for",
        ("tests/integration/test_keys_on_original.py",),
    ),
    Mutant(
        "a-refused-row-and-exit-0",
        "nsqsmart/contrib/django/management/commands/nsq_relay.py",
        "if passage.refused:",
        "if False:",
        "nsq_relay --once tells by its exit code that a row was refused",
        ("tests/rooms/contrib/django/test_original.py",),
    ),
    Mutant(
        "ping-of-misfits-ends-with-0",
        "nsqsmart/contrib/django/management/commands/nsq_ping.py",
        "        if wrong:",
        "        if False:",
        "nsq_ping ends with 1 where the servers cannot do what is declared",
        ("tests/rooms/contrib/django/test_original.py",),
    ),
    Mutant(
        "the-recorder-takes-keys-of-any-server",
        "nsqsmart/testing/recording.py",
        "if not loose and not (key is None and partition is None):",
        "if False:",
        "a recording producer refuses what original servers refuse",
        ("tests/rooms/testing/test_recording.py",),
    ),
    Mutant(
        "an-unknown-topic-may-come",
        "nsqsmart/cli/changing.py",
        "raise ConfigError(str(error)) from error",
        "raise",
        "to delete a topic that is not there is a mistake: exit code 1, not 75",
        ("tests/rooms/cli/test_changing.py",),
    ),
    Mutant(
        "lone-redesigned-nsqds-are-changed",
        "nsqsmart/client/administering.py",
        "if Dialect.REDESIGNED in dialects:",
        "if False:",
        "a lone redesigned nsqd is looked at, not changed past its lookups",
        ("tests/rooms/cli/test_changing.py",),
    ),
    Mutant(
        "http-addresses-of-some",
        "nsqsmart/client/lone.py",
        "if len(found) != len(endpoint.addresses):",
        "if False:",
        "nsqd_http_addresses names one for each nsqd, or is refused",
        ("tests/rooms/cli/test_changing.py::test_http_addresses_that_cannot_be",),
    ),
    Mutant(
        "lone-nsqds-have-no-http",
        "nsqsmart/client/lone.py",
        "found.append(_ask(http, address, server, left))",
        'found.append(Listed(Node(address, server), "", frozenset()))',
        "nsqd_http_addresses lets commands that change something work with nsq://",
        ("tests/rooms/cli/test_changing.py",),
    ),
)
