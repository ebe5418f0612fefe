"""Where the same tests run: the embedded cluster, and real programs where the tester has some.

``NSQSMART_TEST_NSQ_BIN`` names a folder with the original nsqd and nsqlookupd,
``NSQSMART_TEST_YZ_BIN`` one with the redesigned ones; those need etcd on the PATH.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

from nsqsmart.embedded import Cluster, faults
from nsqsmart.embedded.coordination.topology import Slot
from tests import helpers
from tests.programs import Programs, free_ports, get, post

T = TypeVar("T")

CHANNEL = "ch"
_SLOW = 180.0
_LOOK_EVERY = 0.5


def wait_for(condition: Callable[[], T], what: str) -> T:
    """The first true value of *condition*, asked for at the pace of real servers."""
    return helpers.eventually(condition, _SLOW, what, _LOOK_EVERY)


ENDINGS = {"terminate": "restart", "kill": "restart", "hang": "wake"}
"""How a server of a site can be taken away, and how it comes back: names of methods."""


class Site(Protocol):
    """Servers to test against; a server is called by its name."""

    dialect: str
    url: str
    slow: bool
    """Whether to make a topic takes long."""
    reusable: dict[tuple[int, int, bool], str]
    nodes: list[str]
    """The nsqds."""
    lookups: list[str]
    others: list[str]
    """What else there is: etcd."""

    def make_topic(self, name: str, *, partitions: int, replicas: int, ordered: bool) -> None:
        """Make a topic with one channel, and wait until it takes messages."""

    def places(self, topic: str) -> dict[str, str]:
        """The node that serves each place: a partition, or the "host:port" of an original nsqd."""

    def held(self, bodies: set[bytes]) -> set[bytes] | None:
        """Those of *bodies* that a server has in its log; None where that is unknown."""

    def kill(self, server: str) -> None:
        """End it, by SIGKILL."""

    def terminate(self, server: str) -> None:
        """End it, by SIGTERM."""

    def hang(self, server: str) -> None:
        """Stop it, by SIGSTOP."""

    def wake(self, server: str) -> None:
        """Let it go on."""

    def restart(self, server: str) -> None:
        """Start it again after it was ended."""


class Led(Site, Protocol):
    """Servers whose topics have leaders."""

    def leaders(self, topic: str) -> dict[int, str]:
        """The nodes that take writes, by partition."""

    def in_sync(self, topic: str) -> dict[int, int]:
        """How many nodes a write goes to, by partition; those without a leader are missing."""

    def move_leader(self, topic: str, partition: int) -> None:
        """Have another node lead it."""

    def is_stable(self) -> bool:
        """Whether a leader may be moved."""


class EmbeddedSite:
    """A cluster in this process."""

    slow = False

    def __init__(self, cluster: Cluster) -> None:
        self.reusable: dict[tuple[int, int, bool], str] = {}
        self.dialect = str(cluster.dialect)
        self.url = cluster.url
        self._cluster = cluster
        self._nsqds = {nsqd.name: nsqd for nsqd in cluster.nsqds}
        self._lookups = {lookup.name: lookup for lookup in cluster.lookupds}
        self._servers = self._nsqds | self._lookups
        self.nodes = list(self._nsqds)
        self.lookups = list(self._lookups)
        self.others: list[str] = []
        self._made: list[str] = []

    def make_topic(self, name: str, *, partitions: int, replicas: int, ordered: bool) -> None:
        self._made.append(name)
        if self.dialect == "original":
            self._cluster.create_topic(name)
        else:
            self._cluster.create_topic(
                name, partitions=partitions, replicas=replicas, ordered=ordered
            )
        self._cluster.create_channel(name, CHANNEL)

    def _slots(self, topic: str) -> list[Slot]:
        return self._cluster._backend._topology.of(topic)

    def leaders(self, topic: str) -> dict[int, str]:
        led = [slot for slot in self._slots(topic) if slot.leader and slot.writable]
        return {slot.shard.number: slot.leader.name for slot in led}

    def in_sync(self, topic: str) -> dict[int, int]:
        return {slot.shard.number: len(slot.in_sync) for slot in self._slots(topic) if slot.leader}

    def move_leader(self, topic: str, partition: int) -> None:
        self._cluster.move_leader(topic, partition)

    def is_stable(self) -> bool:
        return True

    def places(self, topic: str) -> dict[str, str]:
        if self.dialect == "original":
            return {name: name for name, nsqd in self._nsqds.items() if nsqd.listening}
        return {str(number): node for number, node in self.leaders(topic).items()}

    def held(self, bodies: set[bytes]) -> set[bytes] | None:
        return bodies & {each.body for topic in self._made for each in self._cluster.stored(topic)}

    def kill(self, server: str) -> None:
        self._cluster.kill(self._servers[server])

    def terminate(self, server: str) -> None:
        self._cluster.terminate(self._servers[server])

    def hang(self, server: str) -> None:
        """A lookup takes requests, and answers none."""
        if server in self._nsqds:
            self._cluster.hang(self._nsqds[server])
            return
        paths = ["/lookup", "/nodes"] + ["/listlookup"] * (self.dialect == "redesigned")
        for path in paths:
            stuck = faults.on(path, times=1 << 30, nsqd=self._lookups[server]).stall()
            self._cluster.faults.add(stuck)

    def wake(self, server: str) -> None:
        if server in self._nsqds:
            self._cluster.wake(self._nsqds[server])
        else:
            self._cluster.faults.clear()

    def restart(self, server: str) -> None:
        self._cluster.restart(self._servers[server])


class _Processes:
    """Real programs, by the names under which they were started."""

    _programs: Programs

    def kill(self, server: str) -> None:
        self._programs.kill(server)

    def terminate(self, server: str) -> None:
        self._programs.terminate(server)

    def hang(self, server: str) -> None:
        self._programs.hang(server)

    def wake(self, server: str) -> None:
        self._programs.wake(server)

    def restart(self, server: str) -> None:
        self._programs.restart(server)


class OriginalSite(_Processes):
    """A real nsqlookupd and two real nsqds."""

    dialect = "original"
    slow = False

    def __init__(self, bin_folder: Path, programs: Programs) -> None:
        self.reusable: dict[tuple[int, int, bool], str] = {}
        self._programs = programs
        tcp, self._lookup = free_ports(2)
        programs.start(
            "nsqlookupd",
            bin_folder / "nsqlookupd",
            f"-tcp-address=127.0.0.1:{tcp}",
            f"-http-address=127.0.0.1:{self._lookup}",
            "-broadcast-address=127.0.0.1",
        )
        wait_for(lambda: get(self._lookup, "/ping")[0] == 200, "nsqlookupd listens")
        self._nsqds = []
        self._names: dict[str, str] = {}
        for number in range(2):
            data, http = free_ports(2)
            self._nsqds.append(http)
            self._names[f"127.0.0.1:{data}"] = f"nsqd{number}"
            programs.start(
                f"nsqd{number}",
                bin_folder / "nsqd",
                f"-tcp-address=127.0.0.1:{data}",
                f"-http-address=127.0.0.1:{http}",
                "-broadcast-address=127.0.0.1",
                f"-lookupd-tcp-address=127.0.0.1:{tcp}",
                "-data-path={home}",
            )
        wait_for(lambda: len(self._producers("/nodes")) == 2, "both nsqds are registered")
        self.url = f"nsq+lookupd://127.0.0.1:{self._lookup}"
        self.nodes, self.lookups = list(self._names.values()), ["nsqlookupd"]
        self.others: list[str] = []

    def places(self, topic: str) -> dict[str, str]:
        listed = self._producers(f"/lookup?topic={topic}")
        found = [f"{each['broadcast_address']}:{each['tcp_port']}" for each in listed]
        return {place: self._names[place] for place in found}

    def held(self, bodies: set[bytes]) -> set[bytes] | None:
        return None

    def _producers(self, path: str) -> list[Any]:
        status, document = get(self._lookup, path)
        return document["producers"] if status == 200 else []

    def make_topic(self, name: str, *, partitions: int, replicas: int, ordered: bool) -> None:
        for http in self._nsqds:
            post(http, f"/topic/create?topic={name}")
            post(http, f"/channel/create?topic={name}&channel={CHANNEL}")
        wait_for(lambda: len(self._producers(f"/lookup?topic={name}")) == 2, "both nsqds have it")


class _Ports(NamedTuple):
    tcp: int
    http: int
    rpc: int
    metric: int


class RedesignedSite(_Processes):
    """etcd, two real lookup daemons and three real nsqds."""

    dialect = "redesigned"
    slow = True

    def __init__(self, bin_folder: Path, programs: Programs) -> None:
        self.reusable: dict[tuple[int, int, bool], str] = {}
        self._bin, self._programs = bin_folder, programs
        self._start_etcd()
        self._lookups = [self._start("nsqlookupd", number).http for number in range(2)]
        wait_for(self._leading_lookup, "a lookup daemon leads")
        self._nsqds = {f"nsqd{number}": self._start("nsqd", number) for number in range(3)}
        self.nodes = list(self._nsqds)
        wait_for(lambda: all(map(self._sees_all, self._lookups)), "nsqds are seen")
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._lookups)
        self.url = f"nsq+lookupd://{hosts}"
        self.lookups = [f"nsqlookupd{number}" for number in range(2)]
        self.others = ["etcd"]

    def _start_etcd(self) -> None:
        client, peer = free_ports(2)
        self._etcd = f"http://127.0.0.1:{client}"
        peers = f"http://127.0.0.1:{peer}"
        self._programs.start(
            "etcd",
            "etcd",
            "--name=e0",
            "--data-dir={home}/data",
            "--enable-v2=true",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=e0={peers}",
        )
        wait_for(lambda: get(client, "/health")[0] == 200, "etcd is healthy")

    def _start(self, program: str, number: int) -> _Ports:
        ports = _Ports(*free_ports(4))
        flags = [
            f"-tcp-address=127.0.0.1:{ports.tcp}",
            f"-http-address=127.0.0.1:{ports.http}",
            f"-rpc-port={ports.rpc}",
            f"-metric-address=127.0.0.1:{ports.metric}",
            "-broadcast-interface=lo",
            "-broadcast-address=127.0.0.1",
            "-cluster-id=nsqsmart",
            f"-cluster-leadership-addresses={self._etcd}",
            "-log-dir={home}",
        ]
        if program == "nsqd":
            flags += [f"-worker-id={number + 1}", "-data-path={home}"]
        self._programs.start(f"{program}{number}", self._bin / program, *flags)
        return ports

    def _leading_lookup(self) -> int | None:
        for port in self._lookups:
            status, document = get(port, "/listlookup")
            if status == 200 and (leader := document["lookupdleader"]["HttpPort"]):
                return int(leader)
        return None

    def _sees_all(self, lookup: int) -> bool:
        status, document = get(lookup, "/nodes")
        return status == 200 and len(document["producers"] or ()) == len(self._nsqds)

    def _leaders(self, topic: str, access: str) -> dict[int, int]:
        """HTTP ports of the leaders by partition."""
        status, document = get(self._leading_lookup(), f"/lookup?topic={topic}&access={access}")
        found = document.get("partitions") or {} if status == 200 else {}
        return {int(number): node["http_port"] for number, node in found.items()}

    def make_topic(self, name: str, *, partitions: int, replicas: int, ordered: bool) -> None:
        kind = "orderedmulti" if ordered else "multipart"
        path = f"/topic/create?topic={name}&partition_num={partitions}&replicator={replicas}"

        def created() -> bool:
            # Refused for a while after another topic was made.
            return post(self._leading_lookup(), f"{path}&{kind}=true")[0] == 200

        wait_for(created, f"topic {name} is created")

        def writable() -> bool:
            for partition, http in self._leaders(name, "r").items():
                query = f"topic={name}&partition={partition}&channel={CHANNEL}"
                post(http, f"/channel/create?{query}")
            return len(self._leaders(name, "w")) == partitions

        wait_for(writable, f"topic {name} takes messages")

    def leaders(self, topic: str) -> dict[int, str]:
        names = {ports.http: name for name, ports in self._nsqds.items()}
        return {number: names[http] for number, http in self._leaders(topic, "w").items()}

    def in_sync(self, topic: str) -> dict[int, int]:
        found = {}
        for number, http in self._leaders(topic, "w").items():
            query = f"topic={topic}&partition={number}"
            _, document = get(http, f"/coordinator/stats?{query}")
            for stats in (document or {}).get("topic_coord_stats") or ():
                found[number] = len(stats["isr_stats"])
        return found

    def move_leader(self, topic: str, partition: int) -> None:
        old = self.leaders(topic)[partition]
        new = next(node for node in self.nodes if node != old)
        places = f"move_from={self._distributed(old)}&move_to={self._distributed(new)}"
        path = f"/topic/partition/move?topic={topic}&partition={partition}&move_leader=true"
        status, answer = post(self._leading_lookup(), f"{path}&{places}")
        assert status == 200, answer

    def is_stable(self) -> bool:
        """Whether a leader may be moved: the lookup daemon looks every minute or two."""
        status, document = get(self._leading_lookup(), "/cluster/stats")
        return status == 200 and document["stable"]

    def _distributed(self, node: str) -> str:
        ports = self._nsqds[node]
        return f"127.0.0.1:{ports.rpc}:{ports.tcp}:{self.nodes.index(node) + 1}"

    def places(self, topic: str) -> dict[str, str]:
        return {str(number): node for number, node in self.leaders(topic).items()}

    def held(self, bodies: set[bytes]) -> set[bytes] | None:
        found: set[bytes] = set()
        for node in self.nodes:
            for file in sorted(self._programs.home(node).rglob("*.dat")):
                data = file.read_bytes()
                found |= {body for body in bodies - found if body in data}
        return found


REAL = {"original": ("NSQSMART_TEST_NSQ_BIN", OriginalSite)}
REAL["redesigned"] = ("NSQSMART_TEST_YZ_BIN", RedesignedSite)


@contextmanager
def real_site(dialect: str, folder: Path) -> Iterator[Site]:
    """Real programs, or a skip that says what is missing."""
    variable, kind = REAL[dialect]
    found = os.environ.get(variable)
    if not found:
        pytest.skip(f"{variable} does not name a folder with nsqd and nsqlookupd")
    if dialect == "redesigned" and shutil.which("etcd") is None:
        pytest.skip("the redesigned servers need etcd on the PATH")
    programs = Programs(folder)
    try:
        yield kind(Path(found), programs)
    finally:
        programs.end()


def sites(*dialects: str) -> list[Any]:
    """Names of embedded and real ones, as parameters of a fixture."""
    real = [pytest.param(f"real {dialect}", marks=pytest.mark.real) for dialect in dialects]
    return [f"embedded {dialect}" for dialect in dialects] + real


Start = Callable[[str], Site]


@contextmanager
def running_sites(make_folder: Callable[[str], Path]) -> Iterator[Start]:
    """Gives each site by its name, started when it is first asked for."""
    running: dict[str, Site] = {}
    with ExitStack() as stack:

        def find(name: str) -> Site:
            if name not in running:
                kind, dialect = name.split()
                real = kind == "real"
                made = real_site(dialect, make_folder(dialect)) if real else embedded_site(dialect)
                running[name] = stack.enter_context(made)
            return running[name]

        yield find


@contextmanager
def embedded_site(dialect: str, **options: Any) -> Iterator[Site]:
    """The embedded servers, as many as the real ones."""
    count = 2 if dialect == "original" else 3
    given = {"nsqds": count, "lookupds": 2, "election_delay": 0.2} | options
    with Cluster(dialect=dialect, **given) as cluster:
        yield EmbeddedSite(cluster)
