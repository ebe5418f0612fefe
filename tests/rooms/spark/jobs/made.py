"""Archives made by hand, with whatever a test wants in them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN = datetime(2026, 3, 1, 7, 0, tzinfo=UTC)
SIZE = 30


def row(number: int, **changes: Any) -> dict[str, Any]:
    """Message *number* of partition 0: a second after the one before, right behind it."""
    moment = BEGIN + timedelta(seconds=number)
    made = {
        "value": b"%08d" % number,
        "topic": "orders",
        "channel": "archive",
        "partition": 0,
        "message_id": f"{number + 1:032x}",
        "internal_id": number + 1,
        "trace_id": 0,
        "offset": number * SIZE,
        "size": SIZE,
        "timestamp": moment,
        "timestamp_ns": int(moment.timestamp()) * 10**9,
        "attempts": 1,
        "nsqd": "127.0.0.1:4150",
    }
    return made | changes


def save(spark: SparkSession, path: Path, rows: list[dict[str, Any]]) -> None:
    """As the job ``archive`` has them; a call is a file more for each hour."""
    from pyspark.sql import functions as f

    from nsqsmart.spark.schema import COLUMNS

    names = [column.split()[0] for column in COLUMNS.split(", ")]
    frame = spark.createDataFrame([tuple(each[name] for name in names) for each in rows], COLUMNS)
    (
        frame.withColumn("date", f.to_date("timestamp"))
        .withColumn("hour", f.hour("timestamp"))
        .coalesce(1)
        .write.mode("append")
        .partitionBy("topic", "date", "hour")
        .parquet(str(path))
    )
