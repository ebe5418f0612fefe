"""What is promised when servers and lookups answer oddly, late, or not at all."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ANSWERS = "nsqsmart/wire/answers.py"
_ENTRY = "nsqsmart/client/shared/directory.py"
_HANDSHAKE = "nsqsmart/net/handshake.py"
_HTTP = "nsqsmart/net/http/session.py"
_TOPOLOGY = "nsqsmart/policy/topology.py"
_TROUBLES = "nsqsmart/client/publishing/shared_state.py"
_LOOKUPS = "tests/integration/test_publish_lookups.py"

ANSWERS: tuple[Mutant, ...] = (
    Mutant(
        "a-name-is-loopback",
        "nsqsmart/names.py",
        'host == "localhost" or ip_address(host).is_loopback',
        'host == "localhost" or host.startswith("127.")',
        "a secret leaves in the clear to this machine's addresses alone, not to names like them",
        ("tests/unit/net/test_handshake.py",),
    ),
    Mutant(
        "an-echoed-secret-is-shown",
        _ANSWERS,
        'data = data.replace(secret, b"***")',
        "pass",
        "a secret that an nsqd echoes is not in the text of an error",
        ("tests/unit/wire/test_answers.py",),
    ),
    Mutant(
        "control-characters-stand-raw",
        _ANSWERS,
        'printable(data[: _MAX_TEXT * 4].decode("utf-8", "backslashreplace"))[:_MAX_TEXT]',
        'data[: _MAX_TEXT * 4].decode("utf-8", "backslashreplace")[:_MAX_TEXT]',
        "what a server says is escaped before it is shown or logged",
        ("tests/unit/wire/test_answers.py",),
    ),
    Mutant(
        "any-answer-is-a-permission",
        _HANDSHAKE,
        "return answer == OK or isinstance(json.loads(answer), dict)",
        "return True",
        "AUTH is passed by OK or a JSON object alone",
        ("tests/unit/net/test_handshake.py",),
    ),
    Mutant(
        "http-is-tried-again",
        _HANDSHAKE,
        "permanent=wrong",
        "permanent=False",
        "a port that speaks HTTP ends a publish at once: no retry mends it",
        ("tests/unit/net/test_handshake.py", _LOOKUPS),
    ),
    Mutant(
        "sent-is-not-sent",
        "nsqsmart/net/connection.py",
        "if error.sent:",
        "if False:",
        "what fails after the command was sent is uncertain",
        ("tests/unit/net/test_connection.py",),
    ),
    Mutant(
        "an-unreadable-redirect-escapes",
        _HTTP,
        "HTTPError, OSError, ConnectError, *_UNREADABLE)",
        "HTTPError, OSError, ConnectError)",
        "whatever a lookup answers, it is one lookup that failed",
        ("tests/integration/test_bad_lookups.py",),
    ),
    Mutant(
        "a-chunk-line-without-end",
        _HTTP,
        "        self._bounds.count(size)",
        "        pass",
        "whatever is read of a lookup's answer is bounded, below urllib3",
        ("tests/unit/net/http/test_session.py::test_what_is_read_beside_the_body_is_bounded_too",),
    ),
    Mutant(
        "the-policy-is-not-asked",
        "nsqsmart/client/shared/discovery.py",
        "lambda address: is_permitted(address, config)",
        "lambda address: True",
        "address_policy is asked about learned lookups: an Admin posts nothing to one it refuses",
        (
            "tests/unit/client/admin/test_requests.py"
            "::test_a_lookup_that_the_policy_refuses_is_asked_nothing",
        ),
    ),
    Mutant(
        "learned-lookups-are-permitted",
        "nsqsmart/net/http/lookup.py",
        "if each in self._peers or self._permits(each)]",
        "if True]",
        "address_policy is asked about lookups that another lookup names",
        ("tests/unit/net/http/test_lookup.py",),
    ),
    Mutant(
        "a-receipt-unasked-for",
        "nsqsmart/client/publishing/shared_state.py",
        "if traced is None and receipt is not None:",
        "if False:",
        "a publish without trace succeeds by the two bytes OK alone",
        (
            "tests/integration/test_bad_peers.py::test_a_receipt_that_nobody_asked_for_is_no_success_of_publish_async_either",
        ),
    ),
    Mutant(
        "surplus-is-not-looked-for",
        "nsqsmart/net/pipeline.py",
        "if self._has_more_answers(self._connection):",
        "if False:",
        "an OK that came before a command was sent is not taken for its answer",
        ("tests/unit/net/test_pipeline.py",),
    ),
    Mutant(
        "a-refusal-is-forgotten",
        _ENTRY,
        "self.needed = True",
        "self.needed = False",
        "who was refused has the next call look up, though his own call ends",
        ("tests/unit/client/shared/test_directory.py",),
    ),
    Mutant(
        "an-age-holds-up-a-call",
        "nsqsmart/client/shared/directory.py",
        "if entry and entry.topology and entry.serves and self._access is WRITE:",
        "if entry and entry.topology and False:",
        "lookups that hang cost a publish no time while its nsqds answer",
        ("tests/unit/client/shared/test_directory.py", _LOOKUPS),
    ),
    Mutant(
        "failing-polls-stay-frequent",
        _ENTRY,
        "interval * 2.0**doublings",
        "interval",
        "lookups that fail are asked less and less often",
        ("tests/unit/client/shared/test_directory.py",),
    ),
    Mutant(
        "a-lookup-that-forgot-is-believed",
        _TOPOLOGY,
        "if keeps and not found and _state(answers) is TopicState.UNKNOWN:",
        "if False:",
        "the last known nsqds serve a producer while a restarted lookup has forgotten them",
        ("tests/unit/policy/test_topology.py",),
    ),
    Mutant(
        "a-remembered-nsqd-stays-for-ever",
        _TOPOLOGY,
        "if Refused(None, node.address) not in refused)",
        "if True)",
        "a remembered nsqd that an error proved gone is not used again",
        ("tests/unit/policy/test_topology.py",),
    ),
    Mutant(
        "trouble-is-told-each-time",
        _TROUBLES,
        "tell = not ended and not trouble.told and",
        "tell = not ended and",
        "one WARNING when publishing has failed for a second, not one an attempt",
        ("tests/unit/client/publishing/test_failing_topics.py",),
    ),
    Mutant(
        "one-success-hides-nothing",
        _TROUBLES,
        "return bool(self.topics) and not self._working",
        "return bool(self.topics)",
        "health says failing only while nothing succeeds",
        ("tests/unit/client/publishing/test_failing_topics.py",),
    ),
    Mutant(
        "hints-are-empty",
        "nsqsmart/client/publishing/retry.py",
        "hint=_hint(error),",
        'hint="",',
        "an error of connecting, TLS or time says what to do",
        ("tests/unit/client/publishing/test_retry.py",),
    ),
    Mutant(
        "rdy-of-none-is-taken",
        "nsqsmart/client/subscribing/request.py",
        "if connection.grant.max_rdy_count < 1:",
        "if connection.grant.max_rdy_count < 0:",
        "max_rdy_count 0 is an error that is told, not a consumer that never asks",
        (
            "tests/integration/test_bad_peers.py::test_an_nsqd_that_lets_nobody_ask_for_messages_is_told_of",
        ),
    ),
    Mutant(
        "a-turn-is-a-pool",
        "nsqsmart/policy/retry.py",
        "if isinstance(error, PoolTimeout | TurnTimeout):",
        "if isinstance(error, PoolTimeout):",
        "a keyed call that waited for its turn in vain was not sent",
        ("tests/unit/policy/test_retry.py",),
    ),
    Mutant(
        "an-original-id-is-two-numbers",
        "nsqsmart/client/messages/message.py",
        "return None if self.partition is None else layout.internal_id(self.id)",
        "return layout.internal_id(self.id)",
        "a message of an original server has no internal id",
        ("tests/unit/client/messages/test_message.py",),
    ),
    Mutant(
        "an-nsqd-passes-for-a-lookup",
        "nsqsmart/policy/answers/lookup.py",
        "if status == _NOT_FOUND and text == _NO_SUCH_PATH:",
        "if False:",
        "the HTTP port of an nsqd that is given as a lookup is told as that",
        ("tests/unit/policy/answers/test_lookup.py",),
    ),
)
