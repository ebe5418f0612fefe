"""Judges the history of a storm; it knows nothing of how the history came about."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from nsqsmart.testing.history import inversions
from tests.storm.notes import Event

STORED, NOT_SENT = "stored", "not_sent"


class Margins(NamedTuple):
    """Seconds that are no fault.

    ``deadline``: how much later than its timeout a call may end. ``handover``: how short before a
    finish() another delivery may be that it could not know of. ``left_behind``: how long a
    consumer may need for a partition that has a leader. ``sight``: how long a look at the leaders
    is worth something.
    """

    deadline: float = 2.0
    handover: float = 0.5
    left_behind: float = 30.0
    sight: float = 5.0


@dataclass
class Verdict:
    """What was found; each list names the messages, calls or consumers."""

    acknowledged: int = 0
    deliveries: int = 0
    copies: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    lost_by_servers: list[str] = field(default_factory=list)
    """Acknowledged, never delivered, and in no server's log."""
    lost: list[str] = field(default_factory=list)
    """Acknowledged, never delivered, and a server has it, or that is unknown."""
    disorder: list[str] = field(default_factory=list)
    false_not_sent: list[str] = field(default_factory=list)
    false_finish: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    left_behind: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def failures(self) -> dict[str, list[str]]:
        """What the client must answer for."""
        return {
            "lost": self.lost,
            "out of order": self.disorder,
            "not_sent, and delivered": self.false_not_sent,
            "finish() True for another's": self.false_finish,
            "calls beyond their deadline": self.late,
            "consumers left behind": self.left_behind,
            "clients that died, or raised what they may not": self.errors,
        }

    @property
    def good(self) -> bool:
        """Whether every count is 0."""
        return not any(self.failures.values())


def missing(events: Iterable[Event]) -> set[str]:
    """What was acknowledged and never delivered."""
    stored, got = set(), set()
    for event in events:
        if event["kind"] == "done" and event["outcome"] == STORED:
            stored.add(event["id"])
        elif event["kind"] == "got":
            got.add(event["id"])
    return stored - got


def judge(
    events: Iterable[Event], held: set[str] | None, margins: Margins | None = None
) -> Verdict:
    """What became of everything in *events*.

    *held* are those of :func:`missing` that a server's log has at the end; None where no log can be
    asked: then what an nsqd acknowledged that was killed later is the server's loss.
    """
    margins = margins or Margins()
    history = sorted(events, key=lambda event: event["at"])
    verdict = Verdict()
    _judge_publishing(history, margins, verdict)
    _judge_losses(history, held, verdict)
    _judge_order(history, verdict)
    _judge_answers(history, margins, verdict)
    _judge_places(history, margins, verdict)
    verdict.errors = [
        f"{event['who']}: {event['error']}" for event in history if event["kind"] == "error"
    ]
    verdict.faults = Counter(event["what"] for event in history if event["kind"] == "fault")
    return verdict


def _judge_publishing(history: list[Event], margins: Margins, verdict: Verdict) -> None:
    sent = {event["id"]: event for event in history if event["kind"] == "sent"}
    got = Counter(event["id"] for event in history if event["kind"] == "got")
    verdict.deliveries = got.total()
    verdict.copies = got.total() - len(got)
    done = [event for event in history if event["kind"] == "done"]
    verdict.outcomes = Counter(event["outcome"] for event in done)
    verdict.acknowledged = verdict.outcomes[STORED]
    for event in done:
        if event["outcome"] == NOT_SENT and event["id"] in got:
            verdict.false_not_sent.append(event["id"])
        took, limit = event["at"] - event["began"], sent[event["id"]]["limit"]
        if took > limit + margins.deadline:
            verdict.late.append(f"{event['id']}: {took:.1f} s of {limit:g}")


def _judge_losses(history: list[Event], held: set[str] | None, verdict: Verdict) -> None:
    gone = missing(history)
    names: dict[str, str] = {}
    killed: dict[str, float] = {}
    for event in history:
        if event["kind"] == "leaders":
            names |= event["places"]
        # "mended" is said behind the kill for certain, and between the two nothing is stored.
        elif event["kind"] == "mended" and event["what"] == "kill nsqd":
            killed[event["server"]] = event["at"]
    for event in history:
        if event["kind"] != "done" or event["id"] not in gone:
            continue
        # Where it is unknown: what was only in the memory of one that was killed afterwards.
        server = names.get(event["nsqd"], event["nsqd"])
        excused = event["began"] < killed.get(server, 0.0)
        by_servers = excused if held is None else event["id"] not in held
        (verdict.lost_by_servers if by_servers else verdict.lost).append(event["id"])


def _judge_order(history: list[Event], verdict: Verdict) -> None:
    """By the first delivery of each message that was acknowledged."""
    stored = {
        event["id"] for event in history if event["kind"] == "done" and event["outcome"] == STORED
    }
    keyed = [
        event
        for event in history
        if event["kind"] == "sent" and event["key"] is not None and event["id"] in stored
    ]
    place = {event["id"]: (event["key"], number) for number, event in enumerate(keyed)}
    delivered = (event["id"] for event in history if event["kind"] == "got")
    found = inversions(place[each] for each in delivered if each in place)
    ids = [event["id"] for event in keyed]
    verdict.disorder = [f"{ids[each.item]} behind {ids[each.behind]}" for each in found]


def _judge_answers(history: list[Event], margins: Margins, verdict: Verdict) -> None:
    """finish() may not say True of what the same nsqd had given to another one before.

    What another leader delivers is unknown while the old one can be heard no more.
    """
    holders: dict[tuple[str, str, str], list[Event]] = defaultdict(list)
    for event in history:
        if event["kind"] not in ("got", "finished"):
            continue
        held = holders[event["nsqd"], event["place"], event["message"]]
        if event["kind"] == "got":
            held.append(event)
            continue
        mine = max((each["at"] for each in held if each["who"] == event["who"]), default=0.0)
        others = [
            each
            for each in held
            if each["who"] != event["who"] and mine < each["at"] < event["at"] - margins.handover
        ]
        if event["ok"] and others:
            told = f"{event['message']} at {event['nsqd']}: {event['who']}, {others[0]['who']}"
            verdict.false_finish.append(told)


class _Watch:
    """Since when each consumer has not had what it should have."""

    def __init__(self, margins: Margins) -> None:
        self._margins = margins
        self._led: dict[tuple[str, str], tuple[str, float]] = {}
        self._seen: dict[str, float] = {}
        self._lacking: dict[tuple[str, str, str], float] = {}
        self.behind: dict[tuple[str, str, str], float] = {}

    def leaders(self, event: Event) -> None:
        """Leaders are known again; a place is served since its node first was seen to."""
        topic, now = event["topic"], event["at"]
        if now - self._seen.get(topic, 0.0) > self._margins.sight:
            self._forget(topic, set())
        self._seen[topic] = now
        self._forget(topic, {(topic, place) for place in event["places"]})
        for place, node in event["places"].items():
            if self._led.get((topic, place), ("",))[0] != node:
                self._led[topic, place] = node, now

    def _forget(self, topic: str, kept: set[tuple[str, str]]) -> None:
        for known in [each for each in self._led if each[0] == topic and each not in kept]:
            del self._led[known]

    def state(self, event: Event) -> None:
        """What a consumer has."""
        topic, now, who = event["topic"], event["at"], event["who"]
        stale = now - self._seen.get(topic, 0.0) > self._margins.sight
        for (known, place), (_, since) in self._led.items():
            if known != topic:
                continue
            key = (who, topic, place)
            if place in event["places"] or stale:
                self._lacking.pop(key, None)
                continue
            # Not before it was led, nor before the consumer was asked first.
            began = max(self._lacking.setdefault(key, now), since)
            if now - began > self._margins.left_behind:
                self.behind[key] = now - began

    def gone(self, event: Event) -> None:
        """A consumer has ended."""
        for key in [each for each in self._lacking if each[0] == event["who"]]:
            del self._lacking[key]


def _judge_places(history: list[Event], margins: Margins, verdict: Verdict) -> None:
    watch = _Watch(margins)
    steps = {"leaders": watch.leaders, "state": watch.state, "gone": watch.gone}
    for event in history:
        if step := steps.get(event["kind"]):
            step(event)
    verdict.left_behind = [
        f"{who}: {topic} {place} for {seconds:.0f} s"
        for (who, topic, place), seconds in watch.behind.items()
    ]
