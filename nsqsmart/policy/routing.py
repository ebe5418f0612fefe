"""Which target a publish goes to: by its key, or turn by turn.

The hash is part of the public contract: producers in several languages keep one order only if
they agree on it (reference vectors: the Java and Go clients of the redesigned NSQ).
"""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable, Collection, Sequence
from itertools import count

from nsqsmart.errors import ConfigError, DiscoveryError
from nsqsmart.names import Address
from nsqsmart.policy.topology import Target

Key = str | int | bytes
Sharding = str | Callable[[Key, int], int]

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_SIGN32 = 0x80000000
_INT64 = 1 << 63

# A codec is imported on first use. A process that forks while one thread does so hands its child
# the lock of that import, and no thread there releases it. So the codec is imported here, not in
# the middle of a publish.
_JAVA_CODEC = "utf-16-be"
codecs.lookup(_JAVA_CODEC)


def partition_for(key: Key, partition_num: int, sharding: Sharding = "java") -> int:
    """The partition of *key* among *partition_num*.

    Raises TypeError for a key the scheme cannot take, :class:`ConfigError` for a scheme that does
    not exist or a callable that answers outside of 0 to *partition_num* - 1,
    :class:`DiscoveryError` while no lookup has told how many partitions there are.
    """
    check_key(key)
    if partition_num < 1:
        raise DiscoveryError("no lookup has told the number of partitions")
    if callable(sharding):
        chosen = sharding(key, partition_num)
        if type(chosen) is not int or not 0 <= chosen < partition_num:
            raise ConfigError(
                f"sharding callable answered {chosen!r}; expected 0 to {partition_num - 1}"
            )
        return chosen
    scheme = _SCHEMES.get(sharding)
    if scheme is None:
        raise ConfigError(f"sharding {sharding!r} is none of {', '.join(_SCHEMES)} or a callable")
    return scheme(key, partition_num)


def check_key(key: object) -> Key:
    """Return *key*; raises TypeError unless it is str, int or bytes (bool is refused)."""
    if isinstance(key, bool) or not isinstance(key, str | int | bytes):
        raise TypeError(f"key must be str, int or bytes, not {type(key).__name__}")
    return key


def java_hash(key: str | int) -> int:
    """``String.hashCode()`` or ``Long.hashCode()``, as a signed 32-bit number."""
    if isinstance(key, str):
        value = 0
        units = key.encode(_JAVA_CODEC, "surrogatepass")
        for index in range(0, len(units), 2):
            value = (31 * value + (units[index] << 8 | units[index + 1])) & _MASK32
    else:
        if not -_INT64 <= key < _INT64:
            raise TypeError(f"key {key} does not fit Java's Long (64 bits)")
        bits = key & _MASK64
        value = (bits ^ (bits >> 32)) & _MASK32
    return value - (1 << 32) if value & _SIGN32 else value


def murmur3(data: bytes) -> int:
    """MurmurHash3 x86 32 bit, seed 0."""
    value = 0
    whole = len(data) & ~3
    for index in range(0, whole, 4):
        value ^= _murmur_mix(int.from_bytes(data[index : index + 4], "little"))
        value = (value << 13 | value >> 19) & _MASK32
        value = (value * 5 + 0xE6546B64) & _MASK32
    if whole != len(data):
        value ^= _murmur_mix(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = ((value ^ value >> 16) * 0x85EBCA6B) & _MASK32
    value = ((value ^ value >> 13) * 0xC2B2AE35) & _MASK32
    return value ^ value >> 16


def _murmur_mix(block: int) -> int:
    block = (block * 0xCC9E2D51) & _MASK32
    block = (block << 15 | block >> 17) & _MASK32
    return (block * 0x1B873593) & _MASK32


def _by_java(key: Key, partition_num: int) -> int:
    if isinstance(key, bytes):
        raise TypeError('sharding="java" takes str or int keys; use "murmur3" or "crc32" for bytes')
    # Java: the remainder is truncated, then its sign dropped; the same as abs(h) mod n.
    return abs(java_hash(key)) % partition_num


def _by_murmur3(key: Key, partition_num: int) -> int:
    return murmur3(_as_bytes(key)) % partition_num


def _by_crc32(key: Key, partition_num: int) -> int:
    return zlib.crc32(_as_bytes(key)) % partition_num


def _by_modulo(key: Key, partition_num: int) -> int:
    if not isinstance(key, int) or key < 0:
        raise TypeError('sharding="modulo" takes int keys of 0 and above')
    return key % partition_num


def _as_bytes(key: Key) -> bytes:
    if isinstance(key, str):
        return key.encode("utf-8", "surrogatepass")
    # Not str(): a member of an enumeration is hashed by its value.
    return key if isinstance(key, bytes) else b"%d" % key


_SCHEMES: dict[str, Callable[[Key, int], int]] = {
    "java": _by_java,
    "murmur3": _by_murmur3,
    "crc32": _by_crc32,
    "modulo": _by_modulo,
}


class Rotation:
    """Turn by turn over the targets; those that just failed come last. Any thread may use it."""

    def __init__(self, start: int = 0) -> None:
        self.turns = count(start + 1)
        """The numbers of the turns; a caller that chooses without :meth:`pick` takes one here."""

    def pick(self, targets: Sequence[Target], avoid: Collection[Address] = ()) -> Target:
        """The next target; *targets* must not be empty."""
        turn = next(self.turns)
        if avoid:
            for step in range(len(targets)):
                target = targets[(turn + step) % len(targets)]
                if target.address not in avoid:
                    return target
                # One more turn is taken, or the target after a dead node would have two.
                next(self.turns)
        return targets[turn % len(targets)]
