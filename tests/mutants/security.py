"""What is promised of secrets, strangers and bodies."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HANDSHAKE = "nsqsmart/net/handshake.py"
_TLS = "nsqsmart/net/transport.py"

SECURITY: tuple[Mutant, ...] = (
    Mutant(
        "who-verifies-nothing-hears-nothing",
        "nsqsmart/net/transport.py",
        "        _warn_of_trust()\n",
        "",
        "a client that verifies no certificate says so in the log",
        ("tests/unit/net/test_tls.py::test_that_nothing_is_verified_is_logged_once",),
    ),
    Mutant(
        "clear-text-counts-inside-tls",
        _HANDSHAKE,
        "tls.shake_hands(transport.socket, talk.deadline, talk.take_rest())",
        "tls.shake_hands(transport.socket, talk.deadline)",
        "what came in the clear is never taken for what is said inside TLS",
        ("tests/unit/net/test_handshake_tls.py",),
    ),
    Mutant(
        "tls-has-an-hour-more",
        _HANDSHAKE,
        "tls.shake_hands(transport.socket, talk.deadline, talk.take_rest())",
        "tls.shake_hands(transport.socket, talk.deadline + 3600, talk.take_rest())",
        "a TLS handshake keeps the deadline",
        ("tests/unit/net/test_handshake_tls.py",),
    ),
    Mutant(
        "the-host-name-is-not-verified",
        _TLS,
        "    context.minimum_version = _VERSIONS[config.tls_min_version]",
        "    context.check_hostname = False",
        "a server whose certificate is for another name is refused",
        ("tests/unit/net/test_handshake_tls.py",),
    ),
    Mutant(
        "the-certificate-is-not-verified",
        _TLS,
        "    if config.tls_insecure_skip_verify:",
        "    if not config.tls_insecure_skip_verify:",
        "a certificate is verified unless tls_insecure_skip_verify says otherwise",
        ("tests/unit/net/test_handshake_tls.py",),
    ),
    Mutant(
        "the-lowest-version-is-ignored",
        _TLS,
        "    context.minimum_version = _VERSIONS[config.tls_min_version]\n",
        '    context.minimum_version = _VERSIONS["tls1.2"]\n',
        "a server below tls_min_version is refused",
        ("tests/unit/net/test_handshake_tls.py",),
    ),
    Mutant(
        "no-tls-will-do",
        _HANDSHAKE,
        "    if offer.tls != grant.tls:",
        "    if grant.tls and not offer.tls:",
        "where TLS was asked for and is not offered nothing else is sent",
        ("tests/unit/net/test_handshake.py",),
    ),
    Mutant(
        "the-secret-in-the-clear",
        _HANDSHAKE,
        "    if not (greeting.offer.tls or greeting.config.allow_plaintext_auth or",
        "    if not (True or greeting.offer.tls or",
        "auth_secret crosses no network in the clear",
        ("tests/unit/net/test_handshake.py::test_the_secret_crosses_no_network_in_the_clear",),
    ),
    Mutant(
        "the-secret-unasked",
        _HANDSHAKE,
        "    if not grant.auth_required:\n        return",
        "    if not grant.auth_required and not secret:\n        return",
        "the secret goes to no server that does not ask for it",
        ("tests/unit/net/test_handshake.py::test_the_secret_goes_to_nobody_who_does_not_ask",),
    ),
    Mutant(
        "a-body-in-the-record-of-a-failed-handler",
        "nsqsmart/client/consuming/workers.py",
        'log.error("handler failed on %r", message, exc_info',
        'log.error("handler failed on %r %r", message, message.body, exc_info',
        "no log record holds a body",
        ("tests/integration/test_unsaid.py",),
    ),
    Mutant(
        "a-body-in-the-repr-of-a-message",
        "nsqsmart/client/messages/message.py",
        "{len(self.body)} B>",
        "{self.body!r}>",
        "no log record holds a body",
        ("tests/integration/test_unsaid.py",),
    ),
    Mutant(
        "a-body-in-a-publish-error",
        "nsqsmart/client/publishing/call.py",
        "return publish_error(self._publication.topic, retry, error, now=monotonic())",
        "return publish_error(repr(self._publication), retry, error, now=monotonic())",
        "no error holds a body",
        ("tests/integration/test_unsaid.py",),
    ),
)
