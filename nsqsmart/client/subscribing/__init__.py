"""One subscribed connection, and what keeps one for each partition.

``supervisor`` has a thread: it looks up, and starts a ``subscription`` for each target. That dials,
subscribes and reads on a thread of its own. ``request`` says with which command, and what a refusal
means. ``start_position`` sets the channel before the first RDY. ``ordered_delivery`` lets one
message of a partition go at a time. ``consumer_runtime`` is the interface of what a subscription
reports to.
"""
