"""nsqsmart: publish to and consume from NSQ with plain blocking Python.

::

    with nsqsmart.Producer("nsq+lookupd://127.0.0.1:4161") as producer:
        producer.publish("orders", b"...", key="customer-7")

    nsqsmart.Consumer("orders", "billing", handle, address="nsq+lookupd://127.0.0.1:4161").run()

The house, from the ground: ``errors``, ``names``, ``metrics`` and ``config``; ``wire`` (bytes and
values); ``policy`` (decisions); ``net`` (the only floor that blocks) and ``tracing`` (a switch);
``client`` (what is exported here).
``embedded`` and ``cli`` are rooms beside it. Imports only go down.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from nsqsmart._version import __version__

if TYPE_CHECKING:
    from nsqsmart import errors, metrics, tracing
    from nsqsmart.client.admin import Admin
    from nsqsmart.client.arguments import encode_json
    from nsqsmart.client.closing import CloseReport
    from nsqsmart.client.consumer import Consumer
    from nsqsmart.client.health import Health
    from nsqsmart.client.message import Message
    from nsqsmart.client.pending import Pending
    from nsqsmart.client.producer import Producer
    from nsqsmart.client.pull_hand import PullReport
    from nsqsmart.client.pull_subscription import PullSubscription
    from nsqsmart.client.receipt import Receipt
    from nsqsmart.client.requeue import Requeue
    from nsqsmart.client.running import run
    from nsqsmart.client.shared_producer import publish
    from nsqsmart.client.spool import spool_status
    from nsqsmart.config import AdminConfig, ConsumerConfig, ProducerConfig
    from nsqsmart.errors import NsqError, Outcome, PublishError
    from nsqsmart.metrics import Metrics

__all__ = [
    "Admin",
    "AdminConfig",
    "CloseReport",
    "Consumer",
    "ConsumerConfig",
    "Health",
    "Message",
    "Metrics",
    "NsqError",
    "Outcome",
    "Pending",
    "Producer",
    "ProducerConfig",
    "PublishError",
    "PullReport",
    "PullSubscription",
    "Receipt",
    "Requeue",
    "__version__",
    "encode_json",
    "errors",
    "metrics",
    "publish",
    "run",
    "spool_status",
    "tracing",
]

_MODULES = ("errors", "metrics", "tracing")
_HOMES = {
    "Admin": "nsqsmart.client.admin",
    "AdminConfig": "nsqsmart.config",
    "CloseReport": "nsqsmart.client.closing",
    "Consumer": "nsqsmart.client.consumer",
    "ConsumerConfig": "nsqsmart.config",
    "Health": "nsqsmart.client.health",
    "Message": "nsqsmart.client.message",
    "Metrics": "nsqsmart.metrics",
    "NsqError": "nsqsmart.errors",
    "Outcome": "nsqsmart.errors",
    "Pending": "nsqsmart.client.pending",
    "Producer": "nsqsmart.client.producer",
    "ProducerConfig": "nsqsmart.config",
    "PublishError": "nsqsmart.errors",
    "PullReport": "nsqsmart.client.pull_hand",
    "PullSubscription": "nsqsmart.client.pull_subscription",
    "Receipt": "nsqsmart.client.receipt",
    "Requeue": "nsqsmart.client.requeue",
    "encode_json": "nsqsmart.client.arguments",
    "publish": "nsqsmart.client.shared_producer",
    "run": "nsqsmart.client.running",
    "spool_status": "nsqsmart.client.spool",
}


def __getattr__(name: str) -> object:
    """Import what is asked for: a cron job that publishes does not wait for the Consumer."""
    if name in _MODULES:
        return import_module(f"nsqsmart.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
