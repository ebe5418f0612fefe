"""Reading: what the driver plans, and what executors do.

::

    survey     what the servers have, and where a new query begins; runs in the driver
    spooling   readMode=spool: plans epochs, commits, forgets; runs in the driver
    filling    reads a task of an epoch into the spool; runs in executors
    offsets    readMode=offsets: plans ranges of each partition's log; runs in the driver
    ranges     reads one range; runs in executors
    readers    what Spark sees of all that, in batches and streams

``readers`` calls ``spooling`` or ``offsets`` in the driver, and ``filling`` or ``ranges`` in
executors. ``spooling`` and ``offsets`` ask ``survey``. Only ``readers`` needs Spark.
"""
