"""The commands, one module each; ``topic`` and ``channel`` are both in ``changing``.

Each has ``add_parser(commands)``, which sets ``run``: a function that takes the parsed flags and
returns the exit code. :mod:`nsqsmart.cli` imports only the module of the command that was given.
No command imports another one.
"""
