"""The Admin: blocking calls, without a thread or a kept connection.

``admin`` is the public class. ``operations`` are changes, in either dialect. ``requests`` finds the
servers of one call and asks them. ``probe`` says how far a client gets with one server.
"""
