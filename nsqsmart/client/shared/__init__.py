"""What every client needs. Knows no other room, and starts no thread but for a refresh.

``arguments`` checks what callers give. ``discovery`` finds the lookups and maps addresses;
``directory`` keeps one topology for each topic, and is the only module that starts a thread: one
for a refresh, which ends with it. ``process`` is about forks, signals and the exit. ``receipt`` and
``errors`` are what calls return and raise. ``log_fields``, ``trace_log`` and ``metrics`` are what
they tell of themselves.
"""
