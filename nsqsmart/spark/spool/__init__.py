"""What the spool holds. Nothing here knows Spark or a server.

``store`` is durable files. ``plan`` says what an epoch reads, ``slots`` is what its tasks have read
and which ids are in doubt; both are written through ``store``.
"""
