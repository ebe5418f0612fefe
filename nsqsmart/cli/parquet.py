"""Messages as Parquet: a file cannot be read before it is ended, so each batch is a file."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsqsmart import Message
from nsqsmart.cli.file_names import FileNames
from nsqsmart.cli.writing import link
from nsqsmart.errors import ConfigError


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
        arrow = self._arrow
        unsigned = arrow.uint64()
        columns = {
            "topic": (arrow.string(), [each.topic for each in messages]),
            "partition": (arrow.int32(), [each.partition for each in messages]),
            "id": (arrow.string(), [_id(each) for each in messages]),
            "internal_id": (unsigned, [_redesigned(each, each.internal_id) for each in messages]),
            "trace_id": (unsigned, [_redesigned(each, each.trace_id) or None for each in messages]),
            "timestamp": (
                arrow.timestamp("ns", tz="UTC"),
                [each.timestamp for each in messages],
            ),
            "attempts": (arrow.int32(), [each.attempts for each in messages]),
            "body": (arrow.binary(), [each.body for each in messages]),
        }
        arrays = [arrow.array(values, kind) for kind, values in columns.values()]
        return arrow.table(arrays, names=list(columns))


def _id(message: Message) -> str:
    """As the server writes it: text of an original nsqd, else the hexadecimal digits."""
    if message.partition is None:
        return message.id.decode("ascii", "replace")
    return message.id.hex()


def _redesigned(message: Message, value: int) -> int | None:
    return None if message.partition is None else value
