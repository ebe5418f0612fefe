"""How the tests are spread over processes (pytest-xdist); tests/conftest.py has these hooks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.helpers import ROOT

# Most tests wait for a server or a thread: more workers than cores.
WORKERS_PER_CORE = 3
MOST_WORKERS = 32

# Other files have one worker each. These share what is costly: a JVM with a Spark session, which
# costs 9 s of CPU to start, and Django with PostgreSQL.
SHARING = {
    "tests/rooms/spark/jobs/": "spark",
    "tests/rooms/spark/test_spark.py": "spark",
    "tests/rooms/spark/test_failures_spark.py": "spark",
    "tests/rooms/contrib/django/test_project.py": "django-project",
    "tests/rooms/contrib/django/test_docs.py": "django-project",
    "tests/rooms/contrib/django/": "django",
}
# What begins with these takes longest, so it begins first, in this order; below, the long tests.
FIRST = (
    "spark",
    "django-project",
    "django",
    "tests/rooms/spark/test_failures_kills.py::test_the_driver",
    "tests/rooms/spark/jobs/test_demo.py::",
    "tests/rooms/spark/test_docs.py::",
    "tests/rooms/spark/jobs/test_submit.py::",
    "tests/rooms/contrib/django/test_project.py::",
    "tests/rooms/spark/test_failures_kills.py::",
)

# Long tests that share a built site.
LONG_TOGETHER = {"tests/test_docs_build.py"}

# Two processes compile what all workers then load.
HALVES = (("tests/unit", "tests/architecture"), ("tests/integration", "tests/rooms"))


def share_bytecode() -> None:
    """Let a run keep compiled modules, where PYTHONDONTWRITEBYTECODE says otherwise too.

    Else each of its 700 processes compiles the package, and each worker all tests: two minutes of
    CPU. Git ignores the folders ``__pycache__``.
    """
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Workers for ``-n auto``: none for a single file, and none for real servers.

    One process runs a file sooner. Clusters of real servers have fixed ports.
    """
    single = len(config.args) == 1 and config.args[0].partition("::")[0].endswith(".py")
    real = any(os.environ.get(f"NSQSMART_TEST_{each}_BIN") for each in ("NSQ", "YZ"))
    return 0 if single or real else min(WORKERS_PER_CORE * (os.cpu_count() or 1), MOST_WORKERS)


def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """On the first run, compile the tests once and not in every worker."""
    if any((ROOT / "tests" / "unit" / "wire" / "__pycache__").glob("*.pyc")):
        return
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-qq"]
    halves = [
        subprocess.Popen([*command, *half], cwd=ROOT, stdout=subprocess.DEVNULL) for half in HALVES
    ]
    for half in halves:
        half.wait()


class ByWhatTheyShare(LoadScopeScheduling):
    """Tests of one file run in one worker, with its fixtures; long tests run where there is room.

    By path, for xdist's own groups change ids in a way that pytest 9 does not see.
    """

    def _split_scope(self, nodeid: str) -> str:
        """The unit that the test belongs to."""
        path = nodeid.partition("::")[0]
        if self.config.option.markexpr == "long" and path not in LONG_TOGETHER:
            return nodeid
        return next((unit for prefix, unit in SHARING.items() if path.startswith(prefix)), path)

    def _assign_work_unit(self, node: object) -> None:
        """Give the next unit to *node*, the longest ones first."""
        for first in reversed(FIRST):
            for unit in [each for each in reversed(self.workqueue) if each.startswith(first)]:
                self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByWhatTheyShare:
    """Tests that share something run in one worker, whatever ``--dist`` says."""
    return ByWhatTheyShare(config, log)
