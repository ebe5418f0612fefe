"""What several commands use. No module here knows a command.

::

    parsing   argparse with flags as the Go tools take them, and suggestions
    flags     the flags that several commands have; every option of the client as a flag
    ending    waiting in short turns; the end by Ctrl-C, SIGTERM or from inside
    progress  progress bars
    figures   statistics of many servers as rows, for ``stat`` and ``dash``
    records   messages and receipts as JSON
"""
