"""Spark's own ways to read twice, and its ways to be started: executors, zips, tables."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

from nsqsmart.embedded import Cluster
from tests.helpers import PACKAGE, ROOT, eventually
from tests.rooms.spark.submitted import HERE, Driver, java_or_skip, spark_home
from tests.rooms.spark.test_spark import AWAIT, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(500)]

Publish = Callable[[int], list[bytes]]
one_dialect = pytest.mark.parametrize("cluster", ["redesigned"], indirect=True)


@pytest.fixture
def query(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Query:
    return Query(spark, cluster, tmp_path)


@pytest.fixture
def driver(cluster: Cluster, tmp_path: Path) -> Driver:
    java_or_skip()
    return Driver(cluster.url, tmp_path)


@one_dialect
def test_three_actions_on_a_batch_see_the_same(query: Query, publish: Publish) -> None:
    sent = publish(300)
    counts: list[int] = []
    rows: list[bytes] = []

    def look(frame: DataFrame, _batch: int) -> None:
        counts.extend([frame.count(), frame.filter("length(value) > 0").count()])
        rows.extend(bytes(row.value) for row in frame.select("value").collect())

    running = (
        query.stream()
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", str(query.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert running.awaitTermination(AWAIT)
    assert sorted(rows) == sent
    assert sum(counts[::2]) == sum(counts[1::2]) == len(sent)


@one_dialect
def test_a_stream_in_union_with_itself_has_every_row_twice(query: Query, publish: Publish) -> None:
    sent = publish(300)
    frame = query.stream()
    assert query.run(frame.union(frame)) == sorted(sent * 2)


@one_dialect
def test_a_spool_that_takes_no_more_fails_the_query_and_loses_nothing(
    spark: SparkSession, query: Query, publish: Publish, cluster: Cluster, tmp_path: Path
) -> None:
    """A disk that is full when the slots are written; the tasks fail before FIN, all four times."""
    sent = publish(300)
    spool = tmp_path / "spool"
    planned = query.start()
    assert planned.awaitTermination(AWAIT)
    assert query.rows() == sent
    # Root writes in any folder: what stands for a full disk is a file where a folder should be.
    sent += publish(100)
    (source,) = spool.iterdir()
    (source / "epoch-000000002").write_bytes(b"")
    with pytest.raises(Exception, match="Not a directory|File exists|NotADirectory"):
        query.run()
    (source / "epoch-000000002").unlink()
    assert query.run() == sent


@pytest.mark.long
@one_dialect
def test_two_executors_pull(driver: Driver, publish: Publish) -> None:
    sent = publish(2000)
    driver.on_two_executors()
    driver.finish()
    assert driver.rows() == sorted(sent)
    assert driver.pullers() == 2


@pytest.mark.long
@one_dialect
def test_a_shipped_zip_reaches_the_source(driver: Driver, publish: Publish, tmp_path: Path) -> None:
    """``spark-submit --py-files`` where nsqsmart is not installed."""
    sent = publish(300)
    shipped = tmp_path / "nsqsmart.zip"
    with zipfile.ZipFile(shipped, "w") as archive:
        for file in [*PACKAGE.rglob("*.py"), ROOT / "pyspark_nsqsmart.py"]:
            archive.write(file, str(file.relative_to(ROOT)))
    home = spark_home(tmp_path / "home")
    submit = [str(home / "bin" / "spark-submit"), "--py-files", str(shipped)]
    driver.command = [*submit, str(HERE / "driving.py")]
    driver.environment = {
        "SPARK_HOME": str(home),
        "PYTHONPATH": str(HERE / "bare"),
        "BARE_OF": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    driver.finish()
    assert driver.rows() == sorted(sent)


@pytest.mark.long
@one_dialect
def test_the_format_is_found_without_register(
    driver: Driver, publish: Publish, cluster: Cluster
) -> None:
    publish(100)
    cluster.create_topic("copied")
    cluster.create_channel("copied", "all")
    driver.command = [sys.executable, str(HERE / "tables.py")]
    driver.environment = {"PYSPARK_PYTHON": sys.executable}
    driver.finish()
    assert "counted 100" in driver.output()
    eventually(lambda: [each.body for each in cluster.stored("copied")] == [b"by name"])
