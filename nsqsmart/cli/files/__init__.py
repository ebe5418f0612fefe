"""Files that ``to-file`` writes.

``names`` makes their names as nsq_to_file does. ``appended`` writes lines and gzip, ``parquet``
writes a file for each batch; both take their names from ``names``.
"""
