"""The TCP protocol of nsqd, one connection at a time.

``session`` is the thread of a connection: it reads commands and calls the module of each verb,
``identifying`` (also AUTH), ``publishing_original`` or ``publishing_redesigned``, ``subscribing``
and ``answering``; ``express`` is its short way for PUB. ``bodies`` reads what follows a command.
``connection`` holds the socket, with ``layers`` (TLS, compression) and ``outbox`` (what is still to
be sent, by any thread). ``misbehaving`` carries out faults.
"""
