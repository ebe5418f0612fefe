"""Exit codes: what is worth another try, and what is not."""

from __future__ import annotations

import pytest

from nsqsmart.errors import (
    ConfigError,
    ConnectError,
    DiscoveryError,
    MessageRejected,
    PublishTimeout,
)
from nsqsmart.spark.jobs.runtime import judge

TASK = """Job aborted due to stage failure: Task 0 failed 1 times
Traceback (most recent call last):
  File "x.py", line 1, in read
nsqsmart.errors.ConnectError: refused
During handling of the above exception, another exception occurred:
nsqsmart.errors.%s: no usable answer
\tat org.apache.spark.Something"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 1),
        (DiscoveryError("x"), 75),
        (ConnectError("x"), 75),
        (ConnectError("x", permanent=True), 1),
        (PublishTimeout("x"), 75),
        (MessageRejected("x"), 1),
        (OSError("x"), 1),
    ],
)
def test_our_errors_have_their_codes(error: Exception, code: int) -> None:
    assert judge(error) == (code, "x")


@pytest.mark.parametrize(("name", "code"), [("DiscoveryError", 75), ("ConfigError", 1)])
def test_the_last_error_of_ours_in_a_task_is_the_reason(name: str, code: int) -> None:
    assert judge(RuntimeError(TASK % name)) == (code, "no usable answer")


def test_of_anything_else_the_first_line_is_told() -> None:
    assert judge(RuntimeError("no such table\n  at line 7")) == (1, "no such table")
