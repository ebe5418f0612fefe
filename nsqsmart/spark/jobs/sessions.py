"""The Spark session of a job."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nsqsmart.errors import ConfigError
from nsqsmart.spark import session
from nsqsmart.spark.requirements import check_java, check_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ZONE = "spark.sql.session.timeZone"
_ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # One machine has few cores, and 200 tasks for each exchange cost more than they give.
    "spark.sql.shuffle.partitions": str(max(4, 2 * (os.cpu_count() or 2))),
}


@contextmanager
def open_session(chosen: argparse.Namespace, job: str) -> Iterator[SparkSession]:
    """A session for *job*; one that was there before is used and left running.

    Dates and hours are UTC's. Raises ConfigError.
    """
    check_packages()
    check_java()
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    known = SparkConf()
    active = SparkSession.getActiveSession()
    settings = {_ZONE: "UTC"}
    if not known.contains("spark.master") and active is None:
        settings |= {
            name: value for name, value in _ON_ONE_MACHINE.items() if not known.contains(name)
        }
    settings |= dict(chosen.conf)
    if chosen.master:
        settings["spark.master"] = chosen.master
    wrong = [name for name in settings if "_" in name or not name.startswith("spark.")]
    if wrong:
        raise ConfigError(f"--conf {wrong[0]} is no setting of Spark that can be given here")
    spark = session(
        f"nsqsmart {job}", **{name.replace(".", "_"): text for name, text in settings.items()}
    )
    try:
        if active is None:
            spark.sparkContext.setLogLevel("ERROR")
        yield spark
    finally:
        if active is None:
            spark.stop()
