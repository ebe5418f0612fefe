"""What Spark carries from the driver to an executor."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from nsqsmart.spark.plan import Task
from nsqsmart.spark.spooling import Offset


@dataclass
class TaskPartition(InputPartition):
    """One task; one that goes through the spool ends the epoch *end*."""

    task: Task
    end: Offset | None = None
