"""What users hold: Producer, Consumer, Message; composed of net and policy.

``directory`` keeps the picture of the cluster; the ``producer`` routes, lends, exchanges and
retries; the ``consumer`` keeps a ``subscription`` per partition and a ``crew`` of workers; the
``trace_log`` tells what becomes of traced messages.
"""
