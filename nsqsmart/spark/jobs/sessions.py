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
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_EXCHANGES = "spark.sql.shuffle.partitions"
_SPARKS_OWN = "200"
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Spark sets it where spark-submit has started the JVM before us."""


@contextmanager
def open_session(chosen: argparse.Namespace, job: str) -> Iterator[SparkSession]:
    """A session for *job*; one that was there before is used and left running.

    Dates and hours are UTC's. Raises ConfigError.
    """
    check_packages()
    check_java()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    settings = {_ZONE: "UTC"}
    if active is None and _SUBMITTED not in os.environ:
        settings |= _QUIET
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
