"""The words of OpenTelemetry's conventions for messaging, 1.44.0, which are in development.

Their package calls its constants private, so they stand here.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.util.types import AttributeValue

from nsqsmart import Message, Receipt

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
TEMPORARY: Final = "messaging.destination.temporary"
SUBSCRIPTION: Final = "messaging.destination.subscription.name"
PARTITION: Final = "messaging.destination.partition.id"
MESSAGE_ID: Final = "messaging.message.id"
BODY_SIZE: Final = "messaging.message.body.size"
BATCH_COUNT: Final = "messaging.batch.message_count"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
# Ours, where the conventions leave room for a system's own.
ATTEMPTS: Final = "messaging.nsq.message.attempts"
INTERNAL_ID: Final = "messaging.nsq.internal_id"
TRACE_ID: Final = "messaging.nsq.trace_id"
OFFSET: Final = "messaging.nsq.disk_queue.offset"
REQUEUE_DELAY: Final = "messaging.nsq.requeue.delay_ms"
QUEUE_WAIT: Final = "messaging.nsq.queue_wait_ms"

OPERATION_DURATION: Final = "messaging.client.operation.duration"
PROCESS_DURATION: Final = "messaging.process.duration"
SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)

Attributes = dict[str, AttributeValue]

_EPHEMERAL = "#ephemeral"


def operation(name: str, kind: str, topic: str) -> Attributes:
    """What every span and every metric says."""
    return {SYSTEM: "nsq", OPERATION_NAME: name, OPERATION_TYPE: kind, DESTINATION: topic}


def topic_attributes(topic: str) -> Attributes:
    """What spans say of the topic besides its name."""
    return {TEMPORARY: True} if topic.endswith(_EPHEMERAL) else {}


def server(nsqd: str) -> Attributes:
    """Of "host:port", an IPv6 host without its brackets; nothing for "": it is spooled."""
    if not nsqd:
        return {}
    host, _, port = nsqd.rpartition(":")
    return {SERVER_ADDRESS: host.strip("[]"), SERVER_PORT: int(port)}


def of_receipt(receipt: Receipt) -> Attributes:
    """Where it is stored; ids and offsets as texts, for 64 bits are too many for some readers."""
    found = server(receipt.nsqd)
    texts = {
        PARTITION: receipt.partition,
        INTERNAL_ID: receipt.internal_id,
        TRACE_ID: receipt.trace_id,
        OFFSET: receipt.offset,
    }
    return found | {name: str(value) for name, value in texts.items() if value is not None}


def of_message(message: Message) -> Attributes:
    """What came, and from where."""
    found = server(message.nsqd) | {
        MESSAGE_ID: message_id(message),
        BODY_SIZE: len(message.body),
        ATTEMPTS: message.attempts,
    }
    if message.partition is not None:
        found |= {PARTITION: str(message.partition), INTERNAL_ID: str(message.internal_id)}
        if message.trace_id:
            found[TRACE_ID] = str(message.trace_id)
    if message.offset is not None:
        found[OFFSET] = str(message.offset)
    return found


def message_id(message: Message) -> str:
    """Text on an original nsqd, 32 hex digits on a redesigned one."""
    if message.partition is None:
        return message.id.decode("ascii", "backslashreplace")
    return message.id.hex()


def error_type(error: BaseException) -> str:
    """The server's code where there is one, else the class."""
    code = getattr(error, "code", "")
    return code if isinstance(code, str) and code.startswith("E_") else type(error).__name__
