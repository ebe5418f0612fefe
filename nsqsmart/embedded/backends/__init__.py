"""How a Cluster of each dialect is put together.

``backend`` is the interface that :mod:`nsqsmart.embedded.cluster` calls; ``original`` and
``redesigned`` implement it.
"""
