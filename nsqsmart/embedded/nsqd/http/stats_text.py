"""/stats as text, line for line (protocol#http)."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]


def original_text(document: Document) -> str:
    """The document of ``stats`` for people."""
    now = time.time_ns() // 1_000_000_000
    lines = [*_opening(document, now), "", f"Health: {document['health']}"]
    if "memory" in document:
        lines += ["", "Memory:"]
        lines += [f"   {name:<25}\t{value}" for name, value in document["memory"].items()]
    lines += ["", "Topics:" if document["topics"] else "Topics: None"]
    for topic in document["topics"] or ():
        lines += [*_topic(topic, now), ""]
    if lines[-1]:
        lines.append("")
    producers = document["producers"]
    lines += ["Producers:" if producers else "Producers: None"]
    lines += [f"   {_publisher(client, now)}" for client in producers or ()]
    return "\n".join(lines) + "\n"


def redesigned_text(document: Document) -> str:
    """The text of a redesigned nsqd's statistics."""
    now = time.time_ns() // 1_000_000_000
    lines = [*_opening(document, now), ""]
    if not document["topics"]:
        return "\n".join([*lines, "NO_TOPICS"]) + "\n"
    lines.append(f"Health: {document['health']}")
    for topic in document["topics"]:
        lines += ["", *_topic(topic, now)]
    return "\n".join(lines) + "\n"


def _opening(document: Document, now: int) -> list[str]:
    started = document["start_time"]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started))
    python = ".".join(map(str, sys.version_info[:3]))
    return [
        f"nsqd v{document['version']} (built w/python{python})",
        f"start_time {stamp}",
        f"uptime {_duration(now - started)}",
    ]


def _topic(topic: Document, now: int) -> list[str]:
    lines = [_topic_line(topic)]
    for channel in topic["channels"]:
        lines.append(_channel_line(channel))
        lines += [f"        {_consumer(client, now)}" for client in channel["clients"] or ()]
    return lines


def _topic_line(topic: Document) -> str:
    prefix = "*P " if topic.get("paused") else "   "
    return (
        f"{prefix}[{topic['topic_name']:<15}] depth: {topic['depth']:<5} "
        f"be-depth: {topic['backend_depth']:<5} msgs: {topic['message_count']:<8} e2e%: "
    )


def _channel_line(channel: Document) -> str:
    prefix = "   *P " if channel["paused"] else "      "
    return (
        f"{prefix}[{channel['channel_name']:<25}] depth: {channel['depth']:<5} "
        f"be-depth: {channel['backend_depth']:<5} inflt: {channel['in_flight_count']:<4} "
        f"def: {channel['deferred_count']:<4} re-q: {channel['requeue_count']:<5} "
        f"timeout: {channel['timeout_count']:<5} msgs: {channel['message_count']:<8} e2e%: "
    )


def _consumer(client: Document, now: int) -> str:
    return (
        f"{_head(client)} state: {client['state']} inflt: {client['in_flight_count']:<4} "
        f"rdy: {client['ready_count']:<4} fin: {client['finish_count']:<8} "
        f"re-q: {client['requeue_count']:<8} msgs: {client['message_count']:<8} "
        f"connected: {_duration(now - client['connect_ts'])}"
    )


def _publisher(client: Document, now: int) -> str:
    counts = client.get("pub_counts")
    if not counts:
        return _consumer(client, now)
    topics = ",".join(f"{each['topic']}={each['count']}" for each in counts)
    return (
        f"{_head(client)} msgs: {sum(each['count'] for each in counts):<8} topics: {topics} "
        f"connected: {_duration(now - client['connect_ts'])}"
    )


def _head(client: Document) -> str:
    port = client["remote_address"].rpartition(":")[2]
    # A redesigned nsqd names its clients, an original one their hosts and programs.
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    if "name" in client:
        name = f"{client['name']}:{port}"
    return f"[{client['version']} {name:<21}]"


def _duration(seconds: int) -> str:
    """Whole seconds as Go prints them: 5s, 1m0s, 2h0m5s."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
