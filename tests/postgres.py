"""A PostgreSQL of its own for the tests, where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.helpers import eventually

_USER = "postgres"


def find_programs() -> Path | None:
    """The folder of initdb and postgres: on the PATH, or where Debian has it."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return places[-1].parent if places else None


def why_not() -> str | None:
    """Why there is none, if so; a failure instead where NSQSMART_REQUIRE names it."""
    reason = None
    if find_programs() is None:
        reason = "initdb is not installed"
    elif os.getuid() == 0 and _user() is None:
        reason = f"PostgreSQL does not run as root, and there is no user {_USER}"
    if reason and "postgres" in os.environ.get("NSQSMART_REQUIRE", ""):
        pytest.fail(f"NSQSMART_REQUIRE names postgres: {reason}")
    return reason


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(_USER)
    except KeyError:
        return None


@contextmanager
def run_postgres() -> Iterator[str]:
    """The folder of its socket, which is the host to connect to, as user and database "postgres".

    It listens nowhere else, and is gone with the block.
    """
    programs = find_programs()
    assert programs is not None
    # A folder of pytest's is for this user alone.
    home = Path(tempfile.mkdtemp(prefix="nsq-pg-"))
    other = {}
    user = _user()
    if os.getuid() == 0 and user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
        other = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = home / "data"
    make = [programs / "initdb", "-D", data, "-U", _USER, "-A", "trust", "-N", "-E", "UTF8"]
    with (home / "output").open("wb") as output:
        subprocess.run(make, check=True, stdout=output, stderr=output, cwd=home, **other)
        flags = ["-k", home, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off"]
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *flags],
            stdout=output,
            stderr=output,
            cwd=home,
            **other,
        )
        try:
            ask = [programs / "pg_isready", "-q", "-h", home]
            eventually(lambda: subprocess.run(ask).returncode == 0, 60, "PostgreSQL", 0.1)
            yield str(home)
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            shutil.rmtree(home, ignore_errors=True)
