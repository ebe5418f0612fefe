"""What a :class:`~nsqsmart.embedded.cluster.Cluster` may be told."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from nsqsmart.embedded.nsqd.options import NsqdOptions
from nsqsmart.embedded.script import Script


class ClusterOptions(TypedDict, total=False):
    """Options of a cluster: times in seconds, sizes in bytes.

    ``auto_create`` makes topics on first use (``partitions`` and ``replicas`` of them, redesigned
    only), takes writes without a channel and lets new channels begin at the oldest message.
    ``tcp_ports`` of the nsqds and ``lookupd_ports`` for HTTP, in their order; the others take any.
    ``log`` False forgets what was asked, for speed. ``mem_queue_size`` (10000) messages of each
    original queue are in memory, and lost with a node that is killed.

    How a redesigned cluster behaves in trouble (protocol#scripts; :data:`REAL_TIMES` has the
    figures of real ones):

    * ``create_delay`` (0): from the creation of a topic until its leaders take writes; before that
      they are not there, then refuse as NOT_LEADER, then as NOT_WRITABLE.
    * ``election_delay`` (0.05): how long a node that was lost without a word is missed.
    * ``move_delay`` (0.05): how long writes are refused while a leader moves.
    * ``exit_delay`` (``move_delay``): from the end of a node by SIGTERM to that of its connections.
    * ``replication_timeout`` (0.2): how long a write waits for a replica that does not answer.
    * ``positions_lost`` (0): messages of an unordered channel that were finished, and come again
      from another leader.
    * ``young_channels_lost`` (False): another leader does not know a channel before its first FIN:
      an unordered one is gone, an ordered one begins at the end.
    * ``redeliver_at_move`` (False): consumers get what they have in hand once more before a moving
      leader lets them go.
    * ``ordered_copies`` (0): so many further copies of the first message of an ordered channel on
      each leader; FIN of a copy too early fails with E_FIN_FAILED.
    """

    dialect: str
    nsqds: int
    lookupds: int
    auto_create: bool
    partitions: int
    replicas: int
    create_delay: float
    election_delay: float
    move_delay: float
    exit_delay: float
    replication_timeout: float
    positions_lost: int
    young_channels_lost: bool
    redeliver_at_move: bool
    ordered_copies: int
    msg_timeout: float
    max_msg_timeout: float
    mem_queue_size: int
    max_msg_size: int
    max_body_size: int
    max_rdy_count: int
    max_connections: int
    client_timeout: float
    max_confirm_window: int
    snappy: bool
    deflate: bool
    tls_cert: Path
    tls_key: Path
    tls_root_ca: Path
    tls_client_policy: str
    tls_required: bool
    auth_addresses: tuple[str, ...]
    allow_ext_compatible: bool
    allow_sub_ext_compatible: bool
    tcp_ports: list[int]
    lookupd_ports: list[int]
    log: bool


REAL_TIMES: ClusterOptions = {
    "create_delay": 0.7,
    "election_delay": 22.0,
    "move_delay": 0.5,
    "exit_delay": 1.0,
    "replication_timeout": 12.05,
}
"""How long real clusters take: ``Cluster(nsqds=3, **REAL_TIMES)``.

See protocol#leader-switch and protocol#lost-follower.
"""

_OF_SCRIPT = frozenset(Script.__dataclass_fields__)
_OF_NODES = frozenset(NsqdOptions.__dataclass_fields__)


def check_options(options: ClusterOptions) -> None:
    """Raises TypeError for an option that there is not."""
    unknown = set(options) - set(ClusterOptions.__annotations__)
    if unknown:
        raise TypeError(f"Cluster() got an unexpected option {min(unknown)!r}")


def script_of(options: ClusterOptions) -> Script:
    """How the cluster behaves in trouble."""
    given = {name: value for name, value in options.items() if name in _OF_SCRIPT}
    if "move_delay" in given:
        given.setdefault("exit_delay", given["move_delay"])
    return Script(**given)  # type: ignore[arg-type]


def node_options(options: ClusterOptions) -> dict[str, object]:
    """Those that every nsqd of the cluster gets."""
    return {name: value for name, value in options.items() if name in _OF_NODES}
