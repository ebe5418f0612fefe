"""The publish commands of a redesigned nsqd (protocol#pub to protocol#create-topic).

What is wrong with the command closes the connection; what is wrong with the partition does not.
"""

from __future__ import annotations

from nsqsmart.embedded.broker.ext import BadHeader, BadTraceId, only_internal, read_header
from nsqsmart.embedded.broker.log import NewMessage, RecordTooLong
from nsqsmart.embedded.broker.records import Extension, Record
from nsqsmart.embedded.gotext import GoError, atoi, parse_bool, quote, shown
from nsqsmart.embedded.nsqd.hosting import DEFAULT, RedesignedHosting, RedesignedShard
from nsqsmart.embedded.nsqd.refusals import (
    BAD_BODY,
    BAD_MESSAGE,
    BAD_TOPIC,
    INVALID,
    CommandRefused,
    not_writable,
    topic_not_exist,
)
from nsqsmart.embedded.nsqd.shard import BATCH_AT_ONCE, MPUB, PUB, SINGLE_AT_ONCE, Write
from nsqsmart.embedded.nsqd.tcp.bodies import BatchReader, read_rest, read_size
from nsqsmart.embedded.nsqd.tcp.connection import ClientConnection
from nsqsmart.embedded.nsqd.tcp.identifying import check_auth
from nsqsmart.names import is_valid_name
from nsqsmart.wire.answers import BAD_PARTITION, NOT_LEADER
from nsqsmart.wire.command_decoder import CommandLine
from nsqsmart.wire.frames import OK
from nsqsmart.wire.receipts import TracedReceipt, encode_receipt

_TRACE_SIZE = 8
_HEADER_SIZE = 2
_WITH_PARTITION = 2
_CREATE_FAILED = "E_CREATE_TOPIC_FAILED"


def parse_partition(token: bytes) -> int:
    """A partition token; raises the fatal E_BAD_PARTITION."""
    try:
        return atoi(token)
    except GoError as error:
        raise CommandRefused(BAD_PARTITION, f"topic partition is not valid: {error}") from error


class RedesignedPublishing:
    """The publish commands, over the partitions of one node."""

    def __init__(self, hosting: RedesignedHosting) -> None:
        self._hosting = hosting

    def find(self, line: bytes) -> RedesignedShard | None:
        """The partition of a PUB line, if it is there and nothing is unusual."""
        topic, space, token = line.partition(b" ")
        if not space:
            shard = self._hosting.find(shown(topic), DEFAULT)
            return None if shard is None or shard.meta.ordered or shard.meta.extended else shard
        shard = self._hosting.find(shown(topic), int(token)) if token.isdigit() else None
        # With an extended topic a message that is not too big may be too big for the log.
        return None if shard is None or shard.meta.extended else shard

    def pub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """PUB."""
        shard, size = self._begin(connection, command)
        body = read_rest(connection, size)
        self._store(connection, shard, [(body, 0, None)], PUB)
        return OK

    def pub_trace(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """PUB_TRACE: eight bytes of trace id before the body, answered by a receipt."""
        shard, size = self._begin(connection, command)
        if size <= _TRACE_SIZE:
            raise CommandRefused(BAD_BODY, f"invalid body size {size} with trace id enabled")
        data = read_rest(connection, size)
        trace = int.from_bytes(data[:_TRACE_SIZE])
        entries: list[NewMessage] = [(data[_TRACE_SIZE:], trace, None)]
        records = self._store(connection, shard, entries, SINGLE_AT_ONCE)
        return _receipt(records, trace)

    def pub_ext(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """PUB_EXT: a JSON header before the body; a receipt if the header has a trace id."""
        shard, size = self._begin(connection, command)
        if size <= _HEADER_SIZE:
            raise CommandRefused(BAD_BODY, f"invalid body size {size} with ext json header enabled")
        data = read_rest(connection, size)
        header, body = _split_header(data)
        extension, trace = _read_header(header)
        kept = _check_ext(connection, shard, extension)
        records = self._store(connection, shard, [(body, trace or 0, kept)], SINGLE_AT_ONCE)
        return OK if trace is None else _receipt(records, trace)

    def mpub(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """MPUB."""
        shard, reader = self._begin_batch(connection, command)
        entries: list[NewMessage] = [(body, 0, None) for body in reader.read()]
        self._store(connection, shard, entries, MPUB)
        return OK

    def mpub_trace(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """MPUB_TRACE: one receipt, of the first message and the sum of all."""
        shard, reader = self._begin_batch(connection, command)
        entries: list[NewMessage] = []
        for position, data in enumerate(reader):
            if len(data) <= _TRACE_SIZE:
                text = f"MPUB invalid message({position}) body size {len(data)} for tracing"
                raise CommandRefused(BAD_MESSAGE, text)
            entries.append((data[_TRACE_SIZE:], int.from_bytes(data[:_TRACE_SIZE]), None))
        return _receipt(self._store(connection, shard, entries, BATCH_AT_ONCE), 0)

    def mpub_ext(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """MPUB_EXT: headers may be empty; always a plain OK.

        A refusal leaves the rest of the batch unread, and it is taken for commands, as the real
        server does (protocol#mpub_ext).
        """
        shard, reader = self._begin_batch(connection, command)
        entries: list[NewMessage] = []
        for data in reader:
            header, body = _split_header(data)
            if not header:
                entries.append((body, 0, None))
                continue
            if not shard.meta.extended and not connection.node.options.allow_ext_compatible:
                raise _ext_not_supported(shard)
            extension, trace = _read_header(header)
            entries.append((body, trace or 0, _check_ext(connection, shard, extension)))
        self._store(connection, shard, entries, BATCH_AT_ONCE)
        return OK

    def create_topic(self, connection: ClientConnection, command: CommandLine) -> bytes:
        """INTERNAL_CREATE_TOPIC."""
        params = command.params
        if len(params) < _WITH_PARTITION:
            raise CommandRefused(INVALID, "CREATE_TOPIC insufficient number of parameters")
        name = shown(params[0])
        if not is_valid_name(name):
            raise CommandRefused(BAD_TOPIC, f"topic name {quote(params[0])} is not valid")
        partition = parse_partition(params[1])
        check_auth(connection, "CREATE_TOPIC", name)
        if partition < 0:
            raise CommandRefused(BAD_PARTITION, "partition should not less than 0")
        extended = False
        if len(params) > _WITH_PARTITION:
            try:
                extended = parse_bool(params[_WITH_PARTITION])
            except GoError as error:
                raise CommandRefused("E_BAD_EXT", f"topic ext is not valid: {error}") from error
        if self._hosting.coordinated:
            text = "CREATE_TOPIC is not allowed here while cluster feature enabled."
            raise CommandRefused(_CREATE_FAILED, text, fatal=False)
        if not self._hosting.create(name, partition, extended=extended):
            raise CommandRefused(_CREATE_FAILED, f"CREATE_TOPIC {name} failed", fatal=False)
        return OK

    # ----------------------------------------------------------------------------------- shared

    def _begin(
        self, connection: ClientConnection, command: CommandLine
    ) -> tuple[RedesignedShard, int]:
        """Tokens, size, topic, order: judged before the body is read."""
        topic, partition = _target(command)
        size = read_size(connection)
        return self._find(connection, topic, partition), size

    def _begin_batch(
        self, connection: ClientConnection, command: CommandLine
    ) -> tuple[RedesignedShard, BatchReader]:
        topic, partition = _target(command)
        reader = BatchReader(connection)
        return self._find(connection, topic, partition), reader

    def _find(self, connection: ClientConnection, topic: str, partition: int) -> RedesignedShard:
        shard = self._hosting.find(topic, partition)
        if shard is None:
            raise topic_not_exist()
        if partition == DEFAULT and shard.meta.ordered:
            text = f"topic partition is not valid for multi partition: {partition}"
            raise CommandRefused(BAD_PARTITION, text)
        check_auth(connection, "PUB", topic)
        return shard

    def _store(
        self,
        connection: ClientConnection,
        shard: RedesignedShard,
        entries: list[NewMessage],
        write: Write,
    ) -> list[Record]:
        if connection.node.exiting:
            raise CommandRefused(write.failed, "exiting", fatal=False)
        try:
            records, woken = shard.publish(connection.node, entries, write)
        except RecordTooLong as error:
            raise CommandRefused(write.failed, str(error), fatal=False) from error
        except CommandRefused as refused:
            # What a hung leader answers when it wakes and leads no more (protocol#leader-switch).
            if connection.late and write.batch and refused.code == NOT_LEADER:
                raise not_writable() from refused
            raise
        connection.published[shard.meta.name] += len(entries)
        if woken:
            connection.dirty.update(woken)
        return records


def _target(command: CommandLine) -> tuple[str, int]:
    """Topic and partition; the token counts only if it is the last (protocol#partition-token)."""
    params = command.params
    if not params:
        raise CommandRefused(INVALID, "insufficient number of parameters")
    partition = parse_partition(params[1]) if len(params) == _WITH_PARTITION else DEFAULT
    return shown(params[0]), partition


def _split_header(data: bytes) -> tuple[bytes, bytes]:
    end = _HEADER_SIZE + int.from_bytes(data[:_HEADER_SIZE])
    if len(data) <= end:
        text = f"invalid body size {len(data)} in ext json header content length"
        raise CommandRefused(BAD_BODY, text)
    return data[_HEADER_SIZE:end], data[end:]


def _read_header(header: bytes) -> tuple[Extension, int | None]:
    try:
        return read_header(header)
    except BadHeader as error:
        text = f"fail to parse json header:{error}"
        raise CommandRefused("E_INVALID_JSON_HEADER", text, fatal=False) from error
    except BadTraceId as error:
        raise CommandRefused("INVALID_TRACE_ID", str(error), fatal=False) from error


def _check_ext(
    connection: ClientConnection, shard: RedesignedShard, extension: Extension
) -> Extension | None:
    """The header to store; on a plain topic, if it may be dropped there, None."""
    if shard.meta.extended:
        return extension
    if connection.node.options.allow_ext_compatible and only_internal(extension):
        return None
    raise _ext_not_supported(shard)


def _ext_not_supported(shard: RedesignedShard) -> CommandRefused:
    text = f"ext content not supported in topic {shard.meta.name}"
    return CommandRefused("E_EXT_NOT_SUPPORT", text, fatal=False)


def _receipt(records: list[Record], trace: int) -> bytes:
    """The answer to a traced publish (protocol#pub_trace and protocol#mpub_trace)."""
    first = records[0]
    size = sum(record.size for record in records)
    internal = int.from_bytes(first.key)
    return encode_receipt(TracedReceipt(internal, trace, first.offset, size))
