"""Decisions without I/O: every function here takes the time as an argument.

``answers`` reads what servers answer and ``topology`` merges it into one immutable snapshot;
``routing`` chooses a target, ``retry`` what follows a failure, ``flow`` how much each connection
may have in flight, ``ordering`` whether a partition's messages come in order; ``trace_rates``
what is traced, ``trace_lines`` what is written of it.
"""
