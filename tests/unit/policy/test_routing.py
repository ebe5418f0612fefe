"""Keys choose the partition that the reference clients choose; the rest take turns."""

from __future__ import annotations

import enum
import json
import zlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqsmart.errors import ConfigError, DiscoveryError
from nsqsmart.names import Address
from nsqsmart.policy.answers.lookup import Node
from nsqsmart.policy.routing import Rotation, check_key, java_hash, murmur3, partition_for
from nsqsmart.policy.topology import Target
from tests.helpers import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "sharding.json").read_text())
COUNTS = VECTORS["counts"]
SCHEMES = ["java", "murmur3", "crc32", "modulo"]


@pytest.mark.parametrize("row", VECTORS["java_string"] + VECTORS["java_long"], ids=repr)
def test_java(row: list) -> None:
    key, code, partitions = row
    assert java_hash(key) == code
    assert [partition_for(key, count) for count in COUNTS] == partitions
    assert [partition_for(key, count, "java") for count in COUNTS] == partitions
    assert [abs(code) % count for count in COUNTS] == partitions


@pytest.mark.parametrize("row", VECTORS["murmur3"], ids=repr)
def test_murmur3(row: list) -> None:
    key, code, partitions = row
    assert murmur3(key.encode()) == code
    assert [partition_for(key, count, "murmur3") for count in COUNTS] == partitions
    assert [partition_for(key.encode(), count, "murmur3") for count in COUNTS] == partitions


def test_every_tail_of_murmur3() -> None:
    """Lengths 0 to 5 with high bits, which a signed reading would spoil."""
    data = b"\xff\xfe\xfd\xfc\xfb"
    codes = [murmur3(data[:length]) for length in range(6)]
    assert len(set(codes)) == 6
    assert codes[1] == 0xFD6CF10D
    assert murmur3(b"\0\0\0\0") == 0x2362F9DE


@pytest.mark.parametrize("key", ["123456789", b"123456789", 123456789])
def test_crc32(key: str | int | bytes) -> None:
    assert [partition_for(key, count, "crc32") for count in COUNTS] == [
        0xCBF43926 % count for count in COUNTS
    ]


def test_modulo() -> None:
    assert [partition_for(key, 4, "modulo") for key in (0, 1, 4, 7, 2**80 + 3)] == [0, 1, 0, 3, 3]


@pytest.mark.parametrize("key", [-1, "7", b"7"])
def test_modulo_takes_numbers_only(key: object) -> None:
    with pytest.raises(TypeError, match="0 and above"):
        partition_for(key, 4, "modulo")


def test_java_takes_no_bytes() -> None:
    with pytest.raises(TypeError, match="murmur3"):
        partition_for(b"a", 4)


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1, 10**40])
def test_java_takes_64_bits(key: int) -> None:
    with pytest.raises(TypeError, match="64 bits"):
        partition_for(key, 4)


def test_the_ends_of_64_bits() -> None:
    assert java_hash(2**63 - 1) == java_hash(-(2**63)) == -(2**31)


def test_half_a_surrogate_pair_is_hashed_as_java_does() -> None:
    assert java_hash("\ud83d") == 0xD83D
    assert java_hash("\ud83d\ude00") == java_hash("\U0001f600")


@pytest.mark.parametrize("sharding", ["murmur3", "crc32"])
def test_no_text_is_refused_for_its_characters(sharding: str) -> None:
    assert 0 <= partition_for("\ud83d", 4, sharding) < 4


class Name(str, enum.Enum):  # noqa: UP042 - what str() makes of it is the trap
    A = "abc"


class Number(int, enum.Enum):
    SEVEN = 7


@pytest.mark.parametrize("sharding", SCHEMES)
@pytest.mark.parametrize(("member", "plain"), [(Name.A, "abc"), (Number.SEVEN, 7)])
def test_a_member_of_an_enumeration_is_its_value(
    sharding: str, member: str | int, plain: str | int
) -> None:
    if sharding == "modulo" and isinstance(plain, str):
        return
    assert partition_for(member, 1024, sharding) == partition_for(plain, 1024, sharding)


@pytest.mark.parametrize("key", [True, False, None, 1.0, ("a",), bytearray(b"a"), object()])
@pytest.mark.parametrize("sharding", [*SCHEMES, lambda key, count: 0])
def test_keys_refused(key: object, sharding: object) -> None:
    with pytest.raises(TypeError, match=f"str, int or bytes, not {type(key).__name__}"):
        partition_for(key, 4, sharding)
    with pytest.raises(TypeError):
        check_key(key)


@pytest.mark.parametrize("key", ["", "a", 0, -1, b""])
def test_keys_taken(key: object) -> None:
    assert check_key(key) is key


def test_a_callable_gets_key_and_count() -> None:
    asked = []

    def choose(key: object, count: int) -> int:
        asked.append((key, count))
        return count - 1

    assert partition_for("k", 5, choose) == 4
    assert asked == [("k", 5)]
    assert partition_for(b"k", 5, lambda key, count: 0) == 0


@pytest.mark.parametrize("answer", [-1, 4, True, 1.0, "1", None])
def test_a_callable_may_only_name_a_partition(answer: object) -> None:
    with pytest.raises(ConfigError, match="expected 0 to 3"):
        partition_for("k", 4, lambda key, count: answer)


def test_unknown_schemes() -> None:
    with pytest.raises(ConfigError, match="'md5' is none of java, murmur3, crc32, modulo or"):
        partition_for("k", 4, "md5")


@pytest.mark.parametrize("sharding", [*SCHEMES, lambda key, count: 0])
@pytest.mark.parametrize("count", [0, -1])
def test_without_a_count_no_partition_is_chosen(sharding: object, count: int) -> None:
    with pytest.raises(DiscoveryError, match="number of partitions"):
        partition_for(7, count, sharding)


@given(st.text(), st.integers(1, 1024))
def test_any_text(key: str, count: int) -> None:
    for sharding in ("java", "murmur3", "crc32"):
        assert 0 <= partition_for(key, count, sharding) < count
    assert partition_for(key, count, "crc32") == zlib.crc32(key.encode()) % count


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1024))
def test_any_long(key: int, count: int) -> None:
    assert 0 <= partition_for(key, count) < count
    assert -(2**31) <= java_hash(key) < 2**31
    for sharding in ("murmur3", "crc32"):
        assert partition_for(key, count, sharding) == partition_for(str(key), count, sharding)


# Turn by turn.


def target(host: str, partition: int | None = None) -> Target:
    address = Address(host, 4150)
    return Target.at(Node(address, address), partition)


A, B, C, D = (target(host) for host in "abcd")


@pytest.mark.parametrize("start", [0, 1, 65535])
def test_every_target_has_its_turn(start: int) -> None:
    rotation = Rotation(start)
    picked = [rotation.pick([A, B, C, D]) for _ in range(40)]
    assert Counter(picked) == {A: 10, B: 10, C: 10, D: 10}
    assert all(len(set(picked[at : at + 4])) == 4 for at in range(37))
    assert picked[0] == [A, B, C, D][(start + 1) % 4]


def test_a_single_target_has_every_turn() -> None:
    rotation = Rotation()
    assert {rotation.pick([A]) for _ in range(5)} == {A}
    assert rotation.pick([A], {A.address}) == A


def test_who_failed_comes_last() -> None:
    rotation = Rotation()
    avoid = {A.address, C.address}
    assert {rotation.pick([A, B, C], avoid) for _ in range(10)} == {B}
    everybody = {A.address, B.address, C.address}
    assert {rotation.pick([A, B, C], everybody) for _ in range(3)} == {A, B, C}


def test_every_partition_of_who_failed_is_avoided() -> None:
    targets = [target("a", 0), target("b", 1), target("a", 2)]
    rotation = Rotation()
    assert {rotation.pick(targets, {Address("a", 4150)}).partition for _ in range(6)} == {1}


def test_the_neighbour_of_who_failed_has_no_second_turn() -> None:
    rotation = Rotation()
    picked = [rotation.pick([A, B, C, D], [A.address]) for _ in range(9)]
    assert Counter(picked) == {B: 3, C: 3, D: 3}
    led = [target("a", 0), target("a", 1), target("b", 2), target("c", 3)]
    rotation = Rotation(-1)
    served: Counter[str] = Counter()
    for _ in range(40):
        chosen = rotation.pick(led)
        if chosen.address.host == "a":
            chosen = rotation.pick(led, {chosen.address})
        served[chosen.address.host] += 1
    assert served == {"b": 20, "c": 20}


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), st.sets(st.sampled_from("abc")))
def test_any_targets(hosts: list[str], down: set[str]) -> None:
    targets = [target(host, number) for number, host in enumerate(hosts)]
    avoid = {Address(host, 4150) for host in down}
    allowed = [each for each in targets if each.address not in avoid] or targets
    rotation = Rotation()
    picked = Counter(rotation.pick(targets, avoid) for _ in range(3 * len(allowed)))
    assert picked == dict.fromkeys(allowed, 3)
