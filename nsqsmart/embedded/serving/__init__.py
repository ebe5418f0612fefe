"""Sockets, HTTP and flags: what every server here stands on.

``loop`` is the one thread that waits; ``listening`` has the sockets it accepts from. ``http`` has a
thread for each connection, with ``arguments`` and faults (``misbehaving``). ``fetching`` asks other
servers. ``program`` runs a server as a program, with ``flags`` and ``versions``.
"""
