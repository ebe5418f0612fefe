"""A publish call and its lines in the trace log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from nsqsmart.client.publication import Publication
from nsqsmart.client.receipt import Receipt
from nsqsmart.client.trace_log import log, publish_failed, published
from nsqsmart.errors import PublishError


def with_trace_lines(
    client_id: str, publication: Publication, run: Callable[[], Receipt]
) -> Receipt:
    """Do *run*, and log a line for every message of *publication* that is traced."""
    trace_ids = publication.trace_ids
    if not trace_ids or not log.isEnabledFor(logging.INFO):
        return run()
    begun = monotonic()
    try:
        receipt = run()
    except PublishError as error:
        for trace_id in trace_ids:
            elapsed = monotonic() - begun
            publish_failed(publication.topic, trace_id, error, elapsed, client_id)
        raise
    elapsed = monotonic() - begun
    # Where it was passed over, nothing was traced.
    if receipt.trace_id is not None:
        for number, trace_id in enumerate(trace_ids):
            published(receipt.share(number, trace_id), elapsed, client_id)
    return receipt
