"""An option that nothing reads is a promise that nothing keeps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nsqsmart.config import KINDS, options_of
from tests.helpers import PACKAGE, ROOT
from tests.typed_options import keywords, name_of, written

READERS = "\n".join(
    path.read_text() for floor in ("net", "client") for path in (PACKAGE / floor).rglob("*.py")
)


@pytest.mark.parametrize("name", sorted({name for kind in KINDS for name in options_of(kind)}))
def test_every_option_is_read(name):
    assert re.search(rf"config\.{name}\b", READERS)


def test_the_keywords_that_type_checkers_know_are_those_of_the_table():
    """Made anew by ``python -m tests.typed_options``."""
    assert written() == {name_of(kind): keywords(kind) for kind in KINDS}


USES = {
    "nsqsmart.Producer(A, publish_timeout=5, sharding=lambda key, count: 0, spool=Path('x'))": "",
    "nsqsmart.Producer(A, publish_timeout='250ms', address_map={'a': 'b'})": "",
    "nsqsmart.Producer(A, publish_timout=5)": "call-arg",
    "nsqsmart.Producer(A, pool_size='many')": "arg-type",
    "nsqsmart.Consumer('t', 'c', print, address=A, workers=3, msg_timeout=60.5)": "",
    "nsqsmart.Consumer('t', 'c', print, address=A, wrkers=3)": "call-arg",
    "nsqsmart.PullSubscription(A, 't', 'c', max_in_flight=3)": "",
    "nsqsmart.PullSubscription(A, 't', 'c', max_inflight=3)": "call-arg",
    "nsqsmart.Admin(A, admin_timeout=3).stats().topics[0].depth": "",
    "nsqsmart.Admin(A, publish_timeout=3)": "call-arg",
    "nsqsmart.publish('t', b'x', key='k', timeout=1)": "",
    "nsqsmart.publish('t', b'x', kee='k')": "call-arg",
    "nsqsmart.Producer(A).publish_json('t', {}, tme=1)": "call-arg",
    "nsqsmart.Publisher(A)": "attr-defined",
}


@pytest.mark.long
def test_mypy_refuses_what_a_client_would(tmp_path: Path):
    pytest.importorskip("mypy")
    lines = ["from pathlib import Path", "import nsqsmart", "A = 'nsq://127.0.0.1:4150'", *USES]
    file = tmp_path / "uses.py"
    file.write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", file]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    found = dict(re.findall(r"uses\.py:(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE))
    told = {use: found.get(str(number), "") for number, use in enumerate(USES, start=4)}
    assert told == USES, said
