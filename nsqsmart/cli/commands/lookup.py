"""``nsqsmart lookup``: what there is, and who leads it."""

from __future__ import annotations

import argparse
import json
from typing import Any

from nsqsmart import Admin, AdminConfig
from nsqsmart.cli.common import flags
from nsqsmart.cli.common.parsing import Commands, Parser
from nsqsmart.errors import ConfigError
from nsqsmart.terminal import plural, table

_UNKNOWN = "unknown"
_ABOUT = "Print the nsqds and topics that the lookups know, or who leads the partitions of TOPIC."


def add_parser(commands: Commands[Parser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "lookup", help="nsqds, topics, partitions and leaders", description=_ABOUT
    )
    flags.add_topics(parser)
    flags.add_json(parser, "print one JSON object")
    flags.add_address(parser)
    flags.add_options(parser, AdminConfig)
    parser.set_defaults(run=run)


def run(chosen: argparse.Namespace) -> int:
    """Ask and print; 1 for a topic that no lookup knows."""
    topics = flags.topics_of(chosen)
    admin = Admin(flags.address_of(chosen), **flags.client_options(chosen, AdminConfig))
    found = _topics(admin, topics) if topics else _everything(admin)
    if chosen.json:
        print(json.dumps(found))
    elif topics:
        print("\n\n".join(_topic_text(each) for each in found["topics"]))
    else:
        _print_everything(found)
    if not topics:
        return 0
    unknown = [each["topic"] for each in found["topics"] if each["state"] == _UNKNOWN]
    if unknown:
        raise ConfigError(f"no lookup knows the topic {', '.join(unknown)}")
    return 0


def _everything(admin: Admin) -> dict[str, Any]:
    nodes = [
        {
            "nsqd": node.nsqd,
            "http": node.http,
            "version": node.version,
            "dialect": str(node.dialect) if node.dialect else None,
        }
        for node in admin.nodes()
    ]
    try:
        return {"nsqds": nodes, "topics": admin.topics()}
    except ConfigError:
        # A lone nsqd says what it has over HTTP alone, and that address was not given.
        return {"nsqds": nodes, "topics": None}


def _topics(admin: Admin, topics: list[str]) -> dict[str, Any]:
    found = []
    for topic in topics:
        topology = admin.topology(topic)
        led = topology.leaders
        partitions = [
            {"partition": number, "leader": str(led[number].address) if number in led else None}
            for number in range(topology.partition_num)
        ]
        found.append(
            {
                "topic": topic,
                "state": str(topology.state),
                "dialect": str(topology.dialect),
                "ordered": topology.meta.ordered,
                "extend_support": topology.meta.extended,
                "replicas": topology.meta.replicas,
                "partitions": partitions,
                "nsqds": [str(node.address) for node in topology.nodes],
            }
        )
    return {"topics": found}


def _topic_text(found: dict[str, Any]) -> str:
    if found["state"] == _UNKNOWN:
        return f"{found['topic']}: no lookup knows it"
    if not found["partitions"]:
        return "\n".join([f"{found['topic']}: original, on", *(f"  {n}" for n in found["nsqds"])])
    kinds = [name for name in ("ordered", "extend_support") if found[name]]
    facts = ", ".join(
        [
            plural(len(found["partitions"]), "partition"),
            plural(found["replicas"], "replica"),
            *kinds,
        ]
    )
    rows = [[each["partition"], each["leader"] or "none"] for each in found["partitions"]]
    return "\n".join([f"{found['topic']}: {facts}", *table(["partition", "leader"], rows)])


def _print_everything(found: dict[str, Any]) -> None:
    head = ["nsqd", "http", "version", "dialect"]
    rows = [[each[name] or None for name in head] for each in found["nsqds"]]
    print("\n".join(table(head, rows)))
    if found["topics"] is None:
        print(
            "\ntopics are known to an nsqlookupd: use nsq+lookupd://HOST:4161, "
            "or give --nsqd-http-addresses"
        )
    else:
        names = [f"  {topic}" for topic in found["topics"] or ["none"]]
        print("\n".join(["", "topics", *names]))
