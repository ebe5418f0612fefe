"""Spark imports every module of this kind, and finds the format ``nsq`` here."""

from nsqsmart.spark.source import NsqDataSource as DefaultSource

__all__ = ["DefaultSource"]
