"""Messages as Parquet: a file cannot be read before it is ended, so each batch is a file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from nsqsmart import Message
from nsqsmart.cli.files.appended import link
from nsqsmart.cli.files.names import FileNames
from nsqsmart.errors import ConfigError


class ParquetFiles:
    """A file for each :meth:`write`, under its name once it is whole and on disk.

    The columns are those of the Spark source.

    Raises :class:`ConfigError` where pyarrow is missing.
    """

    def __init__(self, names: FileNames) -> None:
        try:
            from pyarrow import Table, parquet  # noqa: PLC0415 - only where Parquet is written

            from nsqsmart.spark import schema  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "--format parquet needs pyarrow: pip install pyarrow, or use --format json"
            ) from error
        self._schema = schema
        self._make_table: Any = Table.from_batches
        self._save: Any = parquet.write_table
        self._names = names
        self._revision = 0
        self._name = ""
        self.closed: list[Path] = []

    def write(self, messages: Sequence[Message]) -> None:
        """Put *messages* on disk; raises OSError, and then no file of them is there."""
        buffer = io.BytesIO()
        batches = [
            self._schema.to_batch(run, self._schema.texts_of(run), headers=False)
            for run in map(list, _runs(messages))
        ]
        self._save(self._make_table(batches), buffer)
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


def _runs(messages: Sequence[Message]) -> Iterator[Iterator[Message]]:
    """*messages*, in their order, cut where partition or nsqd change: a batch has one of each."""
    return (run for _, run in groupby(messages, key=lambda each: (each.partition, each.nsqd)))
