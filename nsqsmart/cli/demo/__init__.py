"""The story that ``nsqsmart demo`` tells.

``story`` publishes, consumes, moves a leader and kills an nsqd. Its ledgers note what was
published and what came back.
"""
