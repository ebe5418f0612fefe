"""The reading half: what came is handed over, and the end is told with its reason."""

from __future__ import annotations

import pytest

from nsqsmart.errors import ConnectionLost, ProtocolError, ServerError
from nsqsmart.names import Address
from nsqsmart.net import reader as reader_module
from nsqsmart.net.reader import Reader
from nsqsmart.wire.deliveries import DeliveryDecoder
from nsqsmart.wire.frames import ERROR, HEARTBEAT_FRAME, OK_FRAME, encode_frame
from nsqsmart.wire.identify import Grant
from nsqsmart.wire.messages import PLAIN
from tests.encoding import CLOSE_WAIT_FRAME
from tests.peers import message_frame


def complement(data: bytes) -> bytes:
    """A layer: every byte is another one."""
    return bytes(255 - byte for byte in data)


class Cancellable:
    """Stands for connection, transport and socket: gives what it was fed, then the end."""

    def __init__(self, *reads: bytes | OSError) -> None:
        self.address = Address("peer", 4150)
        self.transport = self.socket = self
        self.layers: tuple[str, ...] = ()
        self.secret = b""
        self.grant = Grant(msg_timeout=60.0)
        self.reads = list(reads)
        self.asked: list[int | None] = []
        self.dropped = False

    def read(self, count: int | None = None) -> bytes:
        self.asked.append(count)
        found = self.reads.pop(0) if self.reads else b""
        if isinstance(found, OSError):
            raise found
        return found

    def read_exactly(self, count: int) -> bytes:
        return self.read(count)

    def decode(self, data: bytes) -> tuple[bytes, ...]:
        return tuple(complement(data[at : at + 7]) for at in range(0, len(data), 7))

    def drop(self) -> None:
        self.dropped = True


class Notes:
    """Stands for outbox and sink."""

    def __init__(self) -> None:
        self.heard_at = 0.0
        self.asked, self.settled = 5, 0
        self.bodies: list[bytes] = []
        self.batches: list[int] = []
        self.refused: list[ServerError] = []
        self.told: list[str] = []

    def on_messages(self, messages: list[bytes]) -> None:
        self.bodies += messages
        self.batches.append(len(messages))

    def on_refusal(self, error: ServerError) -> None:
        self.refused.append(error)

    def on_close_wait(self) -> None:
        self.told.append("close_wait")

    def answer_heartbeat(self) -> None:
        self.told.append("heartbeat")

    def break_off(self) -> None:
        self.told.append("broken off")


@pytest.fixture
def notes() -> Notes:
    return Notes()


def read(wire: Cancellable, notes: Notes):
    """Run a reader to its end; itself and the reason."""
    decoder = DeliveryDecoder(PLAIN, object, lambda *facts: facts[-1], lambda _, raw: raw.body)
    reader = Reader(wire, decoder, notes, notes)
    reason = reader.run()
    assert wire.dropped
    assert notes.told[-1] == "broken off"
    return reader, reason


def test_messages_arrive_in_order_as_they_came_together(notes):
    frames = [message_frame(n, b"%d" % n) for n in range(5)]
    wire = Cancellable(frames[0] + frames[1] + frames[2][:9], frames[2][9:] + frames[3], frames[4])
    reader, _ = read(wire, notes)
    assert notes.bodies == [b"0", b"1", b"2", b"3", b"4"]
    assert notes.batches == [2, 2, 1]
    assert reader.received == 5


def test_layers_are_taken_off(notes):
    wire = Cancellable(complement(message_frame(0, b"a") + HEARTBEAT_FRAME))
    wire.layers = ("complement",)
    read(wire, notes)
    assert notes.bodies == [b"a"]
    assert notes.told[0] == "heartbeat"


def test_heartbeats_are_answered_and_answers_of_no_interest_passed_over(notes):
    read(Cancellable(OK_FRAME + HEARTBEAT_FRAME, HEARTBEAT_FRAME), notes)
    assert notes.told == ["heartbeat", "heartbeat", "broken off"]


def test_every_byte_is_a_sign_of_life(notes, monkeypatch):
    now = iter([1.0, 2.0])
    heard = []
    monkeypatch.setattr(reader_module, "monotonic", lambda: next(now))
    notes.on_messages = lambda messages: heard.append(notes.heard_at)
    frame = message_frame(0)
    read(Cancellable(frame[:3], frame[3:]), notes)
    assert heard == [2.0]


def test_more_than_was_asked_for_ends_it_and_is_told(notes):
    notes.settled = 7
    more, asked = 5 * [message_frame(0)], notes.asked
    _, reason = read(Cancellable(*(b"".join(more) for _ in range(100))), notes)
    assert isinstance(reason, ProtocolError)
    assert str(reason).startswith(f"peer:4150 ignores RDY: it was asked for {asked} messages")
    assert sum(notes.batches) <= 7 + 3 * asked + 64


def test_close_wait_is_told(notes):
    read(Cancellable(CLOSE_WAIT_FRAME), notes)
    assert notes.told == ["close_wait", "broken off"]


@pytest.mark.parametrize("code", ["E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"])
def test_a_late_answer_is_told_and_the_connection_goes_on(notes, code):
    late = encode_frame(ERROR, code.encode() + b" FIN 0000 failed ID not in flight")
    read(Cancellable(late + message_frame(1, b"next")), notes)
    assert [error.code for error in notes.refused] == [code]
    assert notes.bodies == [b"next"]


@pytest.mark.parametrize("code", ["E_FAILED_ON_NOT_LEADER", "E_INVALID"])
def test_any_other_error_is_the_end(notes, code):
    _, reason = read(Cancellable(encode_frame(ERROR, code.encode()), message_frame(1)), notes)
    assert isinstance(reason, ServerError)
    assert reason.code == code
    assert notes.bodies == []


@pytest.mark.parametrize(
    ("reads", "kind", "said"),
    [
        ((), ConnectionLost, "peer:4150 closed"),
        ((ConnectionResetError("reset"),), ConnectionLost, "peer:4150 lost: reset"),
        ((b"\xff" * 20,), ProtocolError, "max_frame_size"),
    ],
    ids=["closed", "reset", "garbage"],
)
def test_the_reason_of_the_end_is_the_answer(notes, reads, kind, said):
    _, reason = read(Cancellable(*reads), notes)
    assert isinstance(reason, kind)
    assert said in str(reason)


def test_the_rest_of_a_large_frame_is_waited_for_in_one_call(notes):
    frame = message_frame(1, b"x" * 100_000)
    wire = Cancellable(frame[:1000], frame[1000:])
    read(wire, notes)
    assert wire.asked == [None, len(frame) - 1000, None]
    assert notes.bodies == [b"x" * 100_000]


def test_compressed_bytes_are_never_waited_for_by_the_size_of_what_they_hold(notes):
    frame = message_frame(1, b"x" * 100_000)
    wire = Cancellable(complement(frame[:1000]), complement(frame[1000:]))
    wire.layers = ("complement",)
    read(wire, notes)
    assert notes.bodies == [b"x" * 100_000]
    assert wire.asked == [None, None, None]


def test_a_sink_that_fails_leaves_no_socket():
    class Failing(Notes):
        def on_messages(self, messages: list[bytes]) -> None:
            raise ValueError("oops")

    wire = Cancellable(message_frame(1))
    with pytest.raises(ValueError, match="oops"):
        read(wire, Failing())
    assert wire.dropped
