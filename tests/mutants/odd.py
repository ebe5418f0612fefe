"""What is promised where networks, servers and programs fail in ways that are rare."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HANDSHAKE = "nsqsmart/net/handshake.py"
_STREAMS = "nsqsmart/wire/streams.py"
_TLS = "nsqsmart/net/tls.py"
_HANDSHAKES = "tests/unit/net/test_handshake_odd.py"
_IDLE = "tests/unit/wire/test_idle_streams.py"

ODD: tuple[Mutant, ...] = (
    Mutant(
        "padding-without-end",
        _STREAMS,
        "self._idle = 0 if piece else _check_idle(self._idle + len(chunk))",
        "self._idle = 0",
        "snappy input that gives no output ends the connection after 1 MiB",
        (_IDLE,),
    ),
    Mutant(
        "empty-blocks-without-end",
        _STREAMS,
        "self._idle = 0 if piece else _check_idle(self._idle + len(data))",
        "self._idle = 0",
        "deflate input that gives no output ends the connection after 1 MiB",
        (_IDLE,),
    ),
    Mutant(
        "output-does-not-count",
        _STREAMS,
        "self._idle = 0 if piece else _check_idle(self._idle + len(chunk))",
        "self._idle = _check_idle(self._idle + len(chunk))",
        "a stream that gives output now and then may go on for ever",
        (_IDLE,),
    ),
    Mutant(
        "a-snappy-chunk-of-any-kind",
        _STREAMS,
        "        if kind not in _DATA_CHUNKS and kind < _FIRST_SKIPPABLE:",
        "        if False:",
        "a snappy chunk of a reserved kind ends the connection",
        ("tests/unit/wire/test_streams.py",),
    ),
    Mutant(
        "a-snappy-chunk-of-any-size",
        _STREAMS,
        "        if length > _MAX_CHUNK:",
        "        if False:",
        "nothing is held for a snappy chunk beyond what the format allows",
        ("tests/unit/wire/test_streams.py",),
    ),
    Mutant(
        "a-bomb-in-one-piece",
        _STREAMS,
        "self._decompressor.decompress(data, _PIECE)",
        "self._decompressor.decompress(data)",
        "what is decompressed comes in pieces of bounded size",
        ("tests/unit/wire/test_streams.py::test_a_bomb_comes_out_in_pieces",),
    ),
    Mutant(
        "a-stream-may-end",
        _STREAMS,
        "            if self._decompressor.eof:",
        "            if False:",
        "bytes behind the end of a deflate stream end the connection",
        ("tests/unit/wire/test_streams.py::test_a_deflate_stream_that_ends",),
    ),
    Mutant(
        "an-answer-to-identify-of-any-size",
        _HANDSHAKE,
        "FrameDecoder(min(max_frame_size, _MOST_IN_HANDSHAKE))",
        "FrameDecoder(max_frame_size)",
        "an answer to IDENTIFY or AUTH is 64 KiB at most",
        (_HANDSHAKES,),
    ),
    Mutant(
        "nesting-ends-the-program",
        "nsqsmart/wire/identify.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        "an answer to IDENTIFY that nests too deep is an error of the handshake",
        (_HANDSHAKES,),
    ),
    Mutant(
        "nesting-behind-the-secret-ends-the-program",
        _HANDSHAKE,
        "    except (ValueError, RecursionError):\n        return False",
        "    except ValueError:\n        return False",
        "an answer to AUTH that nests too deep is an error of the handshake",
        (_HANDSHAKES,),
    ),
    Mutant(
        "a-count-of-any-kind",
        "nsqsmart/wire/identify.py",
        "(isinstance(value, int) and not 0 <= value <= _MAX_INT)",
        "False",
        "counts that no server can mean are refused",
        (_HANDSHAKES,),
    ),
    Mutant(
        "an-error-of-any-length",
        "nsqsmart/wire/answers.py",
        '"backslashreplace"))[:_MAX_TEXT]',
        '"backslashreplace"))',
        "of a long error only the beginning is kept",
        ("tests/unit/wire/test_answers.py",),
    ),
    Mutant(
        "a-bad-certificate-is-tried-again",
        _TLS,
        "permanent=untrusted",
        "permanent=False",
        "a certificate that is refused is refused for good: no retry mends it",
        (_HANDSHAKES,),
    ),
    Mutant(
        "an-expired-certificate-will-do",
        _TLS,
        "    context.minimum_version = _VERSIONS[config.tls_min_version]",
        "    context.check_hostname = False\n    context.verify_mode = ssl.CERT_NONE",
        "a certificate that has expired, or is for another number, is refused",
        (_HANDSHAKES,),
    ),
    Mutant(
        "tls-of-the-last-century",
        _TLS,
        "    context.minimum_version = _VERSIONS[config.tls_min_version]",
        "    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED\n"
        '    context.set_ciphers("ALL:@SECLEVEL=0")',
        "a server that knows TLS 1.1 at most is refused",
        (_HANDSHAKES,),
    ),
    Mutant(
        "the-secret-before-tls",
        _HANDSHAKE,
        "        _secure(talk, transport, greeting, grant)\n",
        "        grant.tls and _authorize(talk, greeting, grant, socket.peer)\n"
        "        _secure(talk, transport, greeting, grant)\n",
        "the secret goes to nobody whose certificate was not verified before",
        (_HANDSHAKES,),
    ),
    Mutant(
        "openssl-asks-the-terminal",
        _TLS,
        '    raise ConfigError(\n        "tls_key is encrypted',
        '    return "" and ConfigError(\n        "tls_key is encrypted',
        "a key with a pass phrase is an error that says what to do, not a question",
        (_HANDSHAKES,),
    ),
)
