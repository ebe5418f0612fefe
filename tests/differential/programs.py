"""An nsqd as a program: the real one, or the embedded stand-in, with the same flags."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.helpers import eventually
from tests.programs import free_ports

BINARIES = {"original": "NSQSMART_TEST_NSQ_BIN", "redesigned": "NSQSMART_TEST_YZ_BIN"}
# Of the redesigned one; the stand-in has neither metrics nor log files.
_REAL_ONLY = {
    "original": [],
    "redesigned": ["-broadcast-interface=lo", "-worker-id=1", "-log-level=1", "-log-dir={folder}"],
}


class Program(NamedTuple):
    """A running nsqd."""

    tcp: tuple[str, int]
    http: tuple[str, int]


def real_folder(dialect: str) -> Path | None:
    """Where the tester says the real programs are."""
    folder = os.environ.get(BINARIES[dialect])
    return Path(folder) if folder else None


@contextmanager
def nsqd(dialect: str, *, real: bool) -> Iterator[Program]:
    """Run one until the end of the block; standing alone, with an empty data path."""
    with tempfile.TemporaryDirectory(prefix="nsqsmart-") as folder:
        tcp, http, metric = (("127.0.0.1", port) for port in free_ports(3))
        flags = [
            f"-tcp-address={tcp[0]}:{tcp[1]}",
            f"-http-address={http[0]}:{http[1]}",
            "-broadcast-address=127.0.0.1",
            f"-data-path={folder}",
        ]
        if real:
            found = real_folder(dialect)
            assert found is not None
            command = [str(found / "nsqd"), *flags]
            command += [flag.format(folder=folder) for flag in _REAL_ONLY[dialect]]
            if dialect == "redesigned":
                command.append(f"-metric-address={metric[0]}:{metric[1]}")
        else:
            command = [sys.executable, "-m", "nsqsmart.embedded", "nsqd", *flags]
            command.append(f"-dialect={dialect}")
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
        )
        try:
            eventually(lambda: accepts(tcp) and accepts(http), what=f"{command[0]} listens")
            yield Program(tcp, http)
        finally:
            process.kill()
            process.wait()


def accepts(address: tuple[str, int]) -> bool:
    """Whether a server listens there."""
    try:
        socket.create_connection(address, 1).close()
    except OSError:
        return False
    return True
