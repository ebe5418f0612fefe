"""From trace logs to the trace report: one HTML file without scripts.

::

    lines      what a line of a trace log looks like; the command ``nsqsmart trace`` reads it too
    events     trace logs as one table: an event a row
    lives      from events to lives: what became of each message
    counting   the figures of the report, out of lives and events
    figures    those figures as plain values
    page       the page; it calls drawing and text
    drawing    charts as SVG
    text       words and numbers for people; everything out of a log is escaped there

``jobs/trace`` calls ``events``, ``lives``, ``counting`` and ``page`` in this order. From
``figures`` on nothing knows Spark.
"""
