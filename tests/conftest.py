"""Fixtures and checks that hold for every test."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.distribution import (
    pytest_xdist_auto_num_workers,
    pytest_xdist_make_scheduler,
    pytest_xdist_setupnodes,
    share_bytecode,
)
from tests.helpers import ROOT, eventually
from tests.lock_audit import audited

__all__ = [
    "pytest_xdist_auto_num_workers",
    "pytest_xdist_make_scheduler",
    "pytest_xdist_setupnodes",
]

# No timed tests: a busy machine must not turn an example red.
_EXAMPLES = 1000 if os.environ.get("NSQSMART_TEST_SOAK") else 40
hypothesis.settings.register_profile(
    "nsqsmart", deadline=None, print_blob=True, max_examples=_EXAMPLES
)
# Coverage counts what is certain to run: the same few examples every time.
hypothesis.settings.register_profile("coverage", deadline=None, max_examples=10, derandomize=True)
hypothesis.settings.load_profile("nsqsmart")

# What a shell starts in the background ignores SIGINT, and so would all programs of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)

share_bytecode()
gc.disable()  # until all tests are collected

_FAILED = pytest.StashKey[bool]()
_KEPT = ("NSQSMART_TEST_", "NSQSMART_REQUIRE")
_DESCRIPTORS = Path("/proc/self/fd")


def pytest_collection_finish() -> None:
    """Spare the collector the 8,000 tests: 65 ms for each ``gc.collect()`` of a test."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person running the tests has set for their programs is not for the tests."""
    for name in os.environ:
        if name.startswith("NSQSMART_") and not name.startswith(_KEPT):
            monkeypatch.delenv(name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Remember that the test failed: its traceback may hold sockets, which is no leak."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def _locks(_own_environment: None) -> Iterator[None]:
    """With NSQSMART_TEST_LOCKS every test also fails for what it calls under a lock."""
    if not os.environ.get("NSQSMART_TEST_LOCKS"):
        yield
        return
    with audited() as audit:
        yield
    if audit.violations:
        pytest.fail("\n".join(audit.violations))


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """No integration test may leave a thread of ours or a socket behind."""
    if not request.path.is_relative_to(ROOT / "tests" / "integration"):
        yield
        return
    threads, sockets = our_threads(), open_sockets()
    yield
    if request.node.stash.get(_FAILED, False):
        return
    try:
        # Counted: a server that a test restarts listens on new sockets.
        eventually(
            lambda: our_threads() <= threads and len(open_sockets()) <= len(sockets), timeout=5
        )
    except AssertionError:
        left = sorted(thread.name for thread in our_threads() - threads)
        pytest.fail(f"left behind: threads {left}, sockets {open_sockets() - sockets}")


def our_threads() -> set[threading.Thread]:
    """The live threads that nsqsmart started.

    One that an interrupt kept from starting is listed for ever, but it never runs.
    """
    every = threading.enumerate()
    return {each for each in every if each.name.startswith("nsqsmart") and each.is_alive()}


def open_sockets() -> set[str]:
    """The sockets of this process, as ``socket:[inode]``; empty where there is no /proc."""
    if not _DESCRIPTORS.is_dir():
        return set()
    links = set()
    for descriptor in _DESCRIPTORS.iterdir():
        try:
            links.add(str(descriptor.readlink()))
        except OSError:  # closed between the listing and the look
            continue
    return {link for link in links if link.startswith("socket:")}
