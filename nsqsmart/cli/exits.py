"""Exit codes that several commands have; 0 is good, 1 a failed check, 2 usage (decisions#66)."""

RETRY_LATER = 75
"""Worth trying again later (EX_TEMPFAIL)."""
INTERRUPTED = 130
"""After Ctrl-C or SIGTERM, as shells count it."""
