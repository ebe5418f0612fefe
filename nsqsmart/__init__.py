"""nsqsmart: publish to and consume from NSQ with plain blocking Python.

::

    with nsqsmart.Producer("nsq+lookupd://127.0.0.1:4161") as producer:
        producer.publish("orders", b"...", key="customer-7")

    nsqsmart.Consumer("orders", "billing", handle, address="nsq+lookupd://127.0.0.1:4161").run()

The house, from the ground: ``errors``, ``names`` and ``config``; ``wire`` (bytes and values);
``policy`` (decisions); ``net`` (the only floor that blocks); ``client`` (what is exported here).
``embedded`` and ``cli`` are rooms beside it. Imports only go down.
"""

from nsqsmart import errors
from nsqsmart._version import __version__
from nsqsmart.client.closing import CloseReport
from nsqsmart.client.consumer import Consumer
from nsqsmart.client.message import Message, Requeue
from nsqsmart.client.producer import Producer
from nsqsmart.client.receipt import Receipt
from nsqsmart.config import ConsumerConfig, ProducerConfig
from nsqsmart.errors import NsqError, Outcome, PublishError

__all__ = [
    "CloseReport",
    "Consumer",
    "ConsumerConfig",
    "Message",
    "NsqError",
    "Outcome",
    "Producer",
    "ProducerConfig",
    "PublishError",
    "Receipt",
    "Requeue",
    "__version__",
    "errors",
]
