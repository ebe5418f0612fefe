"""The broker: what is stored, which consumer gets it next, what was answered. State, no I/O.

``log`` holds the records of one topic partition, ``channel`` the place of one channel in it (with
``original_channel`` and ``redesigned_channel`` for what the dialects do differently), ``consumer``
what one subscribed connection has in hand, and ``partition`` ties them together. Time comes in as
an argument; frames go out to a :class:`~nsqsmart.embedded.broker.consumer.FrameSink`. The caller
holds a lock of the partition, flushes the sinks that were returned after letting go of it, and
calls back at the time that the :class:`~nsqsmart.embedded.broker.deferring.Alarm` names.
"""
