"""The source in spool mode: it plans epochs, notes what is committed, and forgets what was read."""

from __future__ import annotations

import json
import logging
import uuid
from dataclasses import replace
from time import monotonic, sleep, time_ns
from typing import Any

from nsqsmart.errors import ConfigError, NsqError
from nsqsmart.spark.options import ReadOptions
from nsqsmart.spark.schema import arrow_schema
from nsqsmart.spark.source.filling import Reading
from nsqsmart.spark.source.survey import DataLoss, Sight, Survey, make_channels, prepare, pull
from nsqsmart.spark.spool.plan import Plan, Task, share
from nsqsmart.spark.spool.slots import DoubtLedger, SlotLog, sealed_rows
from nsqsmart.spark.spool.store import FileStore

log = logging.getLogger("nsqsmart.spark")

_EMPTY_EPOCHS = 2
PATIENCE = 10.0
"""Seconds without lookups, after which a run ends with what it has."""

Offset = dict[str, Any]
_SECOND = 1_000_000_000
_BATCH = "batch-"
_DAY = 86400


class AvailableNowRun:
    """How much there was when the run began, and how much of it was read."""

    def __init__(self) -> None:
        self._target: int | None = None
        self._read = 0
        self._empty = 0

    def see(self, sight: Sight) -> None:
        """The first sight is the target."""
        if self._target is None:
            self._target = sight.waiting + sight.held

    def count(self, rows: int | None) -> None:
        """An epoch was committed; those from before the run do not count."""
        if rows is None or self._target is None:
            return
        self._read += rows
        self._empty = 0 if rows else self._empty + 1

    def is_over(self) -> bool:
        """Whether all of it was read, or others read it."""
        done = self._target is not None and self._read >= self._target
        return done or self._empty >= _EMPTY_EPOCHS

    def is_out_of_patience(self, sight: Sight | None, msg_timeout: float, since: float) -> bool:
        """Whether nothing came for so long, since the last epoch at *since*, that nothing will."""
        if sight is not None and not sight.held:
            return True
        # What a dead consumer held comes back after its msg_timeout, which may be ours.
        patience = PATIENCE if sight is None else msg_timeout + PATIENCE
        return monotonic() - since > patience

    def why(self) -> str:
        """For the log."""
        return f"{self._read} of {self._target} messages read, the others are held by others"


class SpoolSource:
    """Epochs of one query: planned, read, committed, forgotten.

    The offset is ``{"v": 1, "src": NAME, "epoch": N}``: all messages of epochs up to N. NAME is
    the source's folder in the spool. Nothing is opened before the first call.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._survey = Survey(options)
        self._made: Offset | None = None
        self._ready = ""
        self._committed = -1
        self._waits_since: float | None = None
        self._run: AvailableNowRun | None = None

    # ------------------------------------------------------------------------ what Spark asks for

    def initial_offset(self) -> Offset:
        """Where a new query begins; asked again when batch 0 is replayed, and then not used."""
        if self._made is None:
            orphan = self._orphan() if self._options.orphan_spool == "adopt" else None
            self._made = orphan or _offset(uuid.uuid4().hex, 0)
        return self._made

    def prepare_available_now(self) -> None:
        """Read what there is now, and end."""
        self._run = AvailableNowRun()

    def latest_offset(self, start: Offset, most: int | None) -> Offset:
        """The end of the next epoch, of *most* messages; *start* if there is nothing to read.

        That it is asked for says that Spark has committed all up to *start*.
        """
        source, epoch = start["src"], start["epoch"]
        if not self._begin(source, epoch):
            return start
        self._commit(source, epoch)
        if self._plan_of(source, epoch + 1) is not None:
            # It was planned, and Spark or the driver died before it was logged; or it is adopted.
            return _offset(source, epoch + 1)
        sight = self._await(source, epoch) if self._run else self._look()
        if sight is None:
            return start
        tasks = share(sight.backlogs, most, self._options.min_partitions)
        if not tasks:
            return start
        self._write(source, Plan(epoch + 1, time_ns(), self._with_size(tasks)))
        self._waits_since = None
        return _offset(source, epoch + 1)

    def tasks(self, start: Offset, end: Offset) -> tuple[Task, ...]:
        """What there is to read in the epoch that ends at *end*; raises DataLoss."""
        if start == end or not end["epoch"]:
            return ()
        plan = self._plan_of(end["src"], end["epoch"])
        if plan is not None:
            return plan.tasks
        message = (
            f"epoch {end['epoch']} of source {end['src']} is in the checkpoint and not in the "
            f"spool {self._options.spool}: it was deleted, or is not the folder it was"
        )
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{message}; failOnDataLoss=false goes on without it")
        log.error("%s; its messages are lost", message)
        return ()

    def plan_batch(self, source: str) -> tuple[Offset, Plan]:
        """The one epoch of a DataFrame, of all that waits now; the same when asked again.

        Raises DiscoveryError without figures of what waits.
        """
        plan = self._plan_of(source, 1)
        if plan is None:
            prepare(self._options, self._survey)
            sight = self._survey.must_look()
            self._forget_batches()
            self._store.make_folder(f"{source}/doubt")
            tasks = share(sight.backlogs, None, self._options.min_partitions)
            plan = Plan(1, time_ns(), self._with_size(tasks))
            self._write(source, plan)
        return _offset(source, 1), plan

    def _forget_batches(self) -> None:
        """Delete what old DataFrames have read: Spark does not say when one is done with."""
        for source in self._store.names(""):
            plan = self._plan_of(source, 1) if source.startswith(_BATCH) else None
            if plan and time_ns() - plan.made_at > _DAY * _SECOND:
                self._store.discard(source)

    def report(self) -> dict[str, Any] | None:
        """What waits, for Spark's progress report."""
        sight = self._survey.look()
        if sight is None:
            return None
        return {"epoch": self._committed, **sight.report()}

    # --------------------------------------------------------------------------------- the spool

    @property
    def _store(self) -> FileStore:
        return FileStore(self._options.spool)

    def _begin(self, source: str, epoch: int) -> bool:
        """Prepare; a run that shall end is patient, for an end with nothing read says nothing."""
        until = monotonic() + (PATIENCE if self._run else 0)
        while not self._prepare(source, epoch):
            if monotonic() >= until:
                return False
            sleep(self._options.stats_interval)
        return True

    def _prepare(self, source: str, epoch: int) -> bool:
        """Make what a new query needs; False if that cannot be done for now."""
        if self._ready == source:
            return True
        if not self._store.has(f"{source}/source.json"):
            if epoch:
                log.warning("the spool of source %s was deleted; all of it is committed", source)
            else:
                orphan = self._orphan() if self._options.orphan_spool == "fail" else None
                if orphan:
                    raise DataLoss(
                        f"the spool {self._options.spool} holds messages of source {orphan['src']} "
                        "that no checkpoint knows: was one deleted? orphanSpool=adopt reads them "
                        "first, orphanSpool=ignore leaves them out"
                    )
                try:
                    prepare(self._options, self._survey)
                except ConfigError:
                    raise  # no time will mend it
                except NsqError as error:
                    log.warning("cannot begin yet: %s", error)
                    return False
            self._store.make_folder(f"{source}/doubt")
            self._store.put(f"{source}/source.json", _identity(self._options))
        self._ready = source
        return True

    def _orphan(self) -> Offset | None:
        """A source of the same topics and channel with epochs that were not committed."""
        store = self._store
        for source in store.names(""):
            committed = f"{source}/committed"
            if not store.has(f"{source}/source.json"):
                continue
            if store.get(f"{source}/source.json") != _identity(self._options):
                continue
            epoch = int(store.get(committed)) if store.has(committed) else 0
            if self._plan_of(source, epoch + 1) is not None:
                return _offset(source, epoch)
        return None

    def _commit(self, source: str, epoch: int) -> None:
        """Note that all up to *epoch* is in the sink; forget what is not needed any more."""
        if epoch == self._committed:
            return
        self._store.put(f"{source}/committed", str(epoch).encode())
        if self._run:
            self._run.count(self._rows_of(source, epoch))
        self._committed = epoch
        oldest = f"epoch-{max(0, epoch + 1 - self._options.spool_retain_epochs):09d}"
        for name in self._store.names(source):
            if name.startswith("epoch-") and name < oldest:
                self._store.discard(f"{source}/{name}")
        moment = time_ns() // _SECOND - int(self._options.in_doubt_retention)
        DoubtLedger(self._store, f"{source}/doubt").forget_before(moment)

    def _write(self, source: str, plan: Plan) -> None:
        """Folders first: a plan that is there can be read."""
        folder = _folder(source, plan.epoch)
        for task in plan.tasks:
            self._store.make_folder(f"{folder}/{task.name}")
        self._store.put_new(f"{folder}/plan.json", plan.to_json())

    def _plan_of(self, source: str, epoch: int) -> Plan | None:
        try:
            return Plan.from_json(self._store.get(f"{_folder(source, epoch)}/plan.json"))
        except FileNotFoundError:
            return None

    def _rows_of(self, source: str, epoch: int) -> int | None:
        """The rows of an epoch; None if it has no plan."""
        plan = self._plan_of(source, epoch)
        if plan is None:
            return None
        folder = _folder(source, epoch)
        return sum(sealed_rows(self._store, f"{folder}/{task.name}") or 0 for task in plan.tasks)

    # ------------------------------------------------------------------------------- what to read

    def _look(self) -> Sight | None:
        """What waits; None if nothing does, or not enough yet."""
        options, now = self._options, monotonic()
        sight = self._see()
        if sight is None or not sight.waiting:
            return None
        if self._waits_since is None:
            self._waits_since = now
        overdue = now - self._waits_since >= options.max_trigger_delay
        if sight.waiting < options.min_messages_per_trigger and not overdue:
            return None
        return sight

    def _see(self, *, anew: bool = False) -> Sight | None:
        """The newest figures; a topic that is new gets its channel."""
        sight = self._survey.look(anew=anew)
        if sight is not None:
            make_channels(self._options, self._survey, sight.without_channel)
        return sight

    def _await(self, source: str, epoch: int) -> Sight | None:
        """The same for AvailableNow: what was in flight when it began belongs to it."""
        run = self._run
        assert run is not None  # noqa: S101 - asked by the caller
        since = monotonic()
        while not run.is_over():
            sight = self._see(anew=True)
            if sight is not None:
                run.see(sight)
                if sight.waiting and not run.is_over():
                    return sight
            if run.is_out_of_patience(sight, self._options.msg_timeout, since):
                log.warning("source %s ends at epoch %d: %s", source, epoch, run.why())
                return None
            sleep(self._options.stats_interval)
        return None

    def _with_size(self, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
        size = self._options.max_bytes_per_trigger
        if size is None:
            return tasks
        return tuple(replace(each, size=-(-size // len(tasks))) for each in tasks)


def reading(options: ReadOptions, end: Offset, task: Task) -> Reading:
    """What an executor needs to read *task* of the epoch that ends at *end*."""
    store = FileStore(options.spool)
    folder = f"{_folder(end['src'], end['epoch'])}/{task.name}"
    schema = arrow_schema(headers=options.include_headers)
    return Reading(
        task,
        SlotLog(store, folder, schema, options.codec),
        DoubtLedger(store, f"{end['src']}/doubt"),
        options,
        lambda: pull(options, task),
    )


def _offset(source: str, epoch: int) -> Offset:
    return {"v": 1, "src": source, "epoch": epoch}


def _folder(source: str, epoch: int) -> str:
    return f"{source}/epoch-{epoch:09d}"


def _identity(options: ReadOptions) -> bytes:
    """Whose messages they are."""
    which = options.subscribe or options.assign or options.subscribe_pattern
    return json.dumps({"channel": options.channel, "topics": which}, sort_keys=True).encode()
