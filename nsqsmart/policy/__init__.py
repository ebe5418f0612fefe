"""Decisions without I/O: every function here takes the time as an argument.

Where: ``answers`` reads what servers answer over HTTP, ``topology`` merges it into one immutable
snapshot, ``routing`` chooses a target, ``outages`` knows nodes that failed lately.

Publishing: ``retry`` says what follows a failure, ``spool_plan`` what goes next out of a spool.

Consuming: ``flow`` has the shares of ``max_in_flight`` and the backoff, ``governor`` what one
connection needs, ``allotment`` the sum, ``surplus`` whether a server sends more than that.
``ordering`` says whether messages come in order; ``positions`` where a channel is told to go on,
``channel_positions`` where it stands.

Tracing: ``trace_rates`` says what is traced, ``trace_lines`` what is written of it.
"""
