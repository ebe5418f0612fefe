"""Every program of nsqsmart/examples runs, says what it should, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import MessageRejected
from nsqsmart.examples import nightly
from tests.helpers import PACKAGE, ROOT

PRINTED: Final = {
    "orders": {
        '{"id":1,"fruit":"apple"} at attempt 1',
        '{"id":2,"fruit":"pear"} at attempt 1',
        '{"id":3,"fruit":"plum"} at attempt 1',
        "3 finished",
    },
    "ordered": {f"{customer} ordered paid sent" for customer in ("anna", "bert", "cleo")},
    "batches": {"250 finished, (250,) stored"},
    "dead_letters": {"charged 12", "given up: twelve"},
    "nightly": {"stored"},
    "traced": {
        *(f"{step} trace id 7" for step in ("published", "received", "started", "finished")),
        "got two apples",
        "stored in partition 0",
    },
    "pulling": {"1000 stored"},
}
FOR_REDESIGNED = {"ordered", "traced"}


def run(name: str, url: str = "") -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NSQSMART_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"nsqsmart.examples.{name}"],
        env=kept | {"PYTHONPATH": str(ROOT)} | ({"NSQSMART_URL": url} if url else {}),
        capture_output=True,
        text=True,
        timeout=50,
    )


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_with_nothing_else(name):
    done = run(name)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == PRINTED[name]


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - FOR_REDESIGNED))
def test_an_example_runs_on_a_cluster_of_yours(name):
    with Cluster(dialect="original") as cluster:
        done = run(name, cluster.url)
        assert (done.returncode, done.stderr) == (0, "")
        assert set(done.stdout.splitlines()) == PRINTED[name]
        assert len(cluster.log)  # it was this one


def test_every_example_is_tried_and_named():
    folder = PACKAGE / "examples"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "shared"}
    assert names == PRINTED.keys()
    front = (folder / "__init__.py").read_text()
    assert all(f"``{name}``" in front for name in names)


def test_the_nightly_job_tells_cron_to_try_again():
    with Cluster(nsqds=1) as cluster:  # whose topics an operator makes
        done = run("nightly", cluster.url)
    assert (done.returncode, done.stdout) == (75, "")
    assert done.stderr.startswith("not_sent after ")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (nsqsmart.PublishError("no answer", outcome=nsqsmart.Outcome.UNCERTAIN), 75),
        (MessageRejected("too large", outcome=nsqsmart.Outcome.REJECTED), 1),
    ],
)
def test_the_nightly_job_goes_by_what_is_true(error, code, capsys):
    assert nightly.act_on(error) == code
    assert error.outcome in capsys.readouterr().err
