"""The data source ``nsq``, as Spark finds it."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
)

from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.schema import spark_schema
from nsqsmart.spark.stream import SpoolStreamReader


class NsqDataSource(DataSource):
    """``spark.readStream.format("nsq")``, and the other three."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "nsq"

    def schema(self) -> str:
        """A column for everything a message has."""
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return spark_schema(headers=headers)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Messages as they come."""
        return SpoolStreamReader(ReadOptions.parse(self.options))
