"""The only floor that blocks on the network.

``sockets`` dials and moves bytes against a deadline; ``tls`` is a byte transform; ``handshake``
makes a ``connection`` out of a socket; the ``pool`` lends connections to publishers, a ``reader``
serves a subscription; ``lookup`` asks nsqlookupd; the ``ticker`` knows when, ``threads`` makes
the threads.
"""
