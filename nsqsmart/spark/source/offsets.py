"""The source in offsets mode, without Spark: ranges of the partitions' logs.

The checkpoint is the truth. The channel that the options name is only parked at what is
committed: a gauge for operators, and a pin, since servers clean away what every channel has read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any, NamedTuple

from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.source.ranges import open_at
from nsqsmart.spark.source.survey import DataLoss, Survey, offset_in
from nsqsmart.spark.spool.plan import Task

log = logging.getLogger("nsqsmart.spark")

Offset = dict[str, Any]
Place = tuple[str, int]
_MILLIS = 1000
_SKIM_SECONDS = 30.0
_EARLIEST, _LATEST, _STORED = "earliest", "latest", "stored"


class PartitionLog(NamedTuple):
    """One partition: where its log begins and ends, where the channel stands, who leads it."""

    start: int
    end: int
    messages: int
    stands: int | None
    nsqd: str


class OffsetsSource:
    """Ranges of one query.

    The offset is ``{"v": 1, "offsets": {TOPIC: {PARTITION: BYTES}}}``: all before it. The first
    one that is logged has ``from`` as well, for Spark asks again where the query began.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._survey = Survey(options)
        self._first: Offset | None = None
        self._parked: dict[Place, int] = {}
        self._target: dict[Place, int] | None = None
        self._asked_at = -1e9
        self._logs: dict[Place, PartitionLog] = {}
        self._made_channel = False

    def initial_offset(self) -> Offset:
        """Where a new query begins: ``startingOffsets``, ``startingTimestamp``.

        Raises DiscoveryError if no server says where the logs are, or one of them is.
        """
        if self._first is None:
            logs = self._look(anew=True, must=True)
            self._survey.check_complete(logs)
            self._first = _offset({place: self._begin(place, logs[place]) for place in logs})
        return self._first

    def prepare_available_now(self) -> None:
        """Read what there is now, and end."""
        self._target = {place: each.end for place, each in self._look(anew=True, must=True).items()}

    def latest_offset(self, start: Offset, most: int | None) -> Offset:
        """The end of the next ranges, of about *most* messages; *start* if there is nothing.

        That it is asked for says that Spark has committed all up to *start*.
        """
        places = _places(start)
        self._park(places)
        logs = self._look()
        if not logs:
            return start
        found = dict(places)
        for place, each in logs.items():
            begin = places.get(place)
            if begin is None:
                # Noted now and read from the next batch on: a replay must know where it began.
                found[place] = each.start
                continue
            self._check(place, begin, each)
            end = each.end if self._target is None else min(each.end, self._target.get(place, 0))
            share = None if most is None else max(1, most // len(logs))
            try:
                found[place] = max(begin, self._bounded(place, begin, end, each, share))
            except NsqError as error:
                log.warning("cannot look into %s/%d for now: %s", *place, error)
        if found == places:
            return start
        made = _offset(found)
        # Batch 0 is replayed from here; Spark would ask for the start again, and get another.
        return made | {"from": start["offsets"]} if start == self._first else made

    def tasks(self, start: Offset, end: Offset) -> tuple[Task, ...]:
        """What there is to read between the two."""
        begun = _places({"offsets": end["from"]}) if "from" in end else _places(start)
        made = []
        for (topic, partition), last in _places(end).items():
            first = begun.get((topic, partition))
            if first is not None and last > first:
                made.append(Task(topic, partition, "", first=first, end=last))
        return tuple(made)

    def batch(self) -> tuple[Task, ...]:
        """What a batch read reads: ``startingOffsets`` up to ``endingOffsets``."""
        logs = self._look(anew=True, must=True)
        self._survey.check_complete(logs)
        begin = {place: self._begin(place, logs[place]) for place in logs}
        end = {place: self._end(place, logs[place]) for place in logs}
        return self.tasks(_offset(begin), _offset(end))

    def report(self) -> dict[str, Any] | None:
        """How far behind the ends of the logs what is committed is, in bytes."""
        logs = self._look()
        behind = {
            f"{topic}/{partition}": each.end - self._parked.get((topic, partition), each.start)
            for (topic, partition), each in logs.items()
        }
        return {"bytesBehind": sum(behind.values()), "partitions": behind} if logs else None

    # ------------------------------------------------------------------------------ the positions

    def _begin(self, place: Place, each: PartitionLog) -> int:
        options = self._options
        if options.starting_timestamp is not None:
            return self._at_time(place, each, options.starting_timestamp)
        if options.starting_offsets == _STORED:
            return each.end if each.stands is None else each.stands
        return _chosen("startingOffsets", options.starting_offsets, place, each)

    def _end(self, place: Place, each: PartitionLog) -> int:
        options = self._options
        if options.ending_timestamp is not None:
            return self._at_time(place, each, options.ending_timestamp)
        return _chosen("endingOffsets", options.ending_offsets, place, each)

    def _at_time(self, place: Place, each: PartitionLog, millis: int) -> int:
        """Where the first message of that second or later is."""
        moment = datetime.fromtimestamp(millis / _MILLIS, UTC)
        if each.start == each.end:
            return each.end
        with open_at(self._options, *place, moment) as source:
            messages = source.pull(1, _SKIM_SECONDS if moment < datetime.now(UTC) else 0)
        return messages[0].offset or 0 if messages else each.end

    def _bounded(
        self, place: Place, begin: int, end: int, each: PartitionLog, most: int | None
    ) -> int:
        """Where about *most* messages behind *begin* end; ranges end where messages do."""
        if most is None or each.end <= each.start or end <= begin:
            return end
        average = (each.end - each.start) / max(1, each.messages)
        if (end - begin) / max(1.0, average) <= 2 * most:
            return end
        return min(end, self._skim(place, begin, most))

    def _skim(self, place: Place, begin: int, most: int) -> int:
        """Count *most* messages from *begin* on: only reading tells where one ends."""
        until, found = monotonic() + _SKIM_SECONDS, begin
        with open_at(self._options, *place, begin) as source:
            while most > 0 and monotonic() < until:
                messages = source.pull(min(most, self._options.chunk), 1.0)
                source.finish(messages)
                most -= len(messages)
                found = max([found, *((each.offset or 0) + (each.size or 0) for each in messages)])
        return found

    def _check(self, place: Place, begin: int, each: PartitionLog) -> None:
        if begin >= each.start:
            return
        message = (
            f"topic {place[0]!r} partition {place[1]}: the log begins at {each.start}, behind "
            f"{begin}, where the query is: retention has overtaken it"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{message}; failOnDataLoss=false goes on behind the hole")
        log.error("%s", message)

    # -------------------------------------------------------------------------------- the servers

    def _park(self, places: Mapping[Place, int]) -> None:
        """Let the channel stand where everything before is committed."""
        for (topic, partition), offset in places.items():
            if self._parked.get((topic, partition)) == offset:
                continue
            try:
                if not self._made_channel:
                    self._survey.admin.create_channel(topic, self._options.channel)
                    self._made_channel = True
                self._survey.admin.set_offset(topic, self._options.channel, partition, offset)
            except NsqError as error:
                log.warning("cannot park channel %s: %s", self._options.channel, error)
            self._parked[topic, partition] = offset

    def _look(self, *, anew: bool = False, must: bool = False) -> dict[Place, PartitionLog]:
        """Every partition's log; the last ones known while no server answers."""
        now = monotonic()
        if not anew and now - self._asked_at < self._options.stats_interval:
            return self._logs
        self._asked_at = now
        try:
            self._logs = dict(self._ask())
        except NsqError as error:
            if must:
                raise
            log.warning("no figures for now: %s", error)
            return {}
        return self._logs

    def _ask(self) -> Iterator[tuple[Place, PartitionLog]]:
        for topic in self._survey.topics():
            for entry in self._survey.admin.stats(topic).topics:
                if entry.partition is None or entry.log_end is None:
                    raise ConfigError(
                        f"topic {topic!r} is on an original NSQ, which keeps no log: "
                        "readMode=spool reads it"
                    )
                if not self._survey.is_ours(topic, entry.partition):
                    continue
                named = [each for each in entry.channels if each.channel == self._options.channel]
                stands = named[0].position if named else None
                yield (
                    (topic, entry.partition),
                    PartitionLog(
                        entry.log_start or 0,
                        entry.log_end,
                        entry.message_count,
                        stands,
                        entry.nsqd,
                    ),
                )


def _offset(places: Mapping[Place, int]) -> Offset:
    offsets: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(places.items()):
        offsets.setdefault(topic, {})[str(partition)] = offset
    return {"v": 1, "offsets": offsets}


def _places(offset: Offset) -> dict[Place, int]:
    return {
        (topic, int(partition)): number
        for topic, numbers in offset["offsets"].items()
        for partition, number in numbers.items()
    }


def _chosen(name: str, text: str, place: Place, each: PartitionLog) -> int:
    """Where a position that the options give is in one log."""
    if text == _EARLIEST:
        return each.start
    if text == _LATEST:
        return each.end
    found = offset_in(name, text, *place)
    if found is None:
        return each.start if name.startswith("starting") else each.end
    return found
