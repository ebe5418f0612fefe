"""A message is answered once, and never late."""

from __future__ import annotations

import os
from time import monotonic

import pytest

from nsqsmart.client.messages.message import Detailed, Message, ReadBatch
from nsqsmart.client.messages.results import Requeue
from nsqsmart.errors import AlreadyResponded, UsedAfterFork
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.topology import Target
from nsqsmart.wire.messages import EXT_JSON, RawMessage

ADDRESS = Address("a", 4150)


class Source:
    """Stands for a subscription; *late* refuses every answer."""

    topic, channel = "t", "c"
    target = Target.at(Node(ADDRESS, ADDRESS), 3)
    msg_timeout = 60.0
    max_msg_timeout = 900.0
    ordering = None

    def __init__(self) -> None:
        self.heard_at = monotonic()
        self.process = os.getpid()
        self.late = False
        self.live = True
        self.sent: list[tuple[object, ...]] = []

    def _take(self, *answer: object) -> bool:
        if not self.late:
            self.sent.append(answer)
        return not self.late

    def finish(self, message: Message) -> bool:
        return self._take("FIN", message.id)

    def requeue(self, message: Message, delay: float | None, *, backoff: bool) -> bool:
        return self._take("REQ", delay, backoff)

    def touch(self, message: Message) -> bool:
        return self._take("TOUCH")

    def send_requeue(self, message: Message, delay: float) -> None:
        self.sent.append(("REQ now", delay))


class Life:
    """Notes of what would be logged."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def note(self, event: str) -> None:
        self.events.append(event)


ID = (77).to_bytes(8, "big") + (2**64 - 1).to_bytes(8, "big")


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def message(source) -> Message:
    return Message(ReadBatch(source), 1_700_000_000_000_000_000, 2, ID, b"body")


def with_header(source: Source, header: bytes, version: int = EXT_JSON) -> Message:
    raw = RawMessage(1, 1, ID, b"body", version, header, 4096, 50)
    return Detailed._from_raw(ReadBatch(source), raw)


def test_what_it_knows(message):
    assert (message.topic, message.channel, message.partition) == ("t", "c", 3)
    assert message.nsqd == "a:4150"
    assert (message.internal_id, message.trace_id) == (77, 2**64 - 1)
    assert (message.offset, message.size, message.headers, message.tag) == (None, None, {}, None)
    assert ID.hex() in repr(message)
    assert "body" not in repr(message)


@pytest.mark.parametrize("first", ["finish", "requeue"])
@pytest.mark.parametrize("second", ["finish", "requeue", "touch", "detach", "skip"])
def test_a_second_answer_is_a_mistake(message, source, first, second):
    assert getattr(message, first)()
    with pytest.raises(AlreadyResponded):
        getattr(message, second)()
    assert len(source.sent) == 1


def test_a_late_answer_is_false_and_not_sent(message, source):
    source.late = True
    assert message.touch() is False
    assert message.finish() is False
    assert not message.finished
    assert source.sent == []


def test_requeueing_says_how(message, source):
    assert message.requeue(5, backoff=False)
    assert source.sent == [("REQ", 5, False)]


@pytest.mark.parametrize("delay", ["5s", True, b"5"])
def test_a_delay_that_is_no_number_is_refused_before_anything_is_answered(message, delay):
    with pytest.raises(TypeError, match="delay must be seconds"):
        message.requeue(delay)
    with pytest.raises(TypeError, match="delay must be seconds"):
        Requeue(delay)
    assert message.finish()


def test_a_touch_gives_a_fresh_timeout(message):
    message._read_batch.deadline -= 61
    assert message.expired
    before = monotonic()
    assert message.touch()
    assert not message.expired
    assert before + 60 <= message.deadline <= monotonic() + 60


def test_no_touch_goes_beyond_the_servers_maximum(message):
    message._read_batch.at -= 870
    assert message.touch()
    assert message.deadline == message._latest == message.received_at + 900


def test_giving_back_is_at_once_and_only_where_somebody_listens(source):
    Message(ReadBatch(source), 1, 1, ID, b"x")._give_back()
    source.live = False
    Message(ReadBatch(source), 1, 1, ID, b"x")._give_back()
    assert source.sent == [("REQ now", 0.0)]


def test_what_was_given_back_is_answered_too_late(message, source):
    message._give_back()
    message._give_back()
    assert [message.finish(), message.requeue(), message.touch(), message.finish()] == [False] * 4
    assert source.sent == [("REQ now", 0.0)]


def test_what_was_answered_is_not_given_back(message, source):
    message.finish()
    message._give_back()
    assert source.sent == [("FIN", ID)]


def test_a_with_block_finishes_or_requeues(source):
    def message() -> Message:
        return Message(ReadBatch(source), 1, 1, ID, b"x")

    with message() as entered:
        assert entered.body == b"x"
    with pytest.raises(ValueError, match="oops"), message():
        raise ValueError("oops")
    with message():
        raise Requeue(3, backoff=False)
    with pytest.raises(KeyboardInterrupt), message():
        raise KeyboardInterrupt
    assert source.sent == [
        ("FIN", ID),
        ("REQ", None, True),
        ("REQ", 3, False),
        ("REQ", 0.0, True),
    ]


def test_a_with_block_leaves_alone_what_was_answered_in_it(message, source):
    with message:
        message.requeue(5)
    other = Message(ReadBatch(source), 1, 1, ID, b"x")
    other.finish()
    with pytest.raises(ValueError, match="oops"), other:
        raise ValueError("oops")
    assert source.sent == [("REQ", 5, True), ("FIN", ID)]


def test_what_cannot_be_given_back_is_logged_as_lost(source):
    message = Message(ReadBatch(source), 1, 1, ID, b"x")
    message._life = Life()
    message._give_back()
    assert message._life.events == []  # the subscription logs what it sends
    source.live = False
    lost = Message(ReadBatch(source), 1, 1, ID, b"x")
    lost._life = Life()
    lost._give_back()
    assert lost._life.events == ["lost"]


def test_the_extension_header_is_json_or_nothing(source):
    message = with_header(source, b'{"a":1,"##client_dispatch_tag":"blue"}')
    assert message.headers == {"a": 1, "##client_dispatch_tag": "blue"}
    assert message.tag == "blue"
    assert (message.offset, message.size) == (4096, 50)
    for header in [b"[1]", b"{", b"", b"\xff", b"[" * 100_000]:
        assert with_header(source, header).headers == {}
    assert with_header(source, b'{"##client_dispatch_tag":7}').tag is None
    assert with_header(source, b'{"a":1}', version=2).headers == {}


def test_a_wish_to_requeue_is_an_exception():
    assert (Requeue().delay, Requeue().backoff) == (None, True)
    assert Requeue(3, backoff=False).args == (3, False)


def test_on_an_original_server_its_id_is_the_text_that_the_server_knows_it_by():
    """Its bytes are no numbers: they would be those of letters."""

    class Original(Source):
        target = Target.at(Node(ADDRESS, ADDRESS), None)

    def made(id_: bytes) -> Message:
        return Message(ReadBatch(Original()), 1, 1, id_, b"body")

    message = made(b"0d1e2f3a4b5c6d7e")
    assert (message.partition, message.internal_id, message.trace_id) == (None, None, None)
    assert "<Message 0d1e2f3a4b5c6d7e of t/c" in repr(message)
    assert repr(made(b"\x1b[31m\n\xff9876543")).isprintable()


def test_a_child_neither_answers_nor_hides_what_ends_it(message, source):
    source.process += 1  # as if this were the child
    calls = [message.finish, message.requeue, message.touch, message.detach, message.skip]
    for call in [*calls, message.__enter__, lambda: message.__exit__(None, None, None)]:
        with pytest.raises(UsedAfterFork):
            call()
    assert not message.__exit__(SystemExit, SystemExit(), None)
    assert not source.sent
    assert not message.answered


def test_its_public_face_is_what_the_reference_says():
    """Nothing there moves a deadline, or answers, without the server."""
    offered = {name for name in dir(Detailed) if not name.startswith("_")}
    about = "attempts body channel headers id internal_id nsqd offset partition size tag timestamp"
    state = "answered deadline expired finished received_at topic trace_id"
    assert offered == {*about.split(), *state.split(), *CALLS}
    assert not [name for name in Message.__slots__ if name[0] != "_" and name not in offered]


CALLS = ("detach", "finish", "requeue", "skip", "touch")
