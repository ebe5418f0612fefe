"""What a failure means for who started the job: an exit code, and one line that says why."""

from __future__ import annotations

import re
import sys

from nsqsmart import errors
from nsqsmart.errors import NsqError, TransportError

GOOD = 0
FAILED = 1
RETRY_LATER = 75
INTERRUPTED = 130

_OURS = re.compile(r"\bnsqsmart(?:\.\w+)*\.(\w+): (.+)")
_MOST = 1000


def expected() -> tuple[type[Exception], ...]:
    """What a job may fail of; Spark's own only where Spark was loaded."""
    if "pyspark" not in sys.modules:
        return NsqError, OSError
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return NsqError, OSError, PySparkException, Py4JError


def judge(error: BaseException) -> tuple[int, str]:
    """The exit code and the line for *error*.

    Spark reports what a task raised as the text of a traceback: the last error of ours in it is
    the reason.
    """
    if isinstance(error, NsqError):
        return _code(type(error), permanent=getattr(error, "permanent", False)), str(error)
    text = str(error)
    if isinstance(error, OSError):
        return FAILED, text
    found = _OURS.findall(text)
    if not found:
        return FAILED, text.strip().split("\n")[0][:_MOST] or type(error).__name__
    name, reason = found[-1]
    return _code(getattr(errors, name, NsqError)), reason[:_MOST]


def _code(kind: type[BaseException], *, permanent: bool = False) -> int:
    later = issubclass(kind, TransportError) or getattr(kind, "retryable", False)
    return RETRY_LATER if later and not permanent else FAILED
