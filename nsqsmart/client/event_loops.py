"""Blocking calls where they block everything."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger("nsqsmart")

_said: list[bool] = []


def warn_in_event_loop() -> None:
    """Say once that a blocking call was made in a running event loop, and what to do instead."""
    # Whoever runs a loop has imported it.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or _said:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    _said.append(True)
    log.warning(
        "a Producer blocks the event loop it is used in; "
        "write await asyncio.to_thread(producer.publish, topic, body)"
    )
