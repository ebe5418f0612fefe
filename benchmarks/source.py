"""A load source without a limit worth the name, and how near the embedded nsqd comes to it.

python benchmarks/source.py [--nsqd PROGRAM] [--messages N] [--rounds N]
python benchmarks/source.py --serve [--addresses N] [--rate N]

With --serve it is the source alone: it plays an nsqd that has always one more message, prints its
port, answers each line of its standard input with the CPU seconds it has taken, and ends with the
last. It sends one block of frames over and over, holds them back by RDY, and takes nothing but runs
of FIN apart; whose message a FIN names it does not look at. With --rate it sends so many messages
a second instead, each with the time it left in its body.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import HOST, Sample, judge, nsqd, report, shares
from loops import BODY, FIN, HEAD, RECORD, consume, fill, publish_batches, skim, stamped

RDY = 2500
SKIM = "source, batched reader"
LOOP = "source, raw loop"
NSQD = "nsqd, raw loop"
MPUB = "nsqd, MPUB of 100"
AWAITED = "nsqd, MPUB, awaited"
GOAL = 1_500_000
"""Messages a second from the source to the batched reader, on the machine of the first figures."""
GATES = {
    f"{SKIM} / {LOOP}": 1.0,
    f"{NSQD} / {LOOP}": 0.30,
    f"{MPUB} / {NSQD}": 0.5,
}
_BATCH = 100
_WINDOW = 8
_FRAMES = 8192
_PIECE = 64 * 1024
_RESPONSE = 0
_MESSAGE = 2


# ------------------------------------------------------------------------------------ the source


def _block() -> memoryview:
    """Frames of different ids, as they go over the wire."""
    now, size = time.time_ns(), RECORD - 4
    ids = (b"%016x" % number for number in range(_FRAMES))
    return memoryview(b"".join(HEAD.pack(size, _MESSAGE, now, 1, each) + BODY for each in ids))


class Client:
    """A client, and how many messages it has room for."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._room = self._rdy = 0

    def run(self) -> None:
        """Serve it until it goes."""
        rest = self._sock.recv(4, socket.MSG_WAITALL)[4:]
        while data := self._listen():
            rest = self._take(rest + data)
            self._push()

    def _listen(self) -> bytes:
        """What it says next; nothing once it has gone."""
        return self._sock.recv(_PIECE)

    def _push(self) -> None:
        """Send it whatever it has room for."""

    def _take(self, data: bytes) -> bytes:
        """Carry out whole commands; the beginning of another one is left."""
        position = 0
        while True:
            fins = _count_fins(data, position)
            self._room += fins
            position += fins * len(FIN)
            line, newline, _ = data[position : position + _PIECE].partition(b"\n")
            end = position + len(line) + 1
            if not newline:
                return data[position:]
            if line == b"IDENTIFY":
                size = int.from_bytes(data[end : end + 4])
                if len(data) < end + 4 + size:
                    return data[position:]
                end += 4 + size
            self._execute(line)
            position = end

    def _execute(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        if verb == b"IDENTIFY":
            settled = {"version": "1.3.0", "max_rdy_count": RDY, "auth_required": False}
            self._respond(json.dumps(settled).encode())
        elif verb == b"SUB":
            self._respond(b"OK")
        elif verb == b"RDY":
            self._room += int(rest) - self._rdy
            self._rdy = int(rest)
        elif verb == b"REQ":
            self._room += 1
        elif verb == b"CLS":
            # What is in flight comes back by FIN or REQ, and makes no room any more.
            self._room -= self._rdy
            self._rdy = 0
            self._respond(b"CLOSE_WAIT")

    def _respond(self, data: bytes) -> None:
        self._sock.sendall((len(data) + 4).to_bytes(4) + _RESPONSE.to_bytes(4) + data)


class Stream(Client):
    """A client that gets the block over and over."""

    def __init__(self, sock: socket.socket, block: memoryview) -> None:
        super().__init__(sock)
        self._block = block
        self._at = 0

    def _push(self) -> None:
        while self._room > 0:
            start = self._at
            stop = min(start + self._room, _FRAMES)
            self._sock.sendall(self._block[start * RECORD : stop * RECORD])
            self._room -= stop - start
            self._at = stop % _FRAMES


class Trickle(Client):
    """A client that gets a message every now and then, and is listened to in between."""

    def __init__(self, sock: socket.socket, rate: float) -> None:
        super().__init__(sock)
        self._pause = 1 / rate
        self._due = time.monotonic()

    def _listen(self) -> bytes:
        while True:
            left = self._due - time.monotonic()
            if left <= 0:
                self._due += self._pause
                self._send_one()
                continue
            self._sock.settimeout(left)
            try:
                return self._sock.recv(_PIECE)
            except TimeoutError:
                pass

    def _send_one(self) -> None:
        if self._room <= 0:
            return
        self._room -= 1
        now = time.time_ns()
        head = HEAD.pack(RECORD - 4, _MESSAGE, now, 1, b"%016x" % now)
        self._sock.sendall(head + stamped(now))


def _count_fins(data: bytes, position: int) -> int:
    """How many FINs stand one behind the other: no other verb begins with an F."""
    size = len(FIN)
    whole = (len(data) - position) // size
    firsts = data[position : position + whole * size : size]
    return whole - len(firsts.lstrip(b"F"))


def serve(addresses: int, rate: float) -> None:
    """Be the source, at 127.0.0.1 and the addresses behind it, all with one port."""
    block = _block()
    first = socket.create_server((HOST, 0))
    port = first.getsockname()[1]
    others = [socket.create_server((f"127.0.0.{n}", port)) for n in range(2, addresses + 1)]

    def accept(listener: socket.socket) -> None:
        while True:
            sock, _ = listener.accept()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=attend, args=(sock,), daemon=True).start()

    def attend(sock: socket.socket) -> None:
        try:
            client = Trickle(sock, rate) if rate else Stream(sock, block)
            client.run()
        except OSError:
            pass  # the client has gone with messages on their way
        finally:
            sock.close()

    for listener in (first, *others):
        threading.Thread(target=accept, args=(listener,), daemon=True).start()
    print(port, flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)


class Load:
    """A source that runs; ``address`` is its host and port."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._questions, self._answers = process.stdin, process.stdout
        self.address = HOST, int(self._answers.readline())

    def cpu(self) -> float:
        """Seconds of CPU that it has taken."""
        print(file=self._questions, flush=True)
        return float(self._answers.readline())

    def end(self) -> None:
        """Nothing is asked any more."""
        self._questions.close()


@contextmanager
def source(addresses: int = 1, rate: float = 0) -> Iterator[Load]:
    """A running source; it sends *rate* messages a second, or as many as are taken."""
    told = ["--serve", "--addresses", str(addresses), "--rate", str(rate)]
    with subprocess.Popen(
        [sys.executable, str(Path(__file__)), *told],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        load = Load(process)
        try:
            yield load
        finally:
            load.end()


# --------------------------------------------------------------------------------- the comparison


def play(load: tuple[str, int], program: str | None, count: int) -> dict[str, Sample]:
    """One round; an nsqd of its own, so that none has more to remember than another."""
    samples = {
        SKIM: skim(load, "any", 10 * count, RDY),
        LOOP: consume(load, "any", count, RDY),
    }
    with nsqd(program) as address:
        fill(address, "warm", count // 10)
        samples[AWAITED] = publish_batches(address, "awaited", count // 2, _BATCH)
        samples[MPUB] = publish_batches(address, "round", count, _BATCH, _WINDOW)
        # Less than there is, for no thread is to wait for the last ones (loops.fill).
        samples[NSQD] = consume(address, "round", count - RDY, RDY)
    return samples


def main() -> int:
    """Run the rounds; 1 if a gate is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", action="store_true", help="be the source")
    parser.add_argument("--addresses", type=int, default=1, help="of the source alone")
    parser.add_argument("--rate", type=float, default=0, help="of the source alone")
    parser.add_argument("--nsqd", help="a real nsqd program instead of the embedded one")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.addresses, chosen.rate)
        return 0
    count = max(10 * RDY, chosen.messages // (2 * _BATCH) * 2 * _BATCH)
    with source() as load:
        rounds = [play(load.address, chosen.nsqd, count) for _ in range(chosen.rounds)]
    report(f"{len(BODY)} bytes, RDY {RDY}", rounds, LOOP)
    best = max(turn[SKIM].rate for turn in rounds)
    print(f"  goal of the source: {best:,.0f} at best, {GOAL:,} wanted")
    return judge(GATES, {pair: shares(rounds, *pair.split(" / "))[1] for pair in GATES})


if __name__ == "__main__":
    sys.exit(main())
