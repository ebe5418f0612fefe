"""What jobs share: the Spark session, the cluster, what is said, and the exit code."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from nsqsmart import Admin, AdminConfig, errors
from nsqsmart.config import options_of
from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.spark import session
from nsqsmart.spark.requirements import check_java, check_packages
from nsqsmart.terminal import FAILED, MovingLine, exit_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = 10.0

_OURS = re.compile(r"\bnsqsmart(?:\.\w+)*\.(\w+): (.+)")
_MOST = 1000
_SHOWN = 5

_ZONE = "spark.sql.session.timeZone"
_WITHOUT_UI = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_EXCHANGES = "spark.sql.shuffle.partitions"
_SPARKS_OWN = "200"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Spark sets it where spark-submit has started the JVM before us."""


class Console:
    """Lines for people on stdout; with *as_json* on stderr, and one JSON object on stdout.

    Progress goes to stderr: one line drawn over and over on a terminal, elsewhere a line at most
    every ten seconds.
    """

    def __init__(self, *, as_json: bool, silent: bool = False) -> None:
        self._as_json = as_json
        self._silent = silent
        self._began = self._told = monotonic()
        self._line = MovingLine(sys.stderr)

    @property
    def seconds(self) -> float:
        """For how long the job runs."""
        return round(monotonic() - self._began, 1)

    def say(self, text: str) -> None:
        """One line."""
        if self._silent:
            return
        self._line.clear()
        print(text, file=sys.stderr if self._as_json else sys.stdout, flush=True)

    def progress(self, text: str) -> None:
        """How far it is."""
        if self._silent:
            return
        self._line.draw(text)
        if not self._line.live and monotonic() - self._told >= _QUIET:
            self._told = monotonic()
            print(text, file=sys.stderr, flush=True)

    def finish(self, summary: dict[str, Any]) -> int:
        """The end: *summary* for a program; returns the exit code."""
        self._line.clear()
        if self._as_json:
            print(json.dumps({**summary, "seconds": self.seconds}), flush=True)
        return 0 if summary["ok"] else 1


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
        return exit_code(error), str(error)
    text = str(error)
    if isinstance(error, OSError):
        return FAILED, text
    found = _OURS.findall(text)
    if not found:
        return FAILED, text.strip().split("\n")[0][:_MOST] or type(error).__name__
    name, reason = found[-1]
    return exit_code(getattr(errors, name, NsqError)), reason[:_MOST]


@contextmanager
def open_session(chosen: argparse.Namespace) -> Iterator[SparkSession]:
    """A session for the job; one that was there before is used and left running.

    Dates and hours are UTC's. Raises ConfigError.
    """
    check_packages()
    check_java()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    settings = {_ZONE: "UTC"}
    if active is None and _SUBMITTED not in os.environ:
        settings |= _WITHOUT_UI
    settings |= dict(chosen.conf)
    if chosen.master:
        settings["spark.master"] = chosen.master
    wrong = [name for name in settings if "_" in name or not name.startswith("spark.")]
    if wrong:
        raise ConfigError(f"--conf {wrong[0]} is no setting of Spark that can be given here")
    spark = session(
        f"nsqsmart {chosen.job}",
        **{name.replace(".", "_"): text for name, text in settings.items()},
    )
    try:
        if active is None:
            spark.sparkContext.setLogLevel("ERROR")
            _suit_one_machine(spark)
        yield spark
    finally:
        if active is None:
            spark.stop()


def _suit_one_machine(spark: SparkSession) -> None:
    """200 tasks for each exchange cost a few cores more than they give; who said else is heard."""
    here = (spark.sparkContext.master or "").startswith("local")
    if here and spark.conf.get(_EXCHANGES) == _SPARKS_OWN:
        exchanges = max(4, 2 * spark.sparkContext.defaultParallelism)
        spark.conf.set(_EXCHANGES, str(exchanges))


def admin_of(address: str | None, client: Iterable[tuple[str, str]]) -> Admin:
    """An Admin; of the client's options it takes those that it knows."""
    known = options_of(AdminConfig)
    mine: dict[str, Any] = {name: value for name, value in client if name in known}
    return Admin(address, **mine)


def check_topics(admin: Admin, topics: Sequence[str]) -> None:
    """Raise ConfigError if no lookup knows one of them, DiscoveryError if none answers."""
    known = admin.topics()
    for topic in topics:
        if topic not in known:
            near = difflib.get_close_matches(topic, known, n=1)
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            some = ", ".join(known[:_SHOWN]) or "none"
            hint = f": did you mean {near[0]}?" if near else f"; known are {some}{more}"
            raise ConfigError(f"no lookup of {admin} knows topic {topic!r}{hint}")


def source_options(client: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """The client's options as the data source takes them."""
    return {f"nsq.{name}": value for name, value in client}
