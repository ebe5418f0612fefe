"""Which node leads which partition: what etcd and the lookup daemons settle among themselves.

``coordinator`` is the whole, which the backend calls. ``liveness`` knows which nodes are there,
``leadership`` moves the lead, and both read and change the ``topology``.
"""
