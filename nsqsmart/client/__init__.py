"""The clients: Producer, Consumer, PullSubscription, Admin. Composed of ``net`` and ``policy``.

::

    shared/       what every client needs: discovery, topologies, errors, logs, metrics, forks
    publishing/   one publish call: placement, turn, attempts, retry
    pipelining/   publish_async: pipelines, keyed batches, the limit on what is in flight
    spooling/     the spool: messages that wait on the disk
    producer/     the Producer, and what it runs on in one process
    messages/     Message, what handlers return, messages without a handler, dead letters
    subscribing/  one subscribed connection, and what keeps one for each partition
    consuming/    the Consumer: workers, RDY controller, timers, shutdown
    pulling/      the PullSubscription: one connection, no thread
    admin/        the Admin: what there is, and what an operator changes

A room imports only from rooms above it in this list: ``shared`` knows no other room,
``publishing`` and ``messages`` know ``shared``, ``pipelining``, ``spooling`` and ``subscribing``
know those, and the clients know them all.
"""
