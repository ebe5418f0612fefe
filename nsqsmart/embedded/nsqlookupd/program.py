"""``nsqlookupd`` as a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsqsmart.embedded.nsqlookupd.original import original_router
from nsqsmart.embedded.nsqlookupd.server import LookupdOptions, Nsqlookupd
from nsqsmart.embedded.serving.flags import Flag, address, duration
from nsqsmart.embedded.serving.program import COMMON, read_flags, run_until_signal, say
from nsqsmart.embedded.serving.server import Scope
from nsqsmart.names import Address, Dialect

_NAME = "nsqlookupd"
FLAGS = {
    **COMMON,
    "tcp-address": Flag(address, "host:port for nsqds (default 127.0.0.1:4160)"),
    "http-address": Flag(address, "host:port for HTTP clients (default 127.0.0.1:4161)"),
    "broadcast-address": Flag(str, "the host that is told to others (default 127.0.0.1)"),
    "inactive-producer-timeout": Flag(duration, "accepted and ignored"),
    "tombstone-lifetime": Flag(duration, "accepted and ignored"),
}


def make_options(values: Mapping[str, Any]) -> LookupdOptions:
    """The options that the flags mean."""
    return LookupdOptions(
        dialect=values.get("dialect", Dialect.ORIGINAL),
        tcp_address=values.get("tcp-address", ("127.0.0.1", 4160)),
        http_address=values.get("http-address", ("127.0.0.1", 4161)),
        broadcast_address=values.get("broadcast-address", "127.0.0.1"),
    )


class LookupdProgram:
    """One nsqlookupd, which knows what nsqds register and nothing else."""

    def __init__(self, options: LookupdOptions) -> None:
        self._scope = Scope("nsqsmart-embedded", logging=False)
        self.lookupd = lookupd = Nsqlookupd(options, self._scope)
        if options.dialect is Dialect.ORIGINAL:
            lookupd.offer(original_router(lookupd.registrations))
        else:
            # The coordinated half of it would only slow the start down.
            from nsqsmart.embedded.nsqlookupd.redesigned import (  # noqa: PLC0415
                redesigned_router,
            )

            lookupd.offer(redesigned_router(lookupd.registrations, None))

    def start(self) -> None:
        """Listen; raises OSError."""
        self.lookupd.listen()
        say(_NAME, f"TCP: listening on {Address(*self.lookupd.tcp_address)}")
        say(_NAME, f"HTTP: listening on {Address(*self.lookupd.http_address)}")

    def stop(self) -> None:
        """End every connection."""
        self.lookupd.stop()
        self.lookupd.release_ports()
        self._scope.loop.close()


def run(arguments: Sequence[str]) -> int:
    """Run until a signal; the exit code."""
    values = read_flags(_NAME, arguments, FLAGS)
    if isinstance(values, int):
        return values
    program = LookupdProgram(make_options(values))
    return run_until_signal(_NAME, program.start, program.stop)
