"""docs/migrating.md: the programs before and after say the same, and the options it names exist.

The ones after are run by tests/test_readme.py too, as every block of ``python``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from nsqsmart.config import ConsumerConfig, ProducerConfig
from nsqsmart.config.table import options_of
from nsqsmart.embedded import Cluster
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "migrating.md").read_text()
BEFORE = dict(re.findall(r"```py\n# before: (\w+)\n(.*?)```", PAGE, re.DOTALL))
PRINTED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
ADDRESS = "127.0.0.1:4150"
KNOWN = options_of(ProducerConfig) | options_of(ConsumerConfig)
# Arguments of calls, not options.
ARGUMENTS = {"address", "delay", "timeout", "backoff", "batch_handler"}


@pytest.fixture
def python_of(monkeypatch):
    """The interpreter of an environment that has an old library: made once, kept in .benchmarks."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import environments

    def find(name):
        try:
            return environments.command_of(name, environments.CACHE)[:2]
        except environments.MissingPeer as error:
            reason = f"{name} could not be installed: {error}"
            if "peers" in os.environ.get("NSQSMART_REQUIRE", ""):
                pytest.fail(f"NSQSMART_REQUIRE names peers: {reason}")
            pytest.skip(reason)

    yield find
    if "environments" not in before:
        del sys.modules["environments"]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["pynsq", "gnsq"])
def test_the_old_program_says_what_the_new_one_says(name, python_of, tmp_path):
    python = python_of(name)
    with Cluster(nsqds=1, dialect="original") as cluster:
        host, port = cluster.nsqds[0].tcp_address
        assert ADDRESS in BEFORE[name]
        done = subprocess.run(
            [*python, "-c", BEFORE[name].replace(ADDRESS, f"{host}:{port}")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=50,
        )
        stored = {entry.body for entry in cluster.stored("orders")}
    assert (done.returncode, done.stdout) == (0, PRINTED[0]), done.stderr
    assert stored == {b"apples", b"pears", b"rubbish"}


def test_both_libraries_have_a_program_and_the_output_is_one():
    assert list(BEFORE) == ["pynsq", "gnsq"]
    assert PRINTED == [PRINTED[0]] * 2


def cells(column):
    """What a column of the tables says, row by row."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [re.split(r" \| ", row.strip("| "))[column] for row in rows]


def test_every_option_the_tables_send_people_to_exists():
    named = {name for cell in cells(1) for name in re.findall(r"\b([a-z_]{4,})=", cell)}
    assert named - ARGUMENTS <= set(KNOWN)
    assert {"max_attempts", "on_giving_up", "default_requeue_delay"} <= named


@pytest.mark.parametrize("name", ["max_in_flight", "max_backoff_duration", "default_requeue_delay"])
def test_a_default_is_that_of_the_code(name):
    said = {text for cell in cells(1) for text in re.findall(rf"\b{name}=([\d.]+)", cell)}
    assert {float(text) for text in said} == {KNOWN[name].default}
