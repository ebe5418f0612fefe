"""The blocking, thread-safe Producer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, Unpack

from nsqsmart.client.arguments import (
    PublishArguments,
    check_bodies,
    check_body,
    check_delay,
    check_headers,
    check_place,
    check_timeout,
    encode_json,
    make_trace_ids,
)
from nsqsmart.client.base_producer import BaseProducer
from nsqsmart.client.pending import Pending
from nsqsmart.client.publication import Publication
from nsqsmart.client.publish_call import publish, publish_plain, publish_plain_batch
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.splitting import publish_split
from nsqsmart.policy.routing import Key
from nsqsmart.tracing import sampled

_PLAIN = (None,) * 6


class Producer(BaseProducer):
    """Publishes to NSQ with plain blocking calls; share one between threads, and over a fork.

    It finds the leader of the message's partition, keeps connections in a pool, and when a leader
    has moved looks up again and retries, all inside one deadline. It keeps no thread: publish()
    runs wholly in the caller's.

    Args:
        address: ``nsq+lookupd://host:4161,...``, ``nsq://host:4150,...``,
            ``nsq+embedded://NAME``; with TLS to nsqd ``nsqs+lookupd://`` and ``nsqs://``.
            Default: the environment variable ``NSQSMART_URL``.
        config: a :class:`~nsqsmart.config.ProducerConfig` instead of the defaults.
        **options: any option by its name, as ``publish_timeout=5`` (seconds) or ``"250ms"``.

    Raises:
        ConfigError: an address or option cannot be used. Nothing is dialled here.
    """

    def publish(
        self,
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        tag: str | None = None,
        delay: float | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Store *body* in *topic*; return once an nsqd has said OK to it.

        Args:
            topic: 1 to 64 characters of letters, digits, ``.``, ``_`` and ``-``.
            body: the message, not empty.
            key: messages of one key go to one partition, in order; str or int (bytes too with
                ``sharding="murmur3"`` or ``"crc32"``). Redesigned clusters only.
            partition: this very partition instead. Redesigned clusters only.
            trace: have the servers trace the message; default: the option ``trace``.
            trace_id: 0 to 2**64 - 1, implies *trace*; default: a random one.
            headers: what JSON can say, by name; only topics made with ``extend_support``.
            tag: consumers with this ``desired_tag`` get the message; the same topics.
            delay: deliver it so many seconds from now, best effort. Original nsqds only.
            timeout: seconds for everything, retries included; default ``publish_timeout``.

        With the option ``spool``, what cannot be sent now is kept on the disk, and the receipt
        says ``spooled``; a later call sends it, before others of its topic.

        Raises:
            TypeError, ConfigError: an argument cannot be used; nothing was sent.
            PublishError: see its subclasses; ``outcome`` says whether it may be stored.
            ClientClosed: after :meth:`close`.
        """
        if topic not in self._known_topics:
            self._know(topic)
        if type(body) is not bytes or not body:
            body = check_body(body)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        traces = (self._trace or sampled(topic)) if trace is None else trace
        machinery = self._machinery.get()
        if machinery is None or self._closed:
            machinery = self._running()
        plain = (key, partition, trace_id, headers, tag, delay) == _PLAIN
        if plain and not traces and self._spool is None:
            now = monotonic()
            return publish_plain(machinery.publisher, topic, body, now, now + limit)
        publication = Publication(
            topic,
            (body,),
            key,
            check_place(key, partition),
            make_trace_ids(trace_id, 1) if traces or trace_id is not None else (),
            must_trace=trace is True or trace_id is not None,
            headers=check_headers(headers, tag),
            tag=tag,
            delay=check_delay(delay),
        )
        return self._send(publish, publication, monotonic() + limit)

    def publish_async(
        self,
        topic: str,
        body: bytes,
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        trace_id: int | None = None,
        headers: Mapping[str, Any] | None = None,
        tag: str | None = None,
        delay: float | None = None,
        timeout: float | None = None,
    ) -> Pending:
        """Send *body* on its way, and return at once; the arguments are those of :meth:`publish`.

        Unkeyed messages do not wait for each other's answers; keyed ones of a partition leave as
        one batch when the batch before is answered, so that their order survives retries. At most
        ``async_max_messages`` and ``async_max_bytes`` are on their way: then it waits, or with
        ``on_full="raise"`` fails. The first call starts threads; with a spool there are none: what
        it returns is settled.

        Returns:
            a :class:`Pending`, whose ``result()`` returns or raises what :meth:`publish` would.

        Raises:
            TypeError, ConfigError: an argument cannot be used; nothing was sent.
            PublishError: there was no room in time; nothing was sent.
            ClientClosed: after :meth:`close`.
        """
        if topic not in self._known_topics:
            self._know(topic)
        if type(body) is not bytes or not body:
            body = check_body(body)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        traces = (self._trace or sampled(topic)) if trace is None else trace
        machinery = self._running()
        plain = (key, partition, trace_id, headers, tag, delay) == _PLAIN
        if plain and not traces and self._spool is None:
            return machinery.asynchronous().submit_plain(topic, body, monotonic(), limit)
        publication = Publication(
            topic,
            (body,),
            key,
            check_place(key, partition),
            make_trace_ids(trace_id, 1) if traces or trace_id is not None else (),
            must_trace=trace is True or trace_id is not None,
            headers=check_headers(headers, tag),
            tag=tag,
            delay=check_delay(delay),
        )
        if self._spool is not None:
            return self._settled(publish, publication, monotonic() + limit)
        return machinery.asynchronous().submit(publication, monotonic() + limit, limit)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing of :meth:`publish_async` is on its way; whether that is so.

        *timeout* in seconds; default ``publish_timeout``, by which everything is settled.
        """
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        machinery = self._machinery.get()
        return machinery is None or machinery.flush(monotonic() + limit)

    def publish_json(
        self, topic: str, value: object, **arguments: Unpack[PublishArguments]
    ) -> Receipt:
        """Publish *value* as compact JSON in UTF-8; the arguments are those of :meth:`publish`."""
        return self.publish(topic, encode_json(value), **arguments)

    def publish_many(
        self,
        topic: str,
        bodies: Iterable[bytes],
        *,
        key: Key | None = None,
        partition: int | None = None,
        trace: bool | None = None,
        headers: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        split: bool = False,
    ) -> Receipt:
        """Store *bodies* with one MPUB, in one partition and in their order.

        All are accepted, or an error is raised; then any number of the first ones may be stored,
        unless its ``outcome`` says more. Not a transaction (reliability P6).

        Args:
            bodies: at least one message, none of them empty.
            split: send several batches, each of at most 1 MiB or 1,000 messages, one after the
                other: all to one partition with *key* or *partition*, else wherever there is room.
                ``accepted`` of an error tells how many messages batches before it stored.
            timeout: seconds for everything, all batches included.

        The other arguments, and what is raised, are those of :meth:`publish`; *headers* go with
        every message. ``count`` of the receipt is the number of messages.
        """
        if topic not in self._known_topics:
            self._know(topic)
        checked = check_bodies(bodies)
        limit = self._publish_timeout if timeout is None else check_timeout(timeout)
        traces = (self._trace or sampled(topic)) if trace is None else trace
        publisher, now = self._running().publisher, monotonic()
        plain = key is None and partition is None and headers is None
        if plain and not traces and not split and self._spool is None:
            return publish_plain_batch(publisher, topic, checked, now, now + limit)
        batch = Publication(
            topic,
            checked,
            key,
            check_place(key, partition),
            make_trace_ids(None, len(checked)) if traces else (),
            must_trace=trace is True,
            headers=check_headers(headers, None),
            batch=True,
        )
        send = publish_split if split else publish
        return self._send(send, batch, now + limit)


_CALLS = (
    Producer.publish,
    Producer.publish_many,
    Producer.publish_async,
    Producer.flush,
    Producer.warm,
    Producer.ping,
    Producer.stats,
    Producer.health,
    Producer.partition_of,
    Producer.flush_spool,
    Producer.close,
)
Producer._calls = frozenset(call.__code__ for call in _CALLS)  # noqa: SLF001 - its own
