"""NSQ and Spark: a data source, a sink, and jobs.

::

    from nsqsmart.spark import session

    spark = session("orders")
    orders = (
        spark.readStream.format("nsq")
        .option("address", "nsq+lookupd://l1:4161").option("subscribe", "orders")
        .option("channel", "archive").option("spoolLocation", "/shared/spool").load()
    )

What is in it, each using only what is above it::

    requirements   PySpark and Java: are they there, and new enough?
    options        the options of source and sink, checked
    schema         a row for each message
    spool/         durable files, plans, and what was read
    source/        reading: what the driver plans, what executors do, what Spark sees
    sink/          writing
    data_source    the format ``nsq``, on source and sink; pyspark_nsqsmart registers it by name
    report/        from trace logs to a page
    jobs/          ``python -m nsqsmart.spark JOB``: archive, lag, replay, order-audit, trace, demo

It uses the front door of the client. It needs ``nsqsmart[spark]`` and Java 17.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nsqsmart.spark.requirements import check_java, check_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["for_ordered_publish", "register", "session"]

_SHIPPED = ("*.zip", "*.egg", "*.py", "*.whl")


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
    from nsqsmart.spark.data_source import NsqDataSource

    spark.dataSource.register(NsqDataSource)
    _reach_streaming(spark)


def _reach_streaming(spark: SparkSession) -> None:
    """Link what ``--py-files`` shipped to where Spark tells the streaming source to look for it.

    Spark forgets that itself (decisions#60).
    """
    from pyspark import SparkFiles

    if getattr(spark, "sparkContext", None) is None:
        return
    root = Path(SparkFiles.getRootDirectory())
    shipped = [found for pattern in _SHIPPED for found in root.glob(pattern)]
    if not shipped:
        return
    folder = root / "streaming_job"
    folder.mkdir(exist_ok=True)
    for found in shipped:
        with contextlib.suppress(FileExistsError):
            (folder / found.name).symlink_to(found)


def for_ordered_publish(
    frame: DataFrame, key: str, tasks: int, *, order_by: str | None = None
) -> DataFrame:
    """*frame*, arranged so that the sink keeps the order of each key.

    All rows of one key are in one of *tasks* tasks, sorted by the column *order_by*; without it in
    whatever order they arrive there.
    """
    arranged = frame.repartition(tasks, key)
    return arranged if order_by is None else arranged.sortWithinPartitions(order_by)
