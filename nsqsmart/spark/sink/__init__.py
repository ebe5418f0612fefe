"""Writing: ``writers`` is what Spark sees, ``publishing`` publishes the rows of one task.

Executors run ``publishing``; it does not need Spark.
"""
