"""The story that ``nsqsmart demo`` tells.

``story`` publishes, consumes, moves a leader and kills an nsqd. It notes all of it in the
``ledger``, which counts what is lost, twice or out of order.
"""
