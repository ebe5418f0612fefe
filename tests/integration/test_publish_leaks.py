"""Nothing stays: no thread, socket or memory, and nothing of the stack of a call that failed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from weakref import ref

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from nsqsmart.errors import PublishError
from nsqsmart.wire.frames import ERROR, encode_frame
from tests.helpers import SOAK
from tests.peers import Peer, Talk, http_answer, http_script
from tests.scripts import programs

MANY = 1000 if SOAK else 300  # producers made and closed, one after another

CYCLES = """
    import gc, tracemalloc
    def cycle(times):
        for number in range(times):
            with nsqsmart.Producer(url) as producer:
                producer.publish("t", b"%d" % number, timeout=20)
    def held():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    def open_files():
        return len(os.listdir("/proc/self/fd"))
    cycle(50)
    tracemalloc.start()
    cycle(50)
    files, memory = open_files(), held()
    cycle({times})
    print(threading.active_count(), open_files() - files, max(0, held() - memory) // 20_000)
"""


@pytest.mark.parametrize(
    ("dialect", "lookups", "times"),
    [
        pytest.param("original", 0, 100, id="nsqd"),
        pytest.param("original", 1, 100, id="lookup"),
        pytest.param("redesigned", 1, 100, id="redesigned"),
        pytest.param("original", 0, 1000, id="nsqd, long", marks=pytest.mark.long),
        pytest.param("original", 1, MANY, id="lookup, long", marks=pytest.mark.long),
        pytest.param("redesigned", 1, MANY, id="redesigned, long", marks=pytest.mark.long),
    ],
)
@pytest.mark.timeout(300)
def test_to_open_publish_and_close_leaves_nothing(dialect, lookups, times):
    with (
        Cluster(dialect=dialect, log=False, lookupds=lookups) as cluster,
        programs(cluster.url) as begin,
    ):
        if dialect == "redesigned":
            cluster.create_topic("t")
            cluster.create_channel("t", "c")
        assert begin(CYCLES.format(times=times)).ends(timeout=200) == (0, "1 0 0\n", "")
        assert len(cluster.stored("t")) == times + 100


class Witness:
    """Lives as long as the frame that made it."""


def refuse(talk: Talk) -> None:
    talk.greet()
    talk.publish()
    talk.send(encode_frame(ERROR, b"E_BAD_MESSAGE no"))
    talk.stall()


def lose(talk: Talk) -> None:
    talk.greet()
    talk.publish()
    talk.reset()


def silent(talk: Talk) -> None:
    talk.greet()
    talk.publish()
    talk.stall()


def fail(producer: nsqsmart.Producer) -> Callable[[], Witness | None]:
    """Publish in vain; a look at what lives as long as the stack of that."""
    witness = Witness()
    with suppress(PublishError):
        producer.publish("t", b"x", timeout=0.2)
    return ref(witness)


@pytest.mark.parametrize(
    "script",
    [refuse, lose, silent, Talk.reset, Talk.stall, None],
    ids=["refused", "lost", "silent", "reset", "deaf", "not there"],
)
def test_a_failure_keeps_nothing_of_its_call(script):
    """A slot and a turn end with the last reference to them: no cycle may hold the stack."""
    with Peer(script or Talk.stall) as peer:
        url = peer.url if script else "nsq://127.0.0.1:1"
        with nsqsmart.Producer(url) as producer:
            gc.collect()
            gc.disable()
            try:
                assert fail(producer)() is None
            finally:
                gc.enable()


def test_a_lookup_that_failed_keeps_nothing_of_who_asked():
    broken = http_script(lambda _path: http_answer(500, b"oops"))
    with Peer(broken) as peer:
        url = "nsq+lookupd://{}:{}".format(*peer.address)
        with nsqsmart.Producer(url, lookupd_min_refresh_interval=0.01) as producer:
            look = fail(producer)
            # requests leaves cycles; what is remembered of the failure is words alone.
            gc.collect()
            assert look() is None
