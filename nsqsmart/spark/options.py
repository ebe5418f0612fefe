"""What the source and the sink can be told, checked before anything is opened.

Names are Spark's camel case, in any case (Spark keeps no other); every option of the client has
its own name behind ``nsq.``. A wrong name is an error that names the nearest right one.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from nsqsmart.config import (
    AdminConfig,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    options_of,
    resolve,
    variable,
)
from nsqsmart.errors import ConfigError
from nsqsmart.names import check_channel, check_topic

_CLIENT = "nsq."
_SPARKS_OWN = frozenset(
    {"checkpointlocation", "path", "queryname", "truncate", "numrows", "trigger", "outputmode"}
)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_EPHEMERAL = "#ephemeral"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_MOST_TIMEOUT = 900.0

Options = TypeVar("Options")


def whole(name: str, text: str) -> int:
    """A whole number, at least 0."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise ConfigError(f"option {name} is {text!r}: give a whole number, 0 or more")
    return number


def positive(name: str, text: str) -> int:
    """A whole number, at least 1."""
    number = whole(name, text)
    if not number:
        raise ConfigError(f"option {name} is 0: give 1 or more")
    return number


def truth(name: str, text: str) -> bool:
    """true or false."""
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {name} is {text!r}: give true or false")
    return text.lower() == "true"


def millis(name: str, text: str) -> float:
    """Milliseconds, as seconds."""
    return positive(name, text) / 1000


def duration(name: str, text: str) -> float:
    """A time as Spark writes them ("15m", "30s"), in seconds."""
    stripped = text.strip().replace(" ", "")
    digits = stripped.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = stripped[len(digits) :] or "ms"
    try:
        return float(digits) * _UNITS[unit]
    except (ValueError, KeyError):
        raise ConfigError(f"option {name} is {text!r}: give a time, such as 15m or 30s") from None


def one_of(*choices: str) -> Callable[[str, str], str]:
    """One of a few words."""

    def read(name: str, text: str) -> str:
        if text.lower() not in choices:
            near = difflib.get_close_matches(text.lower(), choices, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"option {name} is {text!r}: give {' or '.join(choices)}{hint}")
        return text.lower()

    return read


def topic_list(name: str, text: str) -> tuple[str, ...]:
    """Topics with commas between them."""
    found = tuple(check_topic(each.strip()) for each in text.split(",") if each.strip())
    if not found:
        raise ConfigError(f"option {name} is empty: name at least one topic")
    return found


def assignment(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """Partitions by topic, as JSON."""
    try:
        found = {check_topic(topic): tuple(numbers) for topic, numbers in json.loads(text).items()}
        numbers = [each for each in found.values() for each in each]
        usable = bool(numbers) and all(type(each) is int and each >= 0 for each in numbers)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f'option {name} is {text!r}: give JSON, {{"orders": [0, 1]}}') from error
    if not usable:
        raise ConfigError(f'option {name} is {text!r}: give JSON, {{"orders": [0, 1]}}')
    return found


def channel_name(name: str, text: str) -> str:
    """A channel that stays without connections."""
    if text.endswith(_EPHEMERAL):
        raise ConfigError(
            f"option {name} is {text!r}: tasks connect for a moment only, and an ephemeral "
            "channel ends with its last connection; give a lasting one, used by this query alone"
        )
    return check_channel(text)


def folder(_name: str, text: str) -> str:
    """A folder of the driver's, as a whole path; with a scheme but ``file:`` as it is."""
    if text.startswith("file:"):
        return urlsplit(text).path
    return str(Path(text).absolute()) if text and not _SCHEME.match(text) else text


def plain(_name: str, text: str) -> str:
    """Any text."""
    return text


def _option(read: Callable[[str, str], Any], default: Any = MISSING, name: str = "") -> Any:
    metadata = {"read": read, "name": name}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of ``spark.read`` and ``spark.readStream``; times in seconds."""

    channel: str = _option(channel_name)
    address: str | None = _option(plain, None)
    subscribe: tuple[str, ...] | None = _option(topic_list, None)
    assign: dict[str, tuple[int, ...]] | None = _option(assignment, None)
    subscribe_pattern: str | None = _option(plain, None)
    read_mode: str = _option(one_of("spool", "offsets"), "spool")
    mode: str = _option(one_of("drain", "peek"), "drain")
    spool_location: str | None = _option(folder, None)
    checkpoint_location: str | None = _option(folder, None)
    starting_offsets: str = _option(plain, "stored")
    starting_timestamp: int | None = _option(whole, None)
    ending_offsets: str = _option(plain, "latest")
    ending_timestamp: int | None = _option(whole, None)
    allow_channel_reset: bool = _option(truth, default=False)
    max_messages_per_trigger: int = _option(positive, 200_000)
    min_messages_per_trigger: int = _option(whole, 0)
    max_trigger_delay: float = _option(duration, 900.0)
    max_bytes_per_trigger: int | None = _option(positive, None)
    min_partitions: int = _option(positive, 1)
    max_in_flight: int = _option(positive, 2500)
    chunk_messages: int | None = _option(positive, None)
    chunk_bytes: int = _option(positive, 8 << 20)
    poll_timeout: float = _option(millis, 2.0, "pollTimeoutMs")
    idle_timeout: float = _option(millis, 0.2, "idleTimeoutMs")
    message_timeout: float | None = _option(millis, None, "messageTimeoutMs")
    stats_interval: float = _option(millis, 0.5, "statsIntervalMs")
    dedupe_redeliveries: bool = _option(truth, default=True)
    in_doubt_retention: float = _option(millis, 1200.0, "inDoubtRetentionMs")
    fail_on_data_loss: bool = _option(truth, default=True)
    on_node_failure: str = _option(one_of("skip", "fail"), "skip")
    orphan_spool: str = _option(one_of("fail", "adopt", "ignore"), "fail")
    include_headers: bool = _option(truth, default=False)
    spool_compression: str | None = _option(one_of("none", "lz4", "zstd"), None)
    spool_retain_epochs: int = _option(whole, 2)
    client: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Read what Spark hands over; raises ConfigError."""
        options = _parse(cls, given, "the nsq source")
        named = [options.subscribe, options.assign, options.subscribe_pattern]
        if sum(each is not None for each in named) != 1:
            raise ConfigError("give one of the options subscribe, assign and subscribePattern")
        resolve(AdminConfig, options.address, options.of(AdminConfig))
        others = options.of(AdminConfig).keys() - options_of(ConsumerConfig).keys()
        rest: dict[str, Any] = {"msg_timeout": options.msg_timeout}
        rest |= {name: text for name, text in options.client.items() if name not in others}
        return replace(options, address=_address(ConsumerConfig, options.address, rest))

    def of(self, kind: type[ClientConfig]) -> dict[str, Any]:
        """The client's options that one *kind* of client knows."""
        return {name: text for name, text in self.client.items() if name in options_of(kind)}

    @property
    def spool(self) -> str:
        """The folder of the spool; raises ConfigError if no option tells, or it is none."""
        if self.spool_location:
            return _posix("spoolLocation", self.spool_location)
        if self.checkpoint_location:
            below = _posix("checkpointLocation", self.checkpoint_location)
            return f"{below.rstrip('/')}/nsq-spool"
        raise ConfigError(
            "give the option spoolLocation, a folder that driver and executors share, or repeat "
            "checkpointLocation on the reader: Spark does not tell a source where that is"
        )

    @property
    def chunk(self) -> int:
        """Messages of a slot."""
        return self.chunk_messages or max(1, self.max_in_flight // 2)

    @property
    def msg_timeout(self) -> float:
        """For how long nsqd leaves a message to a task that may have died."""
        return self.message_timeout or min(_MOST_TIMEOUT, max(10.0, 4 * self.poll_timeout))

    @property
    def codec(self) -> str | None:
        """Arrow's name of the compression."""
        return None if self.spool_compression == "none" else self.spool_compression


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of ``df.write`` and ``df.writeStream``."""

    address: str | None = _option(plain, None)
    topic: str | None = _option(lambda _name, text: check_topic(text), None)
    partitioner: str | None = _option(one_of("roundrobin", "hash", "column"), None)
    """None: by the columns there are, row by row: its partition, or its key, or wherever."""
    publish_batch_messages: int = _option(positive, 500)
    publish_batch_bytes: int = _option(positive, 512 << 10)
    publish_rate: int | None = _option(positive, None)
    trace: bool = _option(truth, default=False)
    stamp_rows: bool = _option(truth, default=False)
    client: Mapping[str, str] = field(default_factory=dict)

    def of(self, kind: type[ClientConfig]) -> dict[str, Any]:
        """The client's options that one *kind* of client knows."""
        return {name: text for name, text in self.client.items() if name in options_of(kind)}

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Read what Spark hands over; raises ConfigError."""
        options = _parse(cls, given, "the nsq sink")
        return replace(options, address=_address(ProducerConfig, options.address, options.client))


def _posix(name: str, place: str) -> str:
    if _SCHEME.match(place):
        raise ConfigError(
            f"option {name} is {place!r}, and the spool needs a POSIX file system: give "
            "spoolLocation, a folder that driver and executors mount"
        )
    return place


def _address(kind: type[ClientConfig], given: str | None, client: Mapping[str, Any]) -> str:
    """The address, checked with the client's options; executors have another environment."""
    endpoint, _ = resolve(kind, given, client)
    if endpoint.embedded:
        raise ConfigError(
            f"{endpoint} is a cluster inside this process, which Spark's processes cannot reach: "
            "start one with nsqsmart.embedded.Cluster and give its url"
        )
    return given or os.environ[variable("url")]


def camel(name: str) -> str:
    """``spool_location`` as Spark spells it."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def names(options: type[Any]) -> dict[str, Field[Any]]:
    """The fields of *options* by the names that users write."""
    known = (each for each in fields(options) if each.metadata)
    return {each.metadata["name"] or camel(each.name): each for each in known}


def _parse(options: type[Options], given: Mapping[str, str], who: str) -> Options:
    known = {name.lower(): (name, each) for name, each in names(options).items()}
    values: dict[str, Any] = {"client": {}}
    for key, text in given.items():
        lowered = key.lower()
        if lowered.startswith(_CLIENT):
            values["client"][lowered.removeprefix(_CLIENT)] = str(text)
        elif lowered in known:
            name, each = known[lowered]
            values[each.name] = each.metadata["read"](name, str(text))
        elif lowered not in _SPARKS_OWN:
            raise ConfigError(f"unknown option {key} of {who}{_near(lowered, known)}")
    for name, each in names(options).items():
        if each.default is MISSING and each.name not in values:
            raise ConfigError(f"the option {name} of {who} is missing")
    return options(**values)


def _near(lowered: str, known: Mapping[str, tuple[str, Field[Any]]]) -> str:
    near = difflib.get_close_matches(lowered, known, n=1)
    return f": did you mean {known[near[0]][0]}?" if near else ""
