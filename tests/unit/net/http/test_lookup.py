"""Whom a round asks, in which order, for how long, and what is learned of the lookupds."""

from __future__ import annotations

from time import monotonic
from typing import Self

import pytest

from nsqsmart.errors import DiscoveryError
from nsqsmart.names import Address
from nsqsmart.net.http import lookup as lookup_module
from nsqsmart.net.http.lookup import READ, WRITE, LookupClient, LookupOptions
from nsqsmart.policy.answers.lookup import TopicState

A, B, C = Address("a", 4161), Address("b", 4161), Address("c", 4161)
OPTIONS = LookupOptions(request_timeout=2.0, listlookup_interval=60.0, failure_threshold=2)
NOT_FOUND = (404, b'{"message":"NOT_FOUND"}')


class Lookupds:
    """Stands for every session: answers by address, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.dead: set[Address] = set()
        self.hung: set[Address] = set()
        self.slow: dict[Address, float] = {}
        self.members: dict[Address, tuple[int, bytes]] = {}
        self.nodes: dict[Address, tuple[int, bytes]] = {}
        self.asked: list[tuple[str, str]] = []
        self.limits: list[float] = []
        self.open = 0
        self.listing = False

    def __call__(self, _scope: object = None, *, listing: bool = False) -> Lookupds:
        self.listing = listing
        return self

    def __enter__(self) -> Self:
        self.open += 1
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.open -= 1

    def get(self, url: str, deadline: float) -> tuple[int, bytes]:
        host, _, path = url.removeprefix("http://").partition("/")
        address = Address.parse(host, 0)
        self.asked.append((address.host, "/" + path))
        self.limits.append(deadline - self.now)
        self.now += self.slow.get(address, 0.0)
        if address in self.dead:
            raise DiscoveryError("refused")
        if address in self.hung:
            self.now = max(self.now, deadline)
            raise DiscoveryError("no complete answer in time")
        if path == "listlookup":
            return self.members.get(address, NOT_FOUND)
        if path == "nodes":
            return self.nodes.get(address, NOT_FOUND)
        return 200, b'{"channels":[],"producers":[%s]}' % producer(address.host)

    def take(self, what: str = "/lookup") -> str:
        """Who was asked for *what* since the last time, in order."""
        hosts = "".join(host for host, path in self.asked if path.startswith(what))
        self.asked.clear()
        return hosts


def producer(host: str, *, topics: bytes = b"[]", tombstones: bytes = b"[]") -> bytes:
    return (
        b'{"broadcast_address":"nsqd-%s","tcp_port":4150,"http_port":4151,'
        b'"topics":%s,"tombstones":%s}' % (host.encode(), topics, tombstones)
    )


def peers(*hosts: str, leader: str = "") -> tuple[int, bytes]:
    entry = '{"NodeIP":"%s","HttpPort":"4161"}'
    nodes = ",".join(entry % host for host in hosts)
    led = entry % leader if leader else "null"
    return 200, f'{{"lookupdnodes":[{nodes}],"lookupdleader":{led}}}'.encode()


@pytest.fixture
def lookupds(monkeypatch) -> Lookupds:
    made = Lookupds()
    monkeypatch.setattr(lookup_module, "monotonic", lambda: made.now)
    monkeypatch.setattr(lookup_module, "_open_session", made)
    return made


def ask(client: LookupClient, lookupds: Lookupds, budget: float = 20.0):
    return client.ask("t", WRITE, lookupds.now + budget)


def test_every_lookupd_is_asked_and_a_session_lasts_a_round(lookupds):
    found = ask(LookupClient([A, B, A], OPTIONS), lookupds)
    assert [answer.state for answer in found.answers] == [TopicState.FOUND] * 2
    assert found.failed == []
    assert lookupds.take() == "ab"
    assert lookupds.open == 0


@pytest.mark.parametrize(("access", "letter"), [(WRITE, "w"), (READ, "r")])
def test_what_is_asked(lookupds, access, letter):
    client = LookupClient([A], OPTIONS._replace(listlookup_interval=0))
    client.ask("t", access, lookupds.now + 5)
    assert lookupds.asked == [("a", f"/lookup?access={letter}&metainfo=true&topic=t")]


def test_one_that_fails_is_named_and_the_next_round_begins_with_the_others(lookupds):
    lookupds.dead.add(A)
    client = LookupClient([A, B], OPTIONS)
    assert ask(client, lookupds).failed == [(A, "refused")]
    lookupds.take()
    ask(client, lookupds)
    assert lookupds.take()[0] == "b"


def test_past_the_threshold_it_is_asked_ever_less_often_until_it_answers(lookupds):
    options = OPTIONS._replace(listlookup_interval=0)
    lookupds.dead.add(A)
    client = LookupClient([A, B], options)
    rounds = []
    for _ in range(12):
        ask(client, lookupds)
        rounds.append("a" in lookupds.take())
        lookupds.now += 1
    # Twice up to the threshold, then after 1, 2, 4 seconds.
    assert [index for index, asked in enumerate(rounds) if asked] == [0, 1, 2, 4, 8]
    lookupds.dead.clear()
    lookupds.now += 60
    ask(client, lookupds)
    lookupds.take()
    ask(client, lookupds)
    assert lookupds.take() == "ab"


def test_when_none_is_due_all_are_asked(lookupds):
    lookupds.dead |= {A, B}
    client = LookupClient([A, B], OPTIONS._replace(listlookup_interval=0))
    for _ in range(5):
        with pytest.raises(DiscoveryError, match=r"a:4161: refused; b:4161: refused"):
            ask(client, lookupds)
        assert sorted(lookupds.take()) == ["a", "b"]


def test_what_has_come_when_half_the_time_is_gone_is_the_round(lookupds):
    lookupds.slow = {A: 6.0}
    client = LookupClient([A, B], OPTIONS._replace(listlookup_interval=0, request_timeout=30))
    assert len(ask(client, lookupds, budget=10).answers) == 1
    assert lookupds.take() == "a"


def test_no_request_gets_more_than_its_time_or_half_of_what_there_is(lookupds):
    client = LookupClient([A], OPTIONS._replace(listlookup_interval=0))
    ask(client, lookupds, budget=100)
    ask(client, lookupds, budget=1)
    assert lookupds.limits == [2.0, 0.5]


@pytest.mark.parametrize("patience", [0.5, 2.0, 20.0])
def test_one_that_hangs_leaves_the_others_time_to_answer(lookupds, patience):
    lookupds.hung = {A}
    client = LookupClient([A, B, C], OPTIONS)
    deadline = lookupds.now + patience
    found = client.ask("t", WRITE, deadline)
    assert [answer.producers[0].address.host for answer in found.answers] == ["nsqd-b", "nsqd-c"]
    assert lookupds.now <= deadline - patience / 2
    assert client.original


def test_the_nodes_for_a_new_topic_leave_time_to_publish_to_them(lookupds):
    lookupds.hung = {A}
    lookupds.nodes[B] = (200, b'{"producers":[%s]}' % producer("b"))
    client = LookupClient([A, B], OPTIONS)
    deadline = lookupds.now + 1
    assert len(client.nodes_for_new_topic("t", deadline)) == 1
    assert lookupds.now <= deadline - 0.5


def test_who_was_not_asked_has_not_failed(lookupds):
    client = LookupClient([A, B], OPTIONS)
    for _ in range(OPTIONS.failure_threshold):
        with pytest.raises(DiscoveryError, match="no time left"):
            client.ask("t", WRITE, lookupds.now)
    assert lookupds.asked == []
    client.ask("t", WRITE, lookupds.now + 10)
    assert lookupds.take() == "ab"
    lookupds.dead = {A, B}
    with pytest.raises(DiscoveryError):
        client.ask("t", WRITE, lookupds.now + 10)
    # What it was the last time tells more than that there was no time.
    with pytest.raises(DiscoveryError, match="refused"):
        client.ask("t", WRITE, lookupds.now)


def test_further_lookupds_are_learned_and_the_leading_one_is_asked_first(lookupds):
    lookupds.members[A] = peers("a", "b", "c", leader="c")
    client = LookupClient([A], OPTIONS)
    assert len(ask(client, lookupds).answers) == 3
    assert lookupds.take()[0] == "c"
    assert not client.original
    ask(client, lookupds)
    assert lookupds.take("/listlookup") == ""
    lookupds.now += 61
    ask(client, lookupds)
    # One answer is enough: they all tell the same.
    assert lookupds.take("/listlookup") in ("ca", "a")


def test_a_lookup_that_is_not_permitted_is_never_asked(lookupds):
    lookupds.members[A] = peers("a", "b", "c", leader="c")
    refused = [C, A]  # the caller gave the seeds and the policy
    client = LookupClient([A], OPTIONS, permits=lambda address: address not in refused)
    ask(client, lookupds)
    assert sorted(lookupds.take()) == ["a", "b"]
    assert set(client.addresses) == {A, B}


def test_learned_ones_go_once_they_are_unlisted_and_fail_but_seeds_stay(lookupds):
    lookupds.members[A] = peers("a", "b", "c")
    client = LookupClient([A, B], OPTIONS)
    ask(client, lookupds)
    lookupds.members[A] = peers("a")
    lookupds.now += 61
    lookupds.take()
    ask(client, lookupds)
    assert sorted(lookupds.take()) == ["a", "b", "c"]
    lookupds.dead |= {B, C}
    for _ in range(2):
        lookupds.now += 61
        lookupds.take()
        ask(client, lookupds)
    assert sorted(lookupds.take()) == ["a", "b"]


def test_a_list_that_cannot_be_had_leaves_those_that_are_known(lookupds):
    lookupds.members = {A: (500, b"{}"), B: (200, b'{"lookupdnodes":"none"}')}
    client = LookupClient([A, B], OPTIONS)
    assert len(ask(client, lookupds).answers) == 2
    assert not client.original


def test_a_cluster_is_original_when_whoever_answers_knows_no_listlookup(lookupds):
    client = LookupClient([A, B], OPTIONS)
    lookupds.dead.add(B)
    ask(client, lookupds)
    assert client.original
    redesigned = LookupClient([A, B], OPTIONS)
    lookupds.dead.clear()
    lookupds.members[B] = peers("b")
    ask(redesigned, lookupds)
    assert not redesigned.original


def test_nobody_answering_says_nothing_of_the_dialect(lookupds):
    lookupds.dead |= {A, B}
    client = LookupClient([A, B], OPTIONS)
    with pytest.raises(DiscoveryError):
        ask(client, lookupds)
    assert not client.original
    # Or the first publish of a new topic would wait for the next interval.
    lookupds.dead.clear()
    ask(client, lookupds)
    assert client.original


def test_the_nodes_for_a_new_topic_are_those_of_all_but_the_tombstoned(lookupds):
    dead = producer("x", topics=b'["t","u"]', tombstones=b"[true,false]")
    lookupds.nodes[A] = (200, b'{"producers":[%s,%s]}' % (producer("1"), dead))
    lookupds.nodes[B] = (200, b'{"producers":[%s,%s]}' % (producer("1"), producer("2")))
    client = LookupClient([A, B, C], OPTIONS)
    found = client.nodes_for_new_topic("t", lookupds.now + 5)
    assert [node.address.host for node in found] == ["nsqd-1", "nsqd-2"]
    assert len(client.nodes_for_new_topic("u", lookupds.now + 5)) == 3


def names(status: int, body: bytes) -> bytes:
    if status != 200:
        raise DiscoveryError(f"answered {status}")
    return body


def test_what_every_lookupd_says_is_collected(lookupds):
    lookupds.nodes = {A: (200, b"one"), B: (500, b""), C: (200, b"")}
    client = LookupClient([A, B, C], OPTIONS)
    assert client.collect("/nodes", names, lookupds.now + 5) == [b"one", b""]
    # It may be long: every topic and node there is.
    assert lookupds.listing
    assert lookupds.open == 0


def test_nobody_saying_anything_is_an_error(lookupds):
    lookupds.dead.add(A)
    client = LookupClient([A, B], OPTIONS)
    with pytest.raises(DiscoveryError, match=r"\(a:4161: refused; b:4161: answered 404\)"):
        client.collect("/nodes", names, lookupds.now + 5)


def test_a_survey_asks_at_once_who_leads(lookupds):
    lookupds.members[A] = peers("a", "b", leader="a")
    client = LookupClient([A], OPTIONS)
    assert client.addresses == (A,)
    client.survey(lookupds.now + 5)
    assert client.addresses == (A, B)
    lookupds.members[A] = lookupds.members[B] = peers("a", "b", "c", leader="b")
    client.survey(lookupds.now + 5)
    assert client.addresses[0] == B
    assert set(client.addresses) == {A, B, C}
    assert not client.original


def test_a_survey_of_an_original_cluster(lookupds):
    client = LookupClient([A, B], OPTIONS)
    client.survey(lookupds.now + 5)
    assert client.original
    assert client.addresses == (A, B)
    lookupds.dead |= {A, B}
    with pytest.raises(DiscoveryError, match="no nsqlookupd answered"):
        client.survey(lookupds.now + 5)


def test_who_wants_no_further_lookupds_learns_none_by_a_survey(lookupds):
    lookupds.members[A] = lookupds.members[B] = peers("a", "b", "c", leader="b")
    client = LookupClient([A, B], OPTIONS._replace(listlookup_interval=0))
    client.survey(lookupds.now + 5)
    assert client.addresses == (B, A)


def test_the_name_of_an_ephemeral_topic_is_sent_whole(lookupds):
    client = LookupClient([A], OPTIONS._replace(listlookup_interval=0))
    client.ask("t#ephemeral", READ, lookupds.now + 5)
    assert lookupds.asked == [("a", "/lookup?access=r&metainfo=true&topic=t%23ephemeral")]


def test_only_who_looks_up_pays_for_requests():
    import subprocess
    import sys

    code = "import nsqsmart, nsqsmart.net.http.lookup, sys; print('requests' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr


@pytest.mark.parametrize("listing", [True, False])
def test_a_real_session_is_opened_for_a_round(listing):
    with (
        lookup_module._open_session(listing=listing) as session,
        pytest.raises(DiscoveryError, match="refused"),
    ):
        session.get("http://127.0.0.1:1/", monotonic() + 5)
