"""Faults carried out on one HTTP request, of an nsqd or a lookup daemon."""

from __future__ import annotations

import json
import threading

from nsqsmart.embedded.faults import Action, Fault, FaultPlace
from nsqsmart.embedded.serving.http import Request, ResetConnection, Response, Router, dumps

_OK = 200


def place_of(server: str, request: Request) -> FaultPlace:
    """Where a request arrived, and what it says it is about."""
    partition = request.query.get("partition", "")
    number = int(partition) if partition.isdecimal() else None
    return FaultPlace(server, request.query.get("topic", ""), number)


def misbehave(
    fault: Fault, request: Request, router: Router, closing: threading.Event
) -> Response | None:
    """The answer that *fault* makes of it, None to hang up; *closing* ends what waits."""
    if fault.action is Action.DELAY:
        closing.wait(fault.seconds)
        return router.answer(request)
    if fault.action is Action.NO_PARTITIONS:
        return _without_partitions(router.answer(request))
    if fault.execute:
        router.answer(request)
    if fault.action is Action.REPLY:
        return Response(int(fault.code), fault.text.encode())
    if fault.action is Action.GARBAGE:
        return Response(body=fault.data)
    if fault.action is Action.RESET:
        raise ResetConnection
    if fault.action is Action.STALL:
        closing.wait()
    return None


def _without_partitions(answer: Response) -> Response:
    """The answer of a daemon that the nsqds have still to come back to."""
    if answer.status != _OK:
        return answer
    document = json.loads(answer.body)
    known = document.get("data", document)
    known["producers"] = []
    if "partitions" in known:
        known["partitions"] = {}
    return answer._replace(body=dumps(document))
