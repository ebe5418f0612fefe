"""The data source ``nsq``, as Spark finds it."""

from __future__ import annotations

import uuid

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from nsqsmart.errors import ConfigError
from nsqsmart.spark.options import ReadOptions, WriteOptions
from nsqsmart.spark.schema import spark_schema
from nsqsmart.spark.sink.publishing import check_columns
from nsqsmart.spark.sink.writers import NsqBatchWriter, NsqStreamWriter
from nsqsmart.spark.source.readers import DrainReader, PeekReader, RangesReader, StreamReader


class NsqDataSource(DataSource):
    """``format("nsq")``: ``read``, ``readStream``, ``write`` and ``writeStream``."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Pickled with it, so that all actions of one DataFrame have the same.
        self._name = f"batch-{uuid.uuid4().hex}"

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "nsq"

    def schema(self) -> str:
        """A column for everything a message has."""
        headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return spark_schema(headers=headers)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's
        """Messages that wait now."""
        options = ReadOptions.parse(self.options)
        if options.read_mode == "offsets":
            return RangesReader(options)
        if options.mode == "peek":
            return PeekReader(options)
        return DrainReader(options, self._name)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Messages as they come."""
        return StreamReader(ReadOptions.parse(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Publish a DataFrame."""
        if overwrite:
            raise ConfigError('messages cannot be overwritten: write with mode("append")')
        return NsqBatchWriter(self._write_options(schema))

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: ARG002, FBT001 - Spark's; a query in update mode has it
    ) -> DataSourceStreamArrowWriter:
        """Publish a stream."""
        return NsqStreamWriter(self._write_options(schema))

    def _write_options(self, schema: StructType) -> WriteOptions:
        options = WriteOptions.parse(self.options)
        check_columns(schema.names, options)
        return options
