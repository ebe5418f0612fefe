"""The PullSubscription: one connection, used by one thread, without a thread of its own.

``subscription`` is the public class: it looks up, dials and tries again. ``connection`` is the
subscribed socket and its answers. ``unacked`` knows which messages were pulled and not answered.
"""
