"""HTTP with one deadline: what nsqlookupd and nsqd answer to lookups and to operators.

``session`` keeps the deadline and the bounds, with the package ``requests``. ``lookup`` asks the
lookups of a client. ``admin`` asks and changes servers for an operator.
"""
