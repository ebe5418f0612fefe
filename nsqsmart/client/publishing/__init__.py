"""One blocking publish call. All of it runs in the thread of the caller.

``call`` is the loop: it asks ``placement`` for a target, builds the command, sends it on a pooled
connection, and gives a failure to ``retry``, which says whether there is another attempt.
``placement`` waits in ``turns`` for a keyed message: one unanswered keyed publish for each
partition. ``shared_state`` holds what all calls of a producer share: pool, directory, turns,
failing nsqds.
"""
