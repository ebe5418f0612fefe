"""One topology out of many answers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.names import Address, Dialect
from nsqsmart.policy.answers.lookup import LookupAnswer, Node, TopicMeta, TopicState
from nsqsmart.policy.topology import Refused, Target, Topology, direct, merge

FOUND, UNKNOWN, NO_CHANNEL = TopicState.FOUND, TopicState.UNKNOWN, TopicState.NO_CHANNEL
HA = "0.3.7-HA.1.13.0"


def old(host: str) -> Node:
    return Node(Address(host, 4150), Address(host, 4151), "1.3.0")


def new(host: str) -> Node:
    return Node(Address(host, 4150), Address(host, 4151), HA)


def original(*hosts: str, skipped: int = 0) -> LookupAnswer:
    return LookupAnswer(FOUND, {}, tuple(map(old, hosts)), skipped=skipped)


def led(*hosts: str | None, num: int | None = None, skipped: int = 0) -> LookupAnswer:
    """A redesigned answer: the leaders of partition 0, 1, ...; None where none is listed."""
    leaders = {number: new(host) for number, host in enumerate(hosts) if host}
    meta = TopicMeta(len(hosts) if num is None else num)
    producers = tuple(dict.fromkeys(leaders.values()))
    return LookupAnswer(FOUND, leaders, producers, meta, redesigned=True, skipped=skipped)


NOT_FOUND = LookupAnswer(UNKNOWN, {})
EMPTY = LookupAnswer(UNKNOWN, {}, redesigned=True)
WITHHELD = LookupAnswer(NO_CHANNEL, {}, redesigned=True)


def picture(
    *answers: LookupAnswer, previous: Topology | None = None, refused: Iterable[Refused] = ()
) -> Topology:
    return merge("t", answers, previous, now=7.0, refused=list(refused))


def hosts(topology: Topology) -> dict[int, str]:
    return {number: node.address.host for number, node in topology.leaders.items()}


def gone(partition: int | None, host: str) -> Refused:
    return Refused(partition, Address(host, 4150))


# Original answers.


def test_original_answers_are_united() -> None:
    topology = picture(original("a", "b"), original("b", "c"), NOT_FOUND)
    assert [node.address.host for node in topology.nodes] == ["a", "b", "c"]
    assert topology.state is FOUND
    assert topology.leaders == {}
    assert topology.dialect is Dialect.ORIGINAL
    assert topology.partition_num == 0
    assert [(target.name, target.partition) for target in topology.targets] == [
        ("a:4150", None),
        ("b:4150", None),
        ("c:4150", None),
    ]
    assert (topology.topic, topology.generation, topology.taken_at) == ("t", 1, 7.0)


def test_the_same_host_with_another_port_is_another_nsqd() -> None:
    both = [Node(Address("a", port), Address("a", 0)) for port in (1, 2)]
    assert picture(LookupAnswer(FOUND, {}, tuple(both))).nodes == tuple(both)


def test_an_original_node_that_is_listed_no_more_is_gone() -> None:
    before = picture(original("a", "b"))
    assert [node.address.host for node in picture(original("b"), previous=before).nodes] == ["b"]
    assert picture(NOT_FOUND, previous=before).nodes == ()


@pytest.mark.parametrize("forgotten", [[NOT_FOUND], [LookupAnswer(UNKNOWN, {}), NOT_FOUND]])
def test_original_nodes_stay_for_who_keeps_them_until_an_error_proves_them_gone(forgotten) -> None:
    def keep(previous: Topology | None, *answers: LookupAnswer, refused=()) -> Topology:
        return merge("t", answers, previous, now=8.0, refused=refused, keeps=True)

    before = picture(original("a", "b"))
    kept = keep(before, *forgotten)
    assert (kept.state, kept.nodes, kept.generation) == (FOUND, before.nodes, 2)
    left = keep(kept, *forgotten, refused=[gone(None, "a"), gone(0, "b")])
    assert [node.address.host for node in left.nodes] == ["b"]
    assert keep(left, *forgotten, refused=[gone(None, "b")]).state is UNKNOWN
    # A lookup that knows the topic, or why writes are refused, is believed.
    assert [node.address.host for node in keep(before, original("b"), *forgotten).nodes] == ["b"]
    assert keep(before, WITHHELD, *forgotten).state is NO_CHANNEL
    assert keep(None, *forgotten).state is UNKNOWN


# Partitions.


def test_each_partition_has_one_target() -> None:
    topology = picture(led("a", "b", "a"), led("a", "b", "a"))
    assert hosts(topology) == {0: "a", 1: "b", 2: "a"}
    assert topology.nodes == ()  # the leaders' second listing is none of an old nsqd
    assert topology.dialect is Dialect.REDESIGNED
    assert [(target.address.host, target.partition) for target in topology.targets] == [
        ("a", 0),
        ("b", 1),
        ("a", 2),
    ]
    assert topology.targets[0] == Target(new("a"), 0, "a:4150")


def test_targets_come_in_the_order_of_partitions() -> None:
    answer = LookupAnswer(FOUND, {2: new("c"), 0: new("a")}, redesigned=True)
    assert [target.partition for target in picture(answer).targets] == [0, 2]


def test_the_count_is_that_of_the_metadata() -> None:
    assert picture(led("a", num=8)).partition_num == 8
    assert picture(led("a", num=4), led("a", num=8), led("a", num=2)).partition_num == 8
    assert picture(led(None, None, num=2)).partition_num == 2


def test_a_partition_that_nobody_lists_lacks_a_leader() -> None:
    assert picture(led("a", None, num=2)).lacks_leaders
    assert picture(led("a", "b", num=3)).lacks_leaders
    assert not picture(led("a", "b", num=2)).lacks_leaders
    assert not picture(original("a")).lacks_leaders
    assert not picture(NOT_FOUND).lacks_leaders


def test_without_metadata_the_count_is_what_was_seen() -> None:
    assert picture(led("a", None, "c", num=0)).partition_num == 3


def test_a_count_once_told_holds_while_answers_lack_it() -> None:
    """Or else keys would move: here partition 3 is refused and no lookup lists it."""
    before = picture(led("a", "b", "c", "d"))
    after = picture(led("a", num=0), previous=before, refused=[gone(3, "d")])
    assert hosts(after) == {0: "a", 1: "b", 2: "c"}
    assert after.partition_num == 4


def test_the_metadata_is_taken_whole() -> None:
    meta = TopicMeta(2, ordered=True, extended=True)
    answer = LookupAnswer(FOUND, {}, (), meta, redesigned=True)
    assert picture(led("a", num=1), answer).meta == meta
    assert picture(led("a", num=3), previous=picture(answer)).meta == TopicMeta(3)


def test_old_nsqds_stand_beside_the_partitions() -> None:
    answer = LookupAnswer(
        FOUND, {0: new("a")}, (new("a"), new("b"), old("c")), TopicMeta(1), redesigned=True
    )
    topology = picture(answer, original("c", "d"))
    assert [target.name for target in topology.targets] == ["a:4150", "c:4150", "d:4150"]
    assert [target.partition for target in topology.targets] == [0, None, None]


def test_a_leader_is_no_old_nsqd_whatever_its_version() -> None:
    unknown = Node(Address("a", 4150), Address("a", 4151))
    answer = LookupAnswer(FOUND, {0: unknown}, (unknown,), TopicMeta(1), redesigned=True)
    assert [target.partition for target in picture(answer).targets] == [0]


# One leader each.


@pytest.mark.parametrize(
    ("named", "refused", "elected"),
    [
        (["a"], [], "a"),
        (["a", "b", "b"], [], "b"),
        (["b", "a", "b"], [], "b"),
        (["a", "b"], [], "a"),  # the leading lookup comes first
        (["b", "a"], [], "b"),
        (["a", "b"], ["a"], "b"),
        (["a", "b"], ["b"], "a"),
        (["a", "b", "c"], ["a"], "b"),
        (["a", "b", "c"], ["a", "b"], "c"),
        (["a", "a", "b"], ["a"], "a"),  # the majority, even so
        (["a", "b", "b", "a"], ["a"], "b"),
        (["a", "b"], ["a", "b"], "a"),
        (["a"], ["a"], "a"),  # no lookup names another one
        ([None, "b"], [], "b"),
        ([None, None, "b"], ["b"], "b"),
    ],
)
def test_election(named: list[str | None], refused: list[str], elected: str) -> None:
    topology = picture(*map(led, named), refused=[gone(0, host) for host in refused])
    assert hosts(topology) == {0: elected}


def test_what_was_refused_counts_for_its_partition_alone() -> None:
    topology = picture(led("a", "a"), led("b", "b"), refused=[gone(1, "a"), gone(None, "a")])
    assert hosts(topology) == {0: "a", 1: "b"}


def test_a_new_answer_wins_over_the_old_picture() -> None:
    assert hosts(picture(led("b"), previous=picture(led("a")))) == {0: "b"}


# Partial knowledge.


def test_a_partition_that_is_not_listed_keeps_its_leader() -> None:
    before = picture(led("a", "b"))
    assert hosts(picture(led(None, "c", num=2), previous=before)) == {0: "a", 1: "c"}
    assert hosts(picture(led(None, None, num=2), previous=before)) == {0: "a", 1: "b"}


def test_unless_an_error_has_proved_it_wrong() -> None:
    before = picture(led("a", "b"))
    after = picture(led(None, None, num=2), previous=before, refused=[gone(0, "a")])
    assert hosts(after) == {1: "b"}
    assert after.partition_num == 2
    assert hosts(picture(led(None, None, num=2), previous=after)) == {1: "b"}  # stays away
    other = picture(led(None, None, num=2), previous=before, refused=[gone(0, "b")])
    assert hosts(other) == {0: "a", 1: "b"}


def test_unless_the_topic_has_no_such_partition_any_more() -> None:
    before = picture(led("a", "b", "c"))
    assert hosts(picture(led("a", num=2), previous=before)) == {0: "a", 1: "b"}


def test_an_empty_200_is_partial_knowledge_too() -> None:
    """Of an unknown topic a reader hears the same: only an error can tell them apart."""
    before = picture(led("a", "b"))
    after = picture(EMPTY, EMPTY, previous=before)
    assert (after.state, hosts(after), after.partition_num) == (FOUND, {0: "a", 1: "b"}, 2)
    assert after.generation == 2
    assert hosts(picture(EMPTY, NOT_FOUND, previous=before)) == {0: "a", 1: "b"}
    everyone = [gone(0, "a"), gone(1, "b")]
    assert picture(EMPTY, previous=after, refused=everyone).state is UNKNOWN


def test_a_404_of_every_lookup_is_no_partial_knowledge() -> None:
    before = picture(led("a", "b"))
    after = picture(NOT_FOUND, NOT_FOUND, previous=before)
    assert (after.state, after.targets, after.generation) == (UNKNOWN, (), 2)
    assert hosts(picture(led(None, None, num=2), previous=after)) == {}  # none comes back
    assert picture(EMPTY, previous=after).state is UNKNOWN


def test_old_nsqds_alone_do_not_make_an_empty_200_a_topic() -> None:
    assert picture(EMPTY, previous=picture(original("a"))).state is UNKNOWN


# States.


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ([], UNKNOWN),
        ([NOT_FOUND], UNKNOWN),
        ([EMPTY], UNKNOWN),
        ([NOT_FOUND, WITHHELD], NO_CHANNEL),
        ([WITHHELD, EMPTY], NO_CHANNEL),
        ([WITHHELD, original("a")], FOUND),
        ([NOT_FOUND, led("a")], FOUND),
    ],
)
def test_state(answers: list[LookupAnswer], state: TopicState) -> None:
    assert picture(*answers).state is state


def test_a_topic_without_a_channel_has_no_targets() -> None:
    assert picture(WITHHELD, previous=picture(led("a"))).targets == ()


@pytest.mark.parametrize(
    ("answers", "before", "redesigned"),
    [
        ([NOT_FOUND], None, False),
        ([EMPTY], None, True),
        ([WITHHELD], None, True),
        ([original("a")], None, False),
        ([original("a"), led("b")], None, True),
        ([original("a"), EMPTY], None, False),
        ([NOT_FOUND], led("b"), True),
        ([original("a")], led("b"), True),
        ([original("a")], original("b"), False),
    ],
)
def test_once_partitions_were_seen_the_cluster_is_a_redesigned_one(
    answers: list[LookupAnswer], before: LookupAnswer | None, redesigned: bool
) -> None:
    topology = picture(*answers, previous=picture(before) if before else None)
    assert topology.redesigned == redesigned
    assert topology.dialect is (Dialect.REDESIGNED if redesigned else Dialect.ORIGINAL)


def test_generations_and_what_was_skipped() -> None:
    first = picture(led("a", skipped=2), original("b", skipped=3))
    assert (first.generation, first.skipped) == (1, 5)
    second = picture(LookupAnswer(UNKNOWN, {}, skipped=4), previous=first)
    assert (second.generation, second.skipped, second.taken_at) == (2, 4, 7.0)
    assert picture(led("a"), previous=second).generation == 3


def test_named_by_hand() -> None:
    topology = direct("t", [Address("a", 1), Address("::1", 2)])
    assert topology.state is FOUND
    assert topology.generation == 1
    assert topology.dialect is Dialect.ORIGINAL
    assert [(target.name, target.partition) for target in topology.targets] == [
        ("a:1", None),
        ("[::1]:2", None),
    ]


def test_an_untold_topic() -> None:
    topology = Topology("t")
    assert (topology.state, topology.targets, topology.partition_num) == (UNKNOWN, (), 0)


NODES = st.sampled_from([new("a"), new("b"), new("c"), old("d")])
ANSWERS = st.builds(
    LookupAnswer,
    st.sampled_from([FOUND, UNKNOWN, NO_CHANNEL]),
    st.dictionaries(st.integers(0, 4), NODES, max_size=4),
    st.lists(NODES, max_size=3).map(tuple),
    st.integers(0, 5).map(TopicMeta),
    st.booleans(),
)
REFUSED = st.builds(Refused, st.none() | st.integers(0, 4), NODES.map(lambda node: node.address))


@given(st.lists(st.tuples(st.lists(ANSWERS, max_size=3), st.sets(REFUSED, max_size=4)), max_size=6))
def test_any_rounds(rounds: list[tuple[list[LookupAnswer], set[Refused]]]) -> None:
    previous: Topology | None = None
    for number, (answers, refused) in enumerate(rounds, 1):
        topology = picture(*answers, previous=previous, refused=refused)
        assert topology.generation == number
        found = [answer for answer in answers if answer.state is FOUND]
        known = previous.leaders if previous else {}
        for partition, node in topology.leaders.items():
            named = [one.leaders[partition] for one in found if partition in one.leaders]
            if named:
                assert node in named
            else:
                assert known[partition] == node
                assert Refused(partition, node.address) not in refused
        assert all(part in topology.leaders for one in found for part in one.leaders)
        assert (topology.state is FOUND) >= bool(found)
        assert topology.state is FOUND or not topology.targets
        places = [(target.partition, target.address) for target in topology.targets]
        assert len(set(places)) == len(places)
        previous = topology
