"""Who handles the messages of a consumer, by how it was made."""

from __future__ import annotations

from nsqsmart.client.batching import BatchCrew
from nsqsmart.client.crew import Crew
from nsqsmart.client.measuring import make_meter, measured_batch_handler, measured_handler
from nsqsmart.client.pulling import Puller
from nsqsmart.client.results import BatchHandler, Handler, check_plain
from nsqsmart.client.staff import Recruit
from nsqsmart.config import ConsumerConfig
from nsqsmart.errors import ConfigError


def recruiter(
    handler: Handler | None, batch_handler: BatchHandler | None, config: ConsumerConfig
) -> Recruit:
    """What makes the staff; raises TypeError or ConfigError for handlers that cannot be used."""
    if handler is not None and batch_handler is not None:
        raise TypeError("give handler or batch_handler, not both")
    meter = make_meter(config)
    if handler is not None:
        single: Handler = check_plain("handler", handler)
        if meter is not None:
            single = measured_handler(meter, single)
        return lambda boss: Crew(single, boss, config.workers)
    if batch_handler is None:
        return Puller
    several: BatchHandler = check_plain("batch_handler", batch_handler)
    if not config.workers:
        raise ConfigError("batch_handler needs workers=1 or more: a reader cannot wait for a batch")
    if meter is not None:
        several = measured_batch_handler(meter, several)
    return lambda boss: BatchCrew(several, boss, config)
