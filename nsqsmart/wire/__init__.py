"""Bytes to values and back, both directions, both dialects; no I/O, no clock, no thread.

``frames`` and ``deliveries`` cut what a server sends, ``command_decoder`` what a client sends;
``commands``, ``messages``, ``receipts``, ``answers`` and ``identify`` say what it means;
``ext`` is the JSON header of a message, ``identify_server`` the server's half of IDENTIFY,
``spool_records`` the messages of a spool on the disk. ``streams`` compresses.

Every decoder takes a stream cut anywhere, and holds at most the frame limit and one read of it.
"""
