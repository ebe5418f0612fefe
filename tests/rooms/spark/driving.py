"""A query as a program of its own, which tests kill; run as a script with settings in JSON.

``sink`` is ``files`` (Spark's own file sink, which knows its batches), ``batches`` (a folder for
each batch, written anew when the batch comes again), ``batches-killed`` (the same; the driver
kills its JVM behind the write of batch ``kill_at``: before ``commits/N``) or ``nsq``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    told = json.loads(sys.argv[1])
    from nsqsmart.spark import session

    spark = session("driving", **told["session"])
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.readStream.format("nsq").options(**told["options"]).load()
    folder = Path(told["folder"])
    writer = frame.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    if told["sink"] == "files":
        writer = writer.format("parquet").option("path", str(folder / "out"))
    elif told["sink"] == "nsq":
        writer = copying(frame.select("value"), folder, told["options"]["address"])
    else:
        writer = writer.foreachBatch(into_batches(spark, folder, told))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


def copying(frame: DataFrame, folder: Path, address: str) -> Any:
    """To the topic "copied"."""
    checkpoint = str(folder / "checkpoint")
    writer = frame.writeStream.option("checkpointLocation", checkpoint)
    return writer.format("nsq").options(address=address, topic="copied")


def into_batches(spark: SparkSession, folder: Path, told: dict[str, Any]) -> Any:
    note = folder / "killed"

    def write(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out" / f"batch={batch}"))
        if told["sink"] == "batches-killed" and batch == told["kill_at"] and not note.exists():
            note.touch()
            jvm = spark.sparkContext._gateway.jvm.java.lang.ProcessHandle.current().pid()
            os.kill(jvm, signal.SIGKILL)

    return write


if __name__ == "__main__":
    main()
