"""What every test may use."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "nsqsmart"
# .ci/soak sets it: what repeats in the hope of a rare case does so at its full size.
SOAK = os.environ.get("NSQSMART_TEST_SOAK") == "1"


def eventually(
    condition: Callable[[], T], timeout: float = 10, what: str = "", every: float = 0.005
) -> T:
    """Return the first true value of *condition*, or fail after *timeout* seconds.

    Instead of a sleep: as short as the machine allows, and it says what was awaited. What takes
    long is looked at more rarely, for the others need the CPU: after a second every 50 ms.
    """
    pause = threading.Event()
    begun = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - begun
        if waited >= timeout:
            awaited = what or getattr(condition, "__name__", "the condition")
            raise AssertionError(f"{awaited} did not come true in {timeout} s: {value!r}")
        pause.wait(max(every, min(waited / 20, 0.05)))
    return value
