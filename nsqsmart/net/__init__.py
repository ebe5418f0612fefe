"""The only floor that blocks on the network.

Below: ``sockets`` dials and moves bytes against a deadline, with ``resolving`` for names;
``transport`` puts TLS and compression on a socket; ``handshake`` makes a ``connection`` of it.

To publish: ``pool`` lends connections; ``pipeline`` sends on one without waiting for answers.
To consume: ``reader`` reads a subscription on a thread of its own, and ``write_buffer`` gathers
what is sent to it; ``pull_reader`` does both without a thread.

``http`` asks nsqlookupd and nsqd. ``threads`` makes the threads, ``ticker`` calls what is due,
``waiters`` are what threads wait on, ``cancel_scope`` ends the sockets of a client all at once.
"""
