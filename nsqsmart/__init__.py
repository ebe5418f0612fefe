"""nsqsmart: publish to and consume from NSQ with plain blocking Python.

::

    with nsqsmart.Producer("nsq+lookupd://127.0.0.1:4161") as producer:
        producer.publish("orders", b"...", key="customer-7")

    nsqsmart.Consumer("orders", "billing", handle, address="nsq+lookupd://127.0.0.1:4161").run()

Stable are the names in ``__all__`` here, with their public attributes, and what the reference lists
of the integrations: Django, Flask, OpenTelemetry, Prometheus, the pytest plugin, Spark, the command
line. They change only with a new minor version before 1.0, a new major version after it, and a line
in the changelog. Import from ``nsqsmart``: the modules below it move.

Floors, from the bottom up: ``errors``, ``names``, ``metrics`` and ``config``; ``wire`` (bytes and
values); ``policy`` (decisions); ``net`` (the only floor that blocks) and ``tracing`` (a switch);
``client`` (what is exported here). ``embedded`` and ``cli`` are beside it. Imports only go down.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from nsqsmart._version import __version__

if TYPE_CHECKING:
    from nsqsmart import errors, metrics, tracing
    from nsqsmart.client.admin.admin import Admin
    from nsqsmart.client.admin.probe import HttpProbe, Probe, ProbeStep
    from nsqsmart.client.consuming.consumer import Consumer
    from nsqsmart.client.consuming.run import run
    from nsqsmart.client.consuming.runtime import CloseReport
    from nsqsmart.client.messages.message import Message
    from nsqsmart.client.messages.results import Requeue
    from nsqsmart.client.pipelining.pending import Pending
    from nsqsmart.client.producer.default import publish
    from nsqsmart.client.producer.producer import Producer
    from nsqsmart.client.pulling.subscription import PullSubscription
    from nsqsmart.client.pulling.unacked import PullReport
    from nsqsmart.client.shared.arguments import PublishArguments, encode_json
    from nsqsmart.client.shared.metrics import Health
    from nsqsmart.client.shared.receipt import Receipt
    from nsqsmart.client.spooling.spool import Flushed, SpooledTopic, spool_status
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
    from nsqsmart.policy.answers.lookup import Node, TopicMeta, TopicState
    from nsqsmart.policy.answers.nodes import NodeInfo
    from nsqsmart.policy.answers.stats import ChannelStats, Replicas, Stats, TopicStats, Unreachable
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
    "Admin": "nsqsmart.client.admin.admin",
    "AdminConfig": "nsqsmart.config",
    "AdminOptions": "nsqsmart.config",
    "ChannelStats": "nsqsmart.policy.answers.stats",
    "CloseReport": "nsqsmart.client.consuming.runtime",
    "Consumer": "nsqsmart.client.consuming.consumer",
    "ConsumerConfig": "nsqsmart.config",
    "ConsumerOptions": "nsqsmart.config",
    "Dialect": "nsqsmart.names",
    "Flushed": "nsqsmart.client.spooling.spool",
    "Health": "nsqsmart.client.shared.metrics",
    "HttpProbe": "nsqsmart.client.admin.probe",
    "Message": "nsqsmart.client.messages.message",
    "Metrics": "nsqsmart.metrics",
    "Node": "nsqsmart.policy.answers.lookup",
    "NodeInfo": "nsqsmart.policy.answers.nodes",
    "NsqError": "nsqsmart.errors",
    "Outcome": "nsqsmart.errors",
    "Pending": "nsqsmart.client.pipelining.pending",
    "Probe": "nsqsmart.client.admin.probe",
    "ProbeStep": "nsqsmart.client.admin.probe",
    "Producer": "nsqsmart.client.producer.producer",
    "ProducerConfig": "nsqsmart.config",
    "ProducerOptions": "nsqsmart.config",
    "PublishArguments": "nsqsmart.client.shared.arguments",
    "PublishError": "nsqsmart.errors",
    "PullReport": "nsqsmart.client.pulling.unacked",
    "PullSubscription": "nsqsmart.client.pulling.subscription",
    "Receipt": "nsqsmart.client.shared.receipt",
    "Replicas": "nsqsmart.policy.answers.stats",
    "Requeue": "nsqsmart.client.messages.results",
    "SpooledTopic": "nsqsmart.client.spooling.spool",
    "Stats": "nsqsmart.policy.answers.stats",
    "Target": "nsqsmart.policy.topology",
    "TopicMeta": "nsqsmart.policy.answers.lookup",
    "TopicState": "nsqsmart.policy.answers.lookup",
    "TopicStats": "nsqsmart.policy.answers.stats",
    "Topology": "nsqsmart.policy.topology",
    "Unreachable": "nsqsmart.policy.answers.stats",
    "encode_json": "nsqsmart.client.shared.arguments",
    "publish": "nsqsmart.client.producer.default",
    "run": "nsqsmart.client.consuming.run",
    "spool_status": "nsqsmart.client.spooling.spool",
}


if not TYPE_CHECKING:  # where a misspelt name is an error

    def __getattr__(name: str) -> object:
        """Import a public name on first use: a cron job that publishes needs no Consumer."""
        if name in _MODULES:
            return import_module(f"nsqsmart.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
