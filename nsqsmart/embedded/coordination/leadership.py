"""Who leads a partition, what its leader refuses, and how the lead moves.

What a leader switch loses is what a real one loses: everything about the channels but their
confirm positions (protocol#new-leader).
"""

from __future__ import annotations

import threading
import time

from nsqsmart.embedded.broker.consumer import ChannelConsumer
from nsqsmart.embedded.coordination.topology import ClusterTopology, Slot
from nsqsmart.embedded.nsqd.refusals import CommandRefused, not_leader, not_writable
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqd.shard import Write
from nsqsmart.embedded.script import Script
from nsqsmart.embedded.serving.loop import Loop


class Leadership:
    """Leaders of partitions.

    :meth:`lead`, :meth:`dismiss` and :meth:`refresh` are called with the topology's lock.
    """

    def __init__(self, topology: ClusterTopology, script: Script, loop: Loop) -> None:
        self._topology = topology
        self._script = script
        self._loop = loop
        self._farewells: dict[Nsqd, list[ChannelConsumer]] = {}

    # ----------------------------------------------------------------------------------- leaders

    def appoint(self, slot: Slot) -> None:
        """Give a new partition its first leader, in the steps of a real one (protocol#topic-life).

        First there is none; then lookups name one that refuses as NOT_LEADER; then it refuses as
        NOT_WRITABLE; then it is there. Called with the topology's lock.
        """
        delay = self._script.create_delay
        chosen = slot.replicas[0]
        if not delay:
            slot.leader, slot.shard.leader = chosen, chosen.node
            return

        def step(*, ready: bool) -> None:
            with self._topology.lock:
                if slot.leader is not chosen or not slot.moving:
                    return
                slot.shard.leader = chosen.node
                slot.moving = slot.unready = not ready
                self.refresh(slot)

        def name() -> None:
            with self._topology.lock:
                if slot.leader is None and chosen in self._topology.alive():
                    slot.leader, slot.moving = chosen, True
                    self.refresh(slot)

        self._loop.call_later(delay / 2, name)
        self._loop.call_later(delay * 3 / 4, lambda: step(ready=False))
        self._loop.call_later(delay, lambda: step(ready=True))

    def lead(self, slot: Slot, nsqd: Nsqd | None) -> None:
        """Let *nsqd* lead from now on; consumers of the old leader lose their connection."""
        self.dismiss(slot, nsqd)
        slot.leader = nsqd
        slot.resigned = slot.write_failed = False
        self.refresh(slot)

    def dismiss(self, slot: Slot, new: Nsqd | None) -> None:
        """The leader leads no longer, its consumers lose their connection; *new* takes over."""
        old, shard = slot.leader, slot.shard
        with shard.lock:
            shard.leader = None if new is None else new.node
            shard.asleep = new is None
            gone = shard.partition.dismiss() if new is None else shard.partition.fail_over()
            if new is not None and old not in (None, new):
                shard.partition.forget(
                    positions=self._script.positions_lost, young=self._script.young_channels_lost
                )
        if old is not None and old.node.hung:
            # Its clients notice when it wakes.
            self._farewells.setdefault(old, []).extend(gone)
            return
        for consumer in gone:
            consumer.sink.end()

    def refresh(self, slot: Slot) -> None:
        """Bring what the shard refuses in line with the state of its replicas."""
        shard = slot.shard
        missing = slot.in_sync - self._topology.alive()
        shard.consumable = not slot.unready
        if slot.resigned:
            shard.refusal = not_leader
        else:
            shard.refusal = None if slot.writable else not_writable
        waiting = slot.leader is not None and bool(missing) and slot.writable
        shard.hold = (lambda write: self._replicate(slot, write)) if waiting else None
        # An ordered FIN needs the quorum as a write does (protocol#ordered-answers).
        shard.confirm_refused = not slot.has_quorum or slot.leader is None
        shard.confirm_hold = (lambda: self._confirm(slot)) if missing else None
        if missing:
            slot.complete.clear()
        else:
            slot.complete.set()
        if not waiting:
            slot.deadline = None
            slot.settled.set()

    def _replicate(self, slot: Slot, write: Write) -> None:
        """A write that waits for a replica which does not answer (protocol#lost-follower).

        All give up together, when the first one does; raises
        :class:`~nsqsmart.embedded.nsqd.refusals.CommandRefused`.
        """
        arrived = time.monotonic()
        with self._topology.lock:
            if slot.shard.hold is None:
                return
            first = slot.deadline is None
            if slot.deadline is None:
                slot.settled.clear()
                slot.deadline = arrived + self._patience(slot)
            deadline = slot.deadline
        slot.settled.wait(max(0.0, deadline - arrived))
        with self._topology.lock:
            if slot.shard.hold is not None:
                self._give_up(slot)
            failed, resigned = slot.write_failed or slot.resigned, slot.resigned
        if not failed:
            return
        if not first and write.queued and deadline - arrived >= self._script.queue_wait:
            raise CommandRefused(write.failed, "pub timeout while pop wait queue", fatal=False)
        # The write that failed says so; later ones learn that this node no longer leads.
        raise not_leader() if resigned and not write.batch else not_writable()

    def _confirm(self, slot: Slot) -> bool:
        """An ordered FIN waits for silent members; whether they have it (protocol#ordered-cluster).

        Unlike a publish that fails, it does not make the leader resign.
        """
        return slot.complete.wait(self._script.confirm_timeout) and not slot.shard.confirm_refused

    def _patience(self, slot: Slot) -> float:
        """A node that has ended refuses connections: there is no wait for that."""
        missing = slot.in_sync - self._topology.alive()
        return 0.0 if missing <= slot.said_farewell else self._script.replication_timeout

    def _give_up(self, slot: Slot) -> None:
        answering = slot.in_sync & self._topology.alive()
        if len(answering) > slot.shard.meta.replicas // 2:
            slot.write_failed = True
        else:
            # Without a majority the leader gives up (protocol#lost-quorum).
            self._resign(slot)
        self.refresh(slot)

    def _resign(self, slot: Slot) -> None:
        slot.resigned = True
        with slot.shard.lock:
            gone = slot.shard.partition.dismiss()
            slot.shard.leader = None
        for consumer in gone:
            consumer.sink.end()

    def take_farewells(self, nsqd: Nsqd) -> list[ChannelConsumer]:
        """The consumers that a hung node has lost, and has to be told of when it wakes."""
        return self._farewells.pop(nsqd, [])

    # ------------------------------------------------------------------------------------- moves

    def close_for_writing(self, nsqd: Nsqd) -> None:
        """A node that is about to end takes no more writes for what it leads.

        See protocol#leader-switch.
        """
        with self._topology.lock:
            for slot in self._topology.slots.values():
                if slot.leader is nsqd:
                    slot.moving = True
                    self.refresh(slot)

    def set_writable(self, topic: str, partition: int, *, writable: bool) -> None:
        """Let the leader refuse writes, or take them again; consuming goes on."""
        with self._topology.lock:
            slot = self._topology.slot(topic, partition)
            slot.readonly = not writable
            self.refresh(slot)

    def begin_move(self, topic: str, partition: int, to: Nsqd | None = None) -> threading.Event:
        """Move the leader; the event is set when the new one takes writes.

        Writes are refused for the ``move_delay``; then consumers lose their connection, and
        the new leader is in lookups for reading, a little later in those for writing.
        """
        done = threading.Event()
        with self._topology.lock:
            slot = self._topology.slot(topic, partition)
            target = self._target(slot) if to is None else to
            if slot.moving or target is slot.leader:
                done.set()
                return done
            slot.moving = True
            self.refresh(slot)

        def settle() -> None:
            with self._topology.lock:
                slot.moving = False
                self.refresh(slot)
            done.set()

        def switch() -> None:
            with self._topology.lock:
                # Who died in the meantime leads nothing: the old leader goes on.
                if target in self._topology.alive():
                    _let_in(slot, target)
                    if self._script.redeliver_at_move:
                        slot.shard.run(lambda partition, _: partition.redeliver())
                    self.lead(slot, target)
            self._loop.call_later(self._script.move_delay / 10, settle)

        self._loop.call_later(self._script.move_delay, switch)
        return done

    def _target(self, slot: Slot) -> Nsqd:
        alive = self._topology.alive()
        others = [each for each in slot.replicas if each in slot.in_sync & alive]
        others += [
            each for each in self._topology.nsqds if each in alive and each not in slot.replicas
        ]
        for nsqd in others:
            if nsqd is not slot.leader:
                return nsqd
        raise ValueError("no other node could lead this partition")


def _let_in(slot: Slot, nsqd: Nsqd) -> None:
    """*nsqd* becomes a replica in the place of the last one, unless it is one."""
    if nsqd not in slot.replicas:
        slot.replicas = [nsqd, *slot.replicas[: slot.shard.meta.replicas - 1]]
        slot.in_sync = (slot.in_sync & set(slot.replicas)) | {nsqd}
