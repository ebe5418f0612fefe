"""How a started consumer is."""

from __future__ import annotations

from nsqsmart.client.engine import Engine
from nsqsmart.client.health import Health
from nsqsmart.client.keeper import place_of
from nsqsmart.client.staff import in_hands


def health(engine: Engine) -> Health:
    """What it knows by itself; asks nobody."""
    topology, failure = engine.keeper.topology, engine.keeper.failure
    live = {place_of(each.target) for each in engine.snapshot() if each.live}
    reasons = [str(failure)] if failure else []
    targets = topology.targets if topology else ()
    if topology and not targets and not failure:
        reasons.append(f"no nsqd has topic {engine.topic!r}")
    for target in targets:
        if (place := place_of(target)) not in live:
            where = target.name if target.partition is None else f"partition {target.partition}"
            reasons.append(f"{where}: {engine.troubles.get(place, 'not subscribed yet')}")
    late = engine.timeouts.reason(in_hands(engine.crew, engine.holdings))
    reasons += [late] if late else []
    if engine.regulator.paused:
        reasons.append("paused")
    elif engine.watching:
        reasons.append("backs off after failures")
    if not engine.reached:
        return Health("discovering", tuple(reasons))
    if not live:
        return Health("failing", tuple(reasons))
    return Health("degraded" if reasons else "ready", tuple(reasons))
