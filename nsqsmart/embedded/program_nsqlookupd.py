"""``nsqlookupd`` as a program."""

from __future__ import annotations

from collections.abc import Sequence

from nsqsmart.embedded.faults import FaultBook
from nsqsmart.embedded.flags import Flag, address, duration
from nsqsmart.embedded.lookupd_original import original_router
from nsqsmart.embedded.loop import Loop
from nsqsmart.embedded.nsqlookupd import LookupdOptions, Nsqlookupd
from nsqsmart.embedded.program import COMMON, read_flags, run_until_signal, say
from nsqsmart.names import Dialect

_NAME = "nsqlookupd"
_FLAGS = {
    **COMMON,
    "tcp-address": Flag(address, "host:port for nsqds (default 127.0.0.1:4160)"),
    "http-address": Flag(address, "host:port for HTTP clients (default 127.0.0.1:4161)"),
    "broadcast-address": Flag(str, "the host that is told to others (default 127.0.0.1)"),
    "inactive-producer-timeout": Flag(duration, "accepted and ignored"),
    "tombstone-lifetime": Flag(duration, "accepted and ignored"),
}


def run(arguments: Sequence[str]) -> int:
    """Run until a signal; the exit code."""
    values = read_flags(_NAME, arguments, _FLAGS)
    if isinstance(values, int):
        return values
    dialect = values.get("dialect", Dialect.ORIGINAL)
    options = LookupdOptions(
        dialect=dialect,
        tcp_address=values.get("tcp-address", ("127.0.0.1", 4160)),
        http_address=values.get("http-address", ("127.0.0.1", 4161)),
        broadcast_address=values.get("broadcast-address", "127.0.0.1"),
    )
    loop = Loop("nsqsmart-embedded")
    lookupd = Nsqlookupd(options, loop, FaultBook(), None)

    def start() -> None:
        if dialect is Dialect.ORIGINAL:
            lookupd.router = original_router(lookupd.registrations)
        else:
            # The coordinated half of it would only slow the start down.
            from nsqsmart.embedded.lookupd_redesigned import (  # noqa: PLC0415
                redesigned_router,
            )

            lookupd.router = redesigned_router(lookupd.registrations, None)
        lookupd.listen()
        say(_NAME, f"TCP: listening on {_shown(lookupd.tcp_address)}")
        say(_NAME, f"HTTP: listening on {_shown(lookupd.http_address)}")

    def stop() -> None:
        lookupd.stop()
        loop.close()

    return run_until_signal(_NAME, start, stop)


def _shown(where: tuple[str, int]) -> str:
    return f"[{where[0]}]:{where[1]}" if ":" in where[0] else f"{where[0]}:{where[1]}"
