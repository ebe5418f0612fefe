"""Takes nsqsmart away from this Python, as if it were not installed. First on PYTHONPATH."""

import os
import sys

sys.path[:] = [each for each in sys.path if each != os.environ["BARE_OF"]]
sys.meta_path[:] = [
    each for each in sys.meta_path if "editable" not in getattr(each, "__module__", "").lower()
]
