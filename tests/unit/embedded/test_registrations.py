"""What lookup daemons remember of nsqds, and what they forget."""

from __future__ import annotations

import pytest

from nsqsmart.embedded.nsqlookupd.registrations import NO_PARTITION, Key, Peer, Registrations

T = Key("t", NO_PARTITION)
PASSING = Key("t#ephemeral", NO_PARTITION)


@pytest.fixture(params=[True, False], ids=["remembers", "forgets"])
def remembers(request) -> bool:
    return request.param


@pytest.fixture
def known(remembers) -> Registrations:
    return Registrations(inactive_after=300, tombstone_lifetime=45, remembers=remembers)


def join(known: Registrations, port: int) -> Peer:
    info = {"broadcast_address": "h", "tcp_port": port, "http_port": port + 1, "version": "1.3.0"}
    peer = Peer(f"127.0.0.1:{port}", info)
    known.join(peer)
    return peer


@pytest.mark.parametrize("how", ["unregister", "leave"])
def test_the_original_daemon_remembers_a_topic_that_nobody_has_any_more(known, remembers, how):
    peer = join(known, 1)
    known.register(peer, T, "c")
    if how == "leave":
        known.leave(peer)
    else:
        known.unregister(peer, T, None)
    assert known.holders("t") == []
    assert known.knows("t") is remembers
    assert known.topics() == (["t"] if remembers else [])
    assert known.channels("t") == (["c"] if remembers else [])


def test_what_is_ephemeral_goes_with_the_last_who_has_it(known):
    first, second = join(known, 1), join(known, 3)
    for peer in (first, second):
        known.register(peer, PASSING, "c#ephemeral")
    known.unregister(first, PASSING, "c#ephemeral")
    known.unregister(first, PASSING, None)
    assert known.topics() == ["t#ephemeral"]
    assert known.channels("t#ephemeral") == ["c#ephemeral"]
    known.unregister(second, PASSING, "c#ephemeral")
    known.unregister(second, PASSING, None)
    assert known.topics() == []
    assert known.channels("t#ephemeral") == []


def test_what_was_made_by_http_stays_until_it_is_deleted(known):
    known.make("t", "c")
    assert (known.topics(), known.channels("t")) == (["t"], ["c"])
    assert known.forget_channel("t", "c")
    assert not known.forget_channel("t", "c")
    known.forget_topic("t")
    assert not known.knows("t")


def test_a_deleted_topic_is_gone_from_its_holders_too(known):
    peer = join(known, 1)
    known.register(peer, T, "c")
    known.forget_topic("t")
    assert known.holders("t") == []
    assert known.channels("t") == []


def test_a_tombstone_hides_until_the_topic_is_registered_anew(known):
    peer = join(known, 1)
    known.register(peer, T, None)
    known.tombstone("t", "h:2")
    assert known.is_tombstoned("t", peer)
    known.unregister(peer, T, None)
    known.register(peer, T, None)
    assert not known.is_tombstoned("t", peer)


def test_nobody_is_hidden_in_advance(known):
    known.tombstone("t", "h:2")
    peer = join(known, 1)
    known.register(peer, T, None)
    assert not known.is_tombstoned("t", peer)


def test_a_silent_peer_is_not_listed():
    known = Registrations(inactive_after=-1, tombstone_lifetime=45, remembers=True)
    known.register(join(known, 1), T, None)
    assert known.peers() == []
    assert known.holders("t") == []
    assert known.knows("t")
