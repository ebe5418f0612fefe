"""The commands, one module each.

bench, completion, copy, dash, demo, doctor, lookup, pub, server, spool, stat, tail, to_file and
trace are named as the command; ``topic`` and ``channel`` are both in changing.

Each has ``add_parser(commands)``, which sets ``run``: a function that takes the parsed flags and
returns the exit code. :mod:`nsqsmart.cli` imports only the module of the command that was given.
No command imports another one. All run in the main thread; handlers of consumers and the page of
``dash`` have threads of their own.
"""
