"""``nsqd`` as a program."""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nsqsmart.embedded.nsqd.authority import auth_server
from nsqsmart.embedded.nsqd.disk.storage import Storage
from nsqsmart.embedded.nsqd.hosting import OriginalTopics, StandaloneTopics
from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.tcp.session import original_commands, redesigned_commands
from nsqsmart.embedded.nsqd.telling import LookupdTeller
from nsqsmart.embedded.serving.flags import Flag, address, duration, switch, tls_version
from nsqsmart.embedded.serving.program import COMMON, read_flags, run_until_signal, say
from nsqsmart.embedded.serving.server import Scope
from nsqsmart.names import Address, Dialect

_NAME = "nsqd"
_RARE_COLLECTIONS = (100_000, 50, 1000)
_OPTIONS = frozenset(NsqdOptions.__dataclass_fields__)
_IGNORED = "accepted and ignored"


def _no_statsd(_text: str) -> str:
    """What waits for statistics must not wait for ever."""
    raise ValueError("this stand-in sends no statistics: leave the flag out, and ask /stats")


FLAGS = {
    **COMMON,
    "tcp-address": Flag(address, "host:port for clients (default 127.0.0.1:4150)"),
    "http-address": Flag(address, "host:port for HTTP clients (default 127.0.0.1:4151)"),
    "https-address": Flag(address, "host:port for HTTPS clients (default 127.0.0.1:4152)"),
    "lookupd-tcp-address": Flag(address, "an nsqlookupd to register with", repeatable=True),
    "broadcast-address": Flag(str, "the host that is told to lookup daemons"),
    "broadcast-tcp-port": Flag(int, "the TCP port that is told (default: where it listens)"),
    "broadcast-http-port": Flag(int, "the HTTP port that is told (default: where it listens)"),
    "data-path": Flag(Path, "where topics and messages are kept (default: the working directory)"),
    "node-id": Flag(int, "the node's part of message ids"),
    "worker-id": Flag(int, "the same"),
    "mem-queue-size": Flag(int, "messages a queue keeps in memory (default 10000)"),
    "sync-every": Flag(int, _IGNORED),
    "sync-timeout": Flag(duration, "how often positions are written (default 2s)"),
    "max-bytes-per-file": Flag(int, _IGNORED),
    "msg-timeout": Flag(duration, "how long a message may be in flight (default 60s)"),
    "max-msg-timeout": Flag(duration, "how long TOUCH may stretch it (default 15m)"),
    "max-msg-size": Flag(int, "bytes of one message (default 1048576)"),
    "max-body-size": Flag(int, "bytes of one command's body (default 5242880)"),
    "max-req-timeout": Flag(duration, "the longest delay of REQ and DPUB"),
    "max-heartbeat-interval": Flag(duration, "the longest interval a client may ask for"),
    "max-rdy-count": Flag(int, "the largest RDY (default 2500)"),
    "max-channel-consumers": Flag(int, "consumers of one channel (default 0, no limit)"),
    "max-conn-for-client": Flag(int, "connections of clients (default 0, no limit)"),
    "max-confirm-win": Flag(int, "confirmed intervals after an unconfirmed message"),
    "req-to-end-threshold": Flag(duration, "longer delays go through the disk"),
    "client-timeout": Flag(duration, "twice the heartbeat interval (default 60s)"),
    "tls-cert": Flag(Path, "the certificate of TLS"),
    "tls-key": Flag(Path, "its key"),
    "tls-root-ca-file": Flag(Path, "the authority that signs client certificates"),
    "tls-client-auth-policy": Flag(str, "require or require-verify"),
    "tls-required": Flag(switch, "refuse clients without TLS", switch=True),
    "tls-min-version": Flag(tls_version, "the oldest TLS: tls1.0 to tls1.3"),
    "snappy": Flag(switch, "offer snappy (default true)", switch=True),
    "deflate": Flag(switch, "offer deflate (default true)", switch=True),
    "max-deflate-level": Flag(int, "the highest level (default 6)"),
    "auth-http-address": Flag(auth_server, "an auth server", repeatable=True),
    "allow-ext-compatible": Flag(switch, "drop internal headers on plain topics", switch=True),
    "allow-sub-ext-compatible": Flag(switch, "let plain clients read extended topics", switch=True),
    "statsd-address": Flag(_no_statsd, "refused: it sends no statistics, ask /stats"),
    "e2e-processing-latency-percentile": Flag(str, _IGNORED, repeatable=True),
}
_RENAMED = {
    "worker-id": "node_id",
    "max-req-timeout": "max_requeue_delay",
    "max-conn-for-client": "max_connections",
    "max-confirm-win": "max_confirm_window",
    "req-to-end-threshold": "requeue_to_end",
    "tls-root-ca-file": "tls_root_ca",
    "tls-client-auth-policy": "tls_client_policy",
}
"""Flags whose option has another name than theirs."""


def make_options(values: Mapping[str, Any]) -> NsqdOptions:
    """The options that the flags mean."""
    named = {_RENAMED.get(name, name.replace("-", "_")): each for name, each in values.items()}
    given = {name: each for name, each in named.items() if name in _OPTIONS}
    given.setdefault("tcp_address", ("127.0.0.1", 4150))
    given.setdefault("http_address", ("127.0.0.1", 4151))
    given.setdefault("dialect", Dialect.ORIGINAL)
    given["auth_addresses"] = tuple(values.get("auth-http-address", ()))
    given.setdefault("https_address", ("127.0.0.1", 4152))
    return NsqdOptions(**given)


class NsqdProgram:
    """One nsqd, its lookup daemons and its storage."""

    def __init__(self, options: NsqdOptions, lookupds: Sequence[tuple[str, int]]) -> None:
        self._scope = Scope("nsqsmart-embedded", logging=False)
        self.nsqd = Nsqd(options, self._scope)
        node = self.nsqd.node
        limits = options.limits()
        self.topics: OriginalTopics | StandaloneTopics
        # It speaks one dialect, and must start at once: the paths of the other one stay unread.
        if options.redesigned:
            from nsqsmart.embedded.nsqd.http.redesigned import (  # noqa: PLC0415
                redesigned_nsqd_router,
            )

            self.topics = alone = StandaloneTopics(node, limits, node.loop)
            self.nsqd.offer(redesigned_commands(alone), redesigned_nsqd_router(node, alone))
        else:
            from nsqsmart.embedded.nsqd.http.original import original_nsqd_router  # noqa: PLC0415

            self.topics = topics = OriginalTopics(node, limits, node.loop, options.node_id)
            self.nsqd.offer(original_commands(topics), original_nsqd_router(node, topics))
        self._teller = LookupdTeller(node, lookupds)
        node.lookupds = [str(Address(*each)) for each in lookupds]
        self._storage = Storage(options, self.topics, self._teller)

    def start(self) -> None:
        """Load, listen, register; raises OSError."""
        nsqd, options = self.nsqd, self.nsqd.options
        self._storage.load()
        self.topics.announcer = self._storage
        nsqd.listen()
        say(_NAME, f"TCP: listening on {Address(*nsqd.tcp_address)}")
        say(_NAME, f"HTTP: listening on {Address(*nsqd.http_address)}")
        if nsqd.node.tls is not None and options.https_address is not None:
            port = nsqd.listen_https(options.https_address)
            say(_NAME, f"HTTPS: listening on {Address(options.https_address[0], port)}")
        self._teller.start(self._everything)
        nsqd.node.lookupds_changed = self._change_lookupds
        self._storage.start(nsqd.node.loop)

    def _everything(self) -> list[tuple[str, int | None, str | None]]:
        """Topics and channels, for a lookup daemon that is told for the first time."""
        told: list[tuple[str, int | None, str | None]] = []
        for shard in self.topics.local():
            number = shard.number if self.nsqd.options.redesigned else None
            told.append((shard.meta.name, number, None))
            told += [(shard.meta.name, number, name) for name in list(shard.partition.channels)]
        return told

    def _change_lookupds(self, addresses: list[str]) -> None:
        self._teller.change([address(each) for each in addresses])

    def stop(self) -> None:
        """Unregister, end every connection, save."""
        self.nsqd.node.exiting = True
        self._teller.stop()
        self.nsqd.stop(abruptly=False)
        self.nsqd.release_ports()
        self._storage.save()
        self._scope.loop.close()


def run(arguments: Sequence[str]) -> int:
    """Run until a signal; the exit code."""
    values = read_flags(_NAME, arguments, FLAGS)
    if isinstance(values, int):
        return values
    program: NsqdProgram | None = None

    def start() -> None:
        nonlocal program
        program = NsqdProgram(make_options(values), values.get("lookupd-tcp-address", ()))
        program.start()

    def stop() -> None:
        if program is not None:
            program.stop()

    # Stored messages are many and form no cycles: to look for those among them costs a quarter.
    gc.set_threshold(*_RARE_COLLECTIONS)
    return run_until_signal(_NAME, start, stop)
