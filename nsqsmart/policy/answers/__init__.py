"""What servers answer over HTTP, as values: no I/O.

``documents`` takes JSON out of its envelope. ``lookup`` and ``nodes`` read nsqlookupd, ``stats``
reads nsqd, ``operations`` says what the answer to a change means.
"""
