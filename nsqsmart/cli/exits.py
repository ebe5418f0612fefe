"""Exit codes that several commands have, as DESIGN has them: 0 good, 1 a failed check, 2 usage."""

RETRY_LATER = 75
"""Worth trying again later (EX_TEMPFAIL)."""
INTERRUPTED = 130
"""After Ctrl-C or SIGTERM, as shells count it."""
