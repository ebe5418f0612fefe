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
    from nsqsmart.client.arguments import PublishArguments, encode_json
    from nsqsmart.client.closing import CloseReport
    from nsqsmart.client.consumer import Consumer
    from nsqsmart.client.health import Health
    from nsqsmart.client.http_probing import HttpProbe
    from nsqsmart.client.message import Message
    from nsqsmart.client.pending import Pending
    from nsqsmart.client.probing import Probe, ProbeStep
    from nsqsmart.client.producer import Producer
    from nsqsmart.client.pull_hand import PullReport
    from nsqsmart.client.pull_subscription import PullSubscription
    from nsqsmart.client.receipt import Receipt
    from nsqsmart.client.requeue import Requeue
    from nsqsmart.client.running import run
    from nsqsmart.client.shared_producer import publish
    from nsqsmart.client.spool import Flushed, SpooledTopic, spool_status
    from nsqsmart.config import (
        AdminConfig,
        AdminOptions,
        ConsumerConfig,
        ConsumerOptions,
        ProducerConfig,
        ProducerOptions,
    )
    from nsqsmart.errors import NsqError, Outcome, PublishError
    from nsqsmart.metrics import Metrics
    from nsqsmart.names import Address, Dialect
    from nsqsmart.policy.lookup_answers import Node, TopicMeta, TopicState
    from nsqsmart.policy.node_answers import NodeInfo
    from nsqsmart.policy.replica_answers import Replicas
    from nsqsmart.policy.stats_answers import ChannelStats, Stats, TopicStats, Unreachable
    from nsqsmart.policy.topology import Target, Topology

__all__ = [
    "Address",
    "Admin",
    "AdminConfig",
    "AdminOptions",
    "ChannelStats",
    "CloseReport",
    "Consumer",
    "ConsumerConfig",
    "ConsumerOptions",
    "Dialect",
    "Flushed",
    "Health",
    "HttpProbe",
    "Message",
    "Metrics",
    "Node",
    "NodeInfo",
    "NsqError",
    "Outcome",
    "Pending",
    "Probe",
    "ProbeStep",
    "Producer",
    "ProducerConfig",
    "ProducerOptions",
    "PublishArguments",
    "PublishError",
    "PullReport",
    "PullSubscription",
    "Receipt",
    "Replicas",
    "Requeue",
    "SpooledTopic",
    "Stats",
    "Target",
    "TopicMeta",
    "TopicState",
    "TopicStats",
    "Topology",
    "Unreachable",
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
    "Address": "nsqsmart.names",
    "Admin": "nsqsmart.client.admin",
    "AdminConfig": "nsqsmart.config",
    "AdminOptions": "nsqsmart.config",
    "ChannelStats": "nsqsmart.policy.stats_answers",
    "CloseReport": "nsqsmart.client.closing",
    "Consumer": "nsqsmart.client.consumer",
    "ConsumerConfig": "nsqsmart.config",
    "ConsumerOptions": "nsqsmart.config",
    "Dialect": "nsqsmart.names",
    "Flushed": "nsqsmart.client.spool",
    "Health": "nsqsmart.client.health",
    "HttpProbe": "nsqsmart.client.http_probing",
    "Message": "nsqsmart.client.message",
    "Metrics": "nsqsmart.metrics",
    "Node": "nsqsmart.policy.lookup_answers",
    "NodeInfo": "nsqsmart.policy.node_answers",
    "NsqError": "nsqsmart.errors",
    "Outcome": "nsqsmart.errors",
    "Pending": "nsqsmart.client.pending",
    "Probe": "nsqsmart.client.probing",
    "ProbeStep": "nsqsmart.client.probing",
    "Producer": "nsqsmart.client.producer",
    "ProducerConfig": "nsqsmart.config",
    "ProducerOptions": "nsqsmart.config",
    "PublishArguments": "nsqsmart.client.arguments",
    "PublishError": "nsqsmart.errors",
    "PullReport": "nsqsmart.client.pull_hand",
    "PullSubscription": "nsqsmart.client.pull_subscription",
    "Receipt": "nsqsmart.client.receipt",
    "Replicas": "nsqsmart.policy.replica_answers",
    "Requeue": "nsqsmart.client.requeue",
    "SpooledTopic": "nsqsmart.client.spool",
    "Stats": "nsqsmart.policy.stats_answers",
    "Target": "nsqsmart.policy.topology",
    "TopicMeta": "nsqsmart.policy.lookup_answers",
    "TopicState": "nsqsmart.policy.lookup_answers",
    "TopicStats": "nsqsmart.policy.stats_answers",
    "Topology": "nsqsmart.policy.topology",
    "Unreachable": "nsqsmart.policy.stats_answers",
    "encode_json": "nsqsmart.client.arguments",
    "publish": "nsqsmart.client.shared_producer",
    "run": "nsqsmart.client.running",
    "spool_status": "nsqsmart.client.spool",
}


if not TYPE_CHECKING:  # where a misspelt name is an error

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
