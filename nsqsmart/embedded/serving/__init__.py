"""Sockets, HTTP and flags: what every server here stands on.

``server`` is what nsqd and nsqlookupd have in common. ``loop`` is the one thread that waits;
``listening`` has the sockets it accepts from, ``connections`` the thread of each connection.
``http`` goes with ``arguments`` and faults (``misbehaving``). ``fetching`` asks other servers.
``program`` runs a server as a program, with ``flags`` and ``versions``.
"""
