"""Spark imports every module of this kind, and finds the format ``nsq`` here."""

from nsqsmart.spark.data_source import NsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
