"""publish_async: messages that do not wait for each other's answers.

``async_publisher`` takes a message in the thread of the caller. Unkeyed ones leave on
``connections``, one pipeline for each nsqd, with a reader thread each. Keyed ones leave by
``keyed_batches``, on threads of its executor, one batch of a partition at a time. What fails goes
on as an ordinary call in ``async_retry``, on those threads too. ``pending`` is what the caller
holds; its deadline is kept by one timer thread. ``in_flight`` bounds messages and bytes.
"""
