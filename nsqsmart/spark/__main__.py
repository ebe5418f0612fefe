"""``python -m nsqsmart.spark JOB``, and the file to give to spark-submit."""

import sys

from nsqsmart.spark.jobs import main

if __name__ == "__main__":
    sys.exit(main())
