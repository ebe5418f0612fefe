"""NSQ and Spark: a data source, a sink, and jobs.

::

    from nsqsmart.spark import session

    spark = session("orders")
    orders = (
        spark.readStream.format("nsq")
        .option("address", "nsq+lookupd://l1:4161").option("subscribe", "orders")
        .option("channel", "archive").option("spoolLocation", "/shared/spool").load()
    )

The pieces, from the ground: ``store`` (durable files), ``plan``, ``slots`` and ``doubt`` (what the
spool holds), ``options`` and ``schema``; ``survey`` and ``starting`` (what the servers have);
``filling`` (what an executor does), ``spooling`` (what the driver does); ``stream``, ``batch``,
``sink`` and ``source`` (what Spark sees). Only the last ones need Spark.

A room beside the client: it uses the front door. It needs ``nsqsmart[spark]`` and Java 17.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from nsqsmart.spark.requirements import check_java, check_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["for_ordered_publish", "register", "session"]


def session(app: str = "nsqsmart", **settings: str) -> SparkSession:
    """A Spark session that knows the format ``nsq``.

    Args:
        app: its name, which Spark's pages show.
        settings: Spark's own, with ``_`` for ``.``: ``spark_ui_enabled="false"``. Where no master
            is configured (``spark_master``, spark-submit, spark-defaults.conf) it runs on all
            cores of this machine.

    The workers use this Python, unless ``PYSPARK_PYTHON`` says otherwise. Raises ConfigError if
    PySpark, pyarrow or Java is missing or too old.
    """
    check_packages()
    check_java()
    from pyspark.sql import SparkSession

    # Spark would take whatever python3 is on the PATH, which has none of this.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = {name.replace("_", "."): value for name, value in settings.items()}
    builder = SparkSession.builder.appName(app)
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Let *spark* know the format ``nsq``; not needed where nsqsmart is installed.

    Raises ConfigError if PySpark or pyarrow is missing or too old.
    """
    check_packages()
    from nsqsmart.spark.shipping import reach_streaming
    from nsqsmart.spark.source import NsqDataSource

    spark.dataSource.register(NsqDataSource)
    reach_streaming(spark)


def for_ordered_publish(
    frame: DataFrame, key: str, tasks: int, *, order_by: str | None = None
) -> DataFrame:
    """*frame*, arranged so that the sink keeps the order of each key.

    All rows of one key are in one of *tasks* tasks, sorted by the column *order_by*; without it in
    whatever order they arrive there.
    """
    arranged = frame.repartition(tasks, key)
    return arranged if order_by is None else arranged.sortWithinPartitions(order_by)
