"""The topology of a topic: single flight, at most one lookup a second, the last good one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import SimpleNamespace
from weakref import ref

import pytest

from nsqsmart.client.shared import directory as beside_module
from nsqsmart.client.shared import directory as directory_module
from nsqsmart.client.shared.directory import Directory, Entry, poll_interval
from nsqsmart.config import Endpoint, ProducerConfig
from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net import waiters as tokens
from nsqsmart.net.http.lookup import WRITE, Round
from nsqsmart.net.waiters import new_waiter
from nsqsmart.policy.answers.lookup import LookupAnswer, Node, TopicMeta, TopicState
from nsqsmart.policy.topology import Refused
from tests.helpers import eventually
from tests.interrupts import count_places, interrupted_at

OLD, NEW = Address("old", 4150), Address("new", 4150)
UNKNOWN = LookupAnswer(TopicState.UNKNOWN, {})


def led_by(address: Address) -> LookupAnswer:
    node = Node(address, Address(address.host, 4151))
    return LookupAnswer(TopicState.FOUND, {0: node}, meta=TopicMeta(1), redesigned=True)


def produced_by(*addresses: Address) -> LookupAnswer:
    nodes = tuple(Node(each, Address(each.host, 4151)) for each in addresses)
    return LookupAnswer(TopicState.FOUND, {}, nodes)


@pytest.fixture(autouse=True)
def _only_who_is_woken_looks(monkeypatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_AGAIN", 30.0)


class Lookups:
    """Stands for the lookup client: answers as told, and may be held up."""

    def __init__(self, answer: LookupAnswer | None) -> None:
        self.answer = answer
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.original = False

    def ask(self, topic: str, access: object, deadline: float) -> Round:
        self.asked += 1
        assert self.may_answer.wait(10)
        if self.answer is None:
            raise DiscoveryError("no nsqlookupd answered")
        return Round([self.answer], [])

    def nodes_for_new_topic(self, topic: str, deadline: float) -> tuple[Node, ...]:
        return produced_by(OLD, NEW).producers


def make(answer: LookupAnswer | None, **options: object) -> tuple[Directory, Lookups]:
    options = {"lookupd_min_refresh_interval": 0.01} | options
    made = Directory(Endpoint.parse("nsq+lookupd://l:4161"), ProducerConfig(**options), WRITE)
    assert made.discovery is not None
    made.discovery._lookup = lookups = Lookups(answer)
    return made, lookups


def soon() -> float:
    return monotonic() + 5


def leader(directory: Directory) -> Address:
    return directory.get("t", soon()).leaders[0].address


def in_threads(count: int, work: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_what_is_known_is_not_asked_again():
    directory, lookups = make(led_by(OLD))
    assert {leader(directory) for _ in range(10)} == {OLD}
    assert lookups.asked == 1


def test_forty_threads_that_fail_at_once_make_one_lookup():
    directory, lookups = make(led_by(OLD))
    seen = directory.get("t", soon()).generation
    lookups.answer = led_by(NEW)
    lookups.may_answer.clear()
    found = []

    def fail() -> None:
        refused = [Refused(0, OLD)]
        found.append(directory.refresh("t", seen, monotonic() + 60, refused=refused))

    entry = directory._entries["t"]
    entry.asked_at = 0.0
    threads = in_threads(1, fail)
    eventually(lambda: lookups.asked == 2)
    # Not the distance between lookups keeps the others on the ground, but the one in the air.
    entry.asked_at = 0.0
    threads += in_threads(39, fail)
    eventually(lambda: len(entry.waiting) == 39)
    lookups.may_answer.set()
    eventually(lambda: len(found) == 40)
    for thread in threads:
        thread.join(10)
    assert {topology.leaders[0].address for topology in found} == {NEW}
    assert lookups.asked == 2


def test_forced_lookups_keep_their_distance(monkeypatch):
    directory, lookups = make(led_by(OLD), lookupd_min_refresh_interval=30)
    first = directory.get("t", soon())
    again = directory.refresh("t", first.generation, soon(), wait=False)
    assert again is first
    started = monotonic()
    directory.refresh("t", first.generation, started + 0.05)
    assert monotonic() - started >= 0.05
    assert lookups.asked == 1
    assert not directory._entries["t"].waiting


def test_a_newer_picture_than_the_one_that_failed_is_taken_at_once():
    directory, lookups = make(led_by(OLD), lookupd_min_refresh_interval=30)
    newest = directory.get("t", soon())
    assert directory.refresh("t", newest.generation - 1, soon()) is newest
    assert lookups.asked == 1


def test_the_first_after_the_poll_interval_refreshes_and_others_go_on(monkeypatch):
    directory, lookups = make(led_by(OLD))
    directory.get("t", soon())
    directory._entries["t"].stale_at = 0.0
    eventually(lambda: monotonic() > directory._entries["t"].asked_at + 0.01)
    lookups.answer = led_by(NEW)
    lookups.may_answer.clear()
    # Nor does the first one wait for it.
    assert leader(directory) == OLD
    eventually(lambda: lookups.asked == 2)
    assert leader(directory) == OLD
    lookups.may_answer.set()
    directory.beside.join(5)
    assert leader(directory) == NEW
    assert lookups.asked == 2


def test_a_pause_ends_with_its_time_or_with_a_newer_picture_or_at_close():
    directory, _ = make(led_by(OLD))
    directory.pause("t", 0, 0.01)
    ended = []

    def pause() -> None:
        directory.pause("t", directory.get("t", soon()).generation, 60)
        ended.append(True)

    for end in (lambda: directory.refresh("t", 1, soon()), directory.close):
        threads = in_threads(3, pause)
        eventually(lambda: len(directory._entries["t"].waiting) == 3)
        assert not ended
        end()
        for thread in threads:
            thread.join()
        ended.clear()
    directory.pause("t", 2, 60)


def test_a_doubt_holds_until_a_lookup_answers():
    directory, lookups = make(led_by(OLD))
    directory.doubt("t", Refused(0, OLD))
    assert not directory.is_doubted("t", 0, OLD)
    seen = directory.get("t", soon()).generation
    directory.doubt("t", Refused(0, OLD))
    assert directory.is_doubted("t", 0, OLD)
    assert not directory.is_doubted("t", 0, NEW)
    assert not directory.is_doubted("t", 1, OLD)
    lookups.answer = None
    directory.refresh("t", seen, soon())
    assert not directory.is_doubted("t", 0, OLD)
    lookups.answer = led_by(OLD)
    directory.refresh("t", seen, soon())
    assert not directory.is_doubted("t", 0, OLD)


def test_the_last_good_picture_serves_while_lookups_fail():
    directory, lookups = make(led_by(OLD))
    known = directory.get("t", soon())
    lookups.answer = None
    assert directory.refresh("t", known.generation, soon()) is known
    lookups.answer = led_by(NEW)
    assert directory.refresh("t", known.generation, soon()).leaders[0].address == NEW


def test_a_poll_that_failed_is_not_due_again_at_once():
    """A thread that sleeps until a poll is due would not sleep while the lookups are away."""
    directory, lookups = make(led_by(OLD), lookupd_min_refresh_interval=30)
    directory.get("t", soon())
    entry = directory._entries["t"]
    entry.stale_at = entry.asked_at = 0.0
    lookups.answer = None
    assert leader(directory) == OLD
    directory.beside.join(5)
    assert lookups.asked == 2
    assert monotonic() + 25 < directory.due("t") < monotonic() + 31


def test_polls_that_fail_are_further_and_further_apart():
    directory, lookups = make(led_by(OLD), lookupd_min_refresh_interval=1)
    directory.get("t", soon())
    entry, pauses = directory._entries["t"], []
    lookups.answer = None
    for _ in range(8):
        entry.stale_at = entry.asked_at = 0.0
        assert leader(directory) == OLD
        directory.beside.join(5)
        pauses.append(round(directory.due("t") - monotonic()))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    lookups.answer = led_by(OLD)
    entry.stale_at = entry.asked_at = 0.0
    leader(directory)
    directory.beside.join(5)
    assert entry.failures == 0


def test_where_no_thread_can_start_the_old_picture_serves(monkeypatch):
    """At the end of a process; no call waits for a lookup then either."""
    directory, lookups = make(led_by(OLD))
    directory.get("t", soon())
    entry = directory._entries["t"]

    def refuse(*_args: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(beside_module, "spawn", refuse)
    entry.stale_at = entry.asked_at = 0.0
    assert leader(directory) == OLD
    assert lookups.asked == 1
    assert not entry.flying
    # What an error has proved wrong is looked up here and now.
    entry.asked_at = 0.0
    directory.doubt("t", Refused(0, OLD), lost=False)
    lookups.answer = led_by(NEW)
    assert leader(directory) == NEW


@pytest.mark.parametrize("lost", [True, False])
def test_after_a_doubt_the_next_call_looks_up(lost):
    directory, lookups = make(led_by(OLD))
    directory.get("t", soon())
    entry = directory._entries["t"]
    entry.asked_at = 0.0
    lookups.answer = led_by(NEW)
    directory.doubt("t", Refused(0, NEW), lost=lost)
    assert leader(directory) == OLD  # a doubt about another topology than this one
    directory.doubt("t", Refused(0, OLD), lost=lost)
    assert directory.is_doubted("t", 0, OLD) is lost
    assert leader(directory) == NEW
    assert lookups.asked == 2
    entry.asked_at = 0.0
    directory.doubt("t", None)
    assert leader(directory) == NEW
    assert lookups.asked == 3


def test_nsqds_named_by_hand_are_beyond_doubt():
    directory = Directory(Endpoint.parse("nsq://a:4150"), ProducerConfig(), WRITE)
    known = directory.get("t", soon())
    directory.doubt("t", Refused(None, known.targets[0].address))
    assert directory.known("t") is known


def test_without_any_picture_the_reason_is_raised():
    directory, _ = make(None)
    with pytest.raises(DiscoveryError, match="no nsqlookupd answered"):
        directory.get("t", monotonic() + 0.2)


def test_an_interrupt_in_a_lookup_lets_the_next_one_fly(monkeypatch):
    directory, lookups = make(led_by(OLD))

    def interrupted(*_args: object) -> Round:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lookups, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            directory.get("t", soon())
    assert leader(directory) == OLD


def test_an_interrupt_anywhere_lets_the_next_one_fly_even_while_it_is_handled():
    directory, lookups = make(led_by(OLD))
    # An interrupt would break the event of the double itself.
    lookups.may_answer = SimpleNamespace(wait=lambda _seconds: True)
    seen = directory.get("t", soon()).generation
    entry = directory._entries["t"]

    def fail() -> None:
        lookups.answer, entry.asked_at = None, 0.0
        assert directory.refresh("t", seen, soon()).generation == seen

    places = count_places(fail)
    assert places > 20
    for position in range(1, places + 1):
        try:
            with interrupted_at(position):
                fail()
        except KeyboardInterrupt:
            lookups.answer, entry.asked_at = led_by(NEW), 0.0
            newer = directory.refresh("t", seen, monotonic() + 1)
            assert newer.generation > seen
            seen = newer.generation


def test_a_lookup_whose_call_is_gone_is_over():
    directory, _ = make(led_by(OLD))
    waiter = new_waiter()
    directory._entries["t"] = entry = Entry()
    entry.flight = ref(waiter)
    assert entry.flying
    del waiter
    assert leader(directory) == OLD


def test_a_topic_that_nobody_knows_is_asked_for_soon_again():
    directory, lookups = make(UNKNOWN)
    assert directory.get("t", soon()).state is TopicState.UNKNOWN
    lookups.answer = led_by(OLD)
    eventually(lambda: directory.get("t", soon()).state is TopicState.FOUND)


def test_no_poll_is_due_before_anybody_may_ask_again():
    """A thread that sleeps until a poll is due would not sleep at all in between."""
    options = {"lookupd_poll_interval": 0.1, "lookupd_min_refresh_interval": 30}
    directory, _ = make(led_by(OLD), **options)
    directory.get("t", soon())
    entry = directory._entries["t"]
    assert directory.due("t") >= entry.asked_at + 30


def test_polls_are_spread_and_closer_where_there_are_partitions(monkeypatch):
    monkeypatch.setattr(directory_module, "uniform", lambda _low, high: high)
    for answer, seconds in [(led_by(OLD), 20.0), (produced_by(OLD), 60.0)]:
        directory, _ = make(answer)
        before = monotonic()
        topology = directory.get("t", soon())
        assert poll_interval(topology, directory._config) == seconds
        assert before + 1.3 * seconds <= directory.due("t") <= monotonic() + 1.3 * seconds
    directory, _ = make(led_by(OLD), lookupd_poll_interval=7)
    assert poll_interval(directory.get("t", soon()), directory._config) == 7


def test_nsqds_named_by_hand_are_the_picture_for_ever():
    endpoint = Endpoint.parse("nsq://a:4150,b:4150")
    directory = Directory(endpoint, ProducerConfig(), WRITE)
    topology = directory.get("t", soon())
    assert [target.name for target in topology.targets] == ["a:4150", "b:4150"]
    assert directory.refresh("t", topology.generation, soon()) is topology
    assert directory.due("t") == float("inf")
    assert directory.nodes_for_new_topic("t", soon()) == ()


@pytest.mark.parametrize(
    "table",
    [
        {"old:4150": "10.0.0.1:7000"},
        {"old": "10.0.0.1:7000"},
        lambda address: "10.0.0.1:7000",
        lambda address: Address("10.0.0.1", 7000),
    ],
)
@pytest.mark.parametrize("answer", [led_by(OLD), produced_by(OLD)])
def test_addresses_are_translated_before_they_are_dialled(table, answer):
    directory, _ = make(answer, address_map=table)
    (target,) = directory.get("t", soon()).targets
    assert target.address == Address("10.0.0.1", 7000)


def test_a_host_alone_keeps_its_port_and_others_their_address():
    directory, _ = make(produced_by(OLD, NEW), address_map={"old": "10.0.0.1"})
    names = [target.name for target in directory.get("t", soon()).targets]
    assert names == ["10.0.0.1:4150", "new:4150"]


def test_the_policy_has_the_last_word(caplog):
    policy = {"address_policy": lambda address: address.host != "old"}
    directory, _ = make(produced_by(OLD, NEW), **policy)
    assert [target.name for target in directory.get("t", soon()).targets] == ["new:4150"]
    assert "old:4150" in caplog.text
    led, _ = make(led_by(OLD), **policy)
    assert led.get("t", soon()).targets == ()


def test_only_an_original_cluster_offers_nodes_for_a_new_topic():
    directory, lookups = make(UNKNOWN, address_map={"old": "10.0.0.1"})
    assert directory.nodes_for_new_topic("t", soon()) == ()
    lookups.original = True
    found = directory.nodes_for_new_topic("t", soon())
    assert [str(node.address) for node in found] == ["10.0.0.1:4150", "new:4150"]
