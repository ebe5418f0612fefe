"""Messages as Parquet: a file cannot be read before it is ended, so each batch is a file."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nsqsmart import Message
from nsqsmart.cli.files.appended import link
from nsqsmart.cli.files.names import FileNames
from nsqsmart.errors import ConfigError

_MICRO = 1000


class ParquetFiles:
    """A file for each :meth:`write`, under its name once it is whole and on disk.

    Raises :class:`ConfigError` where pyarrow is missing.
    """

    def __init__(self, names: FileNames) -> None:
        try:
            import pyarrow as pa  # noqa: PLC0415 - not for who writes no Parquet
            from pyarrow import parquet  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "--format parquet needs pyarrow: pip install pyarrow, or use --format json"
            ) from error
        self._arrow: Any = pa
        self._parquet: Any = parquet
        self._names = names
        self._revision = 0
        self._name = ""
        self.closed: list[Path] = []

    def write(self, messages: Sequence[Message]) -> None:
        """Put *messages* on disk; raises OSError, and then no file of them is there."""
        buffer = io.BytesIO()
        self._parquet.write_table(self._table(messages), buffer)
        name = self._names.current()
        self._revision = self._revision if name == self._name else 0
        self._name = name
        self._names.work.mkdir(parents=True, exist_ok=True)
        hidden = self._names.work / f".{self._names.revised(name, os.getpid())}.part"
        with hidden.open("wb") as file:
            file.write(buffer.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        self.closed.append(self._publish(hidden))

    def _publish(self, hidden: Path) -> Path:
        while True:
            final = self._names.output / self._names.revised(self._name, self._revision)
            final.parent.mkdir(parents=True, exist_ok=True)
            self._revision += 1
            try:
                link(hidden, final)
            except FileExistsError:
                continue
            return final

    def tick(self) -> None:
        """Nothing is ever open."""

    def close(self) -> None:
        """Nothing is ever open."""

    def _table(self, messages: Sequence[Message]) -> Any:
        """A row for each, in the columns of the Spark source; ids are signed as Spark has them."""
        pa = self._arrow
        number, whole, text = pa.int32(), pa.int64(), pa.string()
        columns: dict[str, tuple[Any, Callable[[Message], object]]] = {
            "value": (pa.binary(), lambda each: each.body),
            "topic": (text, lambda each: each.topic),
            "channel": (text, lambda each: each.channel),
            "partition": (number, lambda each: each.partition),
            "message_id": (text, _id),
            "internal_id": (whole, lambda each: _signed(each.internal_id)),
            "trace_id": (whole, lambda each: _signed(each.trace_id)),
            "offset": (whole, lambda each: each.offset),
            "size": (number, lambda each: each.size),
            "timestamp": (pa.timestamp("us", tz="UTC"), lambda each: each.timestamp // _MICRO),
            "timestamp_ns": (whole, lambda each: each.timestamp),
            "attempts": (number, lambda each: each.attempts),
            "nsqd": (text, lambda each: each.nsqd),
        }
        arrays = [pa.array(map(value, messages), kind) for kind, value in columns.values()]
        return pa.table(arrays, names=list(columns))


def _id(message: Message) -> str:
    """Of an original nsqd 16 characters, of a redesigned one the digits of two numbers."""
    if message.partition is None and message.id.isascii():
        return message.id.decode()
    return message.id.hex()


def _signed(value: int | None) -> int | None:
    """As a signed number of 64 bits; an original server has none."""
    return value if value is None or value < 1 << 63 else value - (1 << 64)
