"""The HTTP interface of nsqd, in the envelope of each dialect.

``original`` and ``redesigned`` have the paths, and call the others: ``posting`` for bodies of
/mpub, ``config``, ``stats`` or ``stats_text``. ``operators`` is what only redesigned nsqds offer,
and says there which partition and channel is meant.
"""
