"""How a Cluster of each dialect is put together.

``original`` and ``redesigned`` have the same methods, which :mod:`nsqsmart.embedded.cluster` calls.
"""
