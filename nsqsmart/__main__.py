"""``python -m nsqsmart``: the command, also where the scripts folder is not on PATH."""

import sys

from nsqsmart.cli import main

if __name__ == "__main__":
    sys.exit(main())
