"""Plays the vectors of tests/vectors/servers.json against embedded servers, over real sockets."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import requests

from nsqsmart.embedded import Cluster
from nsqsmart.embedded.nsqd import program as program_nsqd
from nsqsmart.embedded.nsqd.server import Nsqd
from nsqsmart.embedded.nsqlookupd import program as program_nsqlookupd
from nsqsmart.embedded.nsqlookupd.server import Nsqlookupd
from nsqsmart.embedded.serving.flags import parse
from nsqsmart.wire import commands
from nsqsmart.wire.frames import ERROR, MESSAGE, RESPONSE, Frame, encode_frame
from tests.integration.embedded.rawclient import RawClient
from tests.integration.vector_values import agrees, frame_agrees

# A silence that is too short can only let a fault pass, never fail a right server.
_SILENCE = 0.1
_ID = slice(10, 26)
_TYPES = {"response": RESPONSE, "error": ERROR, "message": MESSAGE}

Vector = dict[str, Any]
ByHand = Callable[["Bench"], None]


class Bench:
    """The servers of one vector, and the connections to them."""

    def __init__(self, vector: Vector, dialect: str, folder: Path) -> None:
        self.vector = vector
        self.dialect = dialect
        self.cluster: Cluster | None = None
        self.nsqd: Nsqd | None = None
        self.lookupd: Nsqlookupd | None = None
        self.program: program_nsqd.NsqdProgram | None = None
        self._folder = folder
        self._connections: dict[str, RawClient] = {}
        self._held: dict[str, bytes] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    # ---------------------------------------------------------------------------------- playing

    def play(self, by_hand: ByHand | None) -> None:
        """Set up, then ask and compare; *by_hand* sets up what no action does."""
        given = self.vector["given"]
        if by_hand is not None:
            by_hand(self)
        else:
            self.start(given)
            for action in given:
                self.give(action)
        if "exchange" in self.vector:
            self._exchange(self.vector["exchange"])
        else:
            self._request(self.vector["request"], self.vector["expect"])

    def give(self, action: dict[str, Any]) -> None:
        """Do one action of the setup."""
        kind = next(iter(action))
        if kind not in ("flags", "cluster"):
            getattr(self, f"_give_{kind}")(action)

    def start(self, given: list[dict[str, Any]]) -> None:
        """Start what the vector is about."""
        for action in given:
            if "cluster" in action:
                self.start_cluster(**action["cluster"])
        if self.cluster is not None:
            return
        common = [f"--dialect={self.dialect}", "--tcp-address=127.0.0.1:0"]
        common.append("--http-address=127.0.0.1:0")
        if self.vector["server"] == "nsqlookupd":
            values = parse(common, program_nsqlookupd.FLAGS)
            lookup = program_nsqlookupd.LookupdProgram(program_nsqlookupd.make_options(values))
            lookup.start()
            self._stack.callback(lookup.stop)
            self.lookupd = lookup.lookupd
            return
        self._write_metadata(given)
        flags = [flag for action in given for flag in action.get("flags", ())]
        common.append(f"--data-path={self._folder}")
        values = parse([*common, *flags], program_nsqd.FLAGS)
        self.program = program_nsqd.NsqdProgram(program_nsqd.make_options(values), ())
        self.program.start()
        self._stack.callback(self.program.stop)
        self.nsqd = self.program.nsqd

    def start_cluster(self, **options: Any) -> Cluster:
        self.cluster = self._stack.enter_context(Cluster(dialect=self.dialect, **options))
        self.nsqd, self.lookupd = self.cluster.nsqds[0], self.cluster.lookupds[0]
        return self.cluster

    def _write_metadata(self, given: list[dict[str, Any]]) -> None:
        """Topics that a redesigned nsqd without a coordinator cannot make any more."""
        if self.dialect == "original":
            return
        topics = [
            {
                "name": action["topic"],
                "partition": 0,
                "ordered": action.get("ordered", False),
                "ext": action.get("ext", False),
                "disbale_channel_auto_create": not action.get("channel_auto_create", True),
                "channels": [{"name": name} for name in action.get("channels", ())],
            }
            for action in given
            if "ordered" in action or "channel_auto_create" in action
        ]
        if topics:
            document = {"topics": topics, "version": "0.3.7-HA.1.13.0"}
            (self._folder / "nsqd.0.dat").write_text(json.dumps(document))

    # ---------------------------------------------------------------------------------- actions

    def _give_topic(self, action: dict[str, Any]) -> None:
        topic, channels = action["topic"], action.get("channels", [])
        if self.cluster is not None:
            self._give_cluster_topic(action)
        elif self.dialect == "original":
            if "request" in self.vector:
                self.ask("POST", f"/topic/create?topic={topic}")
                for name in channels:
                    self.ask("POST", f"/channel/create?topic={topic}&channel={name}")
        elif "ordered" not in action and "channel_auto_create" not in action:
            line = f"INTERNAL_CREATE_TOPIC {topic} 0 {str(action.get('ext', False)).lower()}\n"
            assert self.dial().ask(line.encode()) == b"OK"
            for name in channels:
                self.ask("POST", f"/channel/create?topic={topic}&channel={name}")

    def _give_cluster_topic(self, action: dict[str, Any]) -> None:
        assert self.cluster is not None
        topic = action["topic"]
        auto_create = action.get("channel_auto_create", True)
        self.cluster.create_topic(
            topic,
            action.get("partitions", 1),
            action.get("replicas", 1),
            ordered=action.get("ordered", False),
            extend_support=action.get("ext", False),
            disable_channel_auto_create=not auto_create,
        )
        for name in action.get("channels", ()):
            assert not auto_create
            self.ask("POST", f"/channel/create?topic={topic}&channel={name}", to="lookupd")
        for partition, names in action.get("channels_on", {}).items():
            leader = self.cluster.leader(topic, int(partition))
            for name in names:
                target = f"/channel/create?topic={topic}&partition={partition}&channel={name}"
                assert _http("POST", leader.http_address, target).status_code == 200

    def _give_connect(self, action: dict[str, Any]) -> None:
        nsqd = self.nsqd
        if "node" in action:
            assert self.cluster is not None
            topic, partition = action["of"]
            leader = self.cluster.leader(topic, partition)
            others = [each for each in self.cluster.nsqds if each is not leader]
            nsqd = leader if action["node"] == "leader" else others[0]
        assert nsqd is not None
        self._connections[action["connect"]] = self.dial(nsqd, magic=action.get("magic", True))

    def _give_identify(self, action: dict[str, Any]) -> None:
        body = json.dumps(action["identify"]).encode()
        self._connection(action).ask(commands.identify(body))

    def _give_line(self, action: dict[str, Any]) -> None:
        connection = self._connection(action)
        connection.send(action["line"].encode() + b"\n")
        if "reply" in action:
            assert connection.response() == action["reply"].encode()

    def _give_hex(self, action: dict[str, Any]) -> None:
        connection = self._connection(action)
        connection.send(bytes.fromhex(action["hex"]))
        for _ in range(action["frames"]):
            connection.response()

    def _give_publish(self, action: dict[str, Any]) -> None:
        partition = action.get("partition")
        pub = commands.pub(action["publish"], action["body"].encode(), partition)
        assert self.dial().ask(pub) == b"OK"

    def _give_receive(self, action: dict[str, Any]) -> None:
        frame = self._connection(action).frame()
        assert frame is not None
        assert frame.type == MESSAGE
        self._held[action["receive"]] = frame.data[_ID]

    def _give_peer(self, action: dict[str, Any]) -> None:
        """An nsqd that registers; it stays connected."""
        assert self.lookupd is not None
        peer = self._stack.enter_context(socket.create_connection(self.lookupd.tcp_address, 5))
        body = json.dumps(action["peer"]).encode()
        peer.sendall(b"  V1IDENTIFY\n" + len(body).to_bytes(4) + body)
        assert b"version" in _v1_reply(peer)
        for names in action["register"]:
            peer.sendall(f"REGISTER {names}\n".encode())
            assert _v1_reply(peer) == b"OK"

    def _give_request(self, action: dict[str, Any]) -> None:
        method, target = action["request"].split(" ", 1)
        body = action.get("body", "").encode()
        reply = self.ask(method, target, to=self.vector.get("to"), body=body)
        assert reply.status_code == action["status"]

    def _give_set_writable(self, action: dict[str, Any]) -> None:
        assert self.cluster is not None
        self.cluster.set_writable(*action["set_writable"])

    def _give_tombstone(self, action: dict[str, Any]) -> None:
        (node,) = self.ask("GET", "/nodes", to="lookupd").json()["data"]["producers"]
        where = f"{node['broadcast_address']}:{node['http_port']}"
        target = f"/topic/tombstone?topic={action['tombstone']}&node={where}"
        assert self.ask("POST", target, to="lookupd").status_code == 200

    # -------------------------------------------------------------------------------- exchanges

    def _exchange(self, steps: list[dict[str, Any]]) -> None:
        connection = self._connections["c"]
        for step in steps:
            if "send" in step:
                connection.send(self._bytes(step["send"]))
        expected = [step for step in steps if "frame" in step]
        began = time.time_ns()
        while expected:
            frame = connection.frame()
            assert frame is not None, f"the connection ended, {expected} did not come"
            candidates = expected if self.vector.get("any_order") else expected[:1]
            match = next((step for step in candidates if self._is(frame, step, began)), None)
            assert match is not None, f"{frame} is none of {candidates}"
            expected.remove(match)
        if "closed" in steps[-1]:
            assert connection.ended()
        else:
            assert connection.silent(_SILENCE)

    def _is(self, frame: Frame, step: dict[str, Any], began: int) -> bool:
        if frame.type != _TYPES[step["frame"]]:
            return False
        if "json" in step:
            return agrees(json.loads(frame.data), step["json"], self.dialect)
        if "hex" in step:
            known = self._held.get("MID")
            return frame_agrees(encode_frame(frame.type, frame.data), step["hex"], began, known)
        text = step["text"].replace("@MID@", self._held.get("MID", b"").decode("latin-1"))
        pattern = re.escape(text).replace("<int>", "[0-9]+")
        return re.fullmatch(pattern, frame.data.decode("latin-1"), re.DOTALL) is not None

    def _bytes(self, text: str) -> bytes:
        data = bytes.fromhex(text)
        for name, held in self._held.items():
            data = data.replace(f"@{name}@".encode(), held)
        return data

    def _connection(self, action: dict[str, Any]) -> RawClient:
        return self._connections[action.get("on", "c")]

    def dial(self, nsqd: Nsqd | None = None, *, magic: bool = True) -> RawClient:
        nsqd = nsqd or self.nsqd
        assert nsqd is not None
        connection = RawClient(nsqd.tcp_address, magic=magic)
        self._stack.callback(connection.close)
        return connection

    # ------------------------------------------------------------------------------------- HTTP

    def ask(
        self, method: str, target: str, *, to: str | None = None, **options: Any
    ) -> requests.Response:
        """A request to the nsqd, or the lookup daemon where there is none or *to* says so."""
        server = self.lookupd if to == "lookupd" or self.nsqd is None else self.nsqd
        assert server is not None
        return _http(method, server.http_address, target, **options)

    def _request(self, request: dict[str, Any], expect: dict[str, Any]) -> None:
        body = request.get("body", "").encode()
        body = bytes.fromhex(request.get("body_hex", "")) or body
        body = body or b"x" * request.get("body_size", 0)
        headers = request.get("headers")
        to = self.vector.get("to")
        reply = self.ask(request["method"], request["target"], to=to, body=body, headers=headers)
        assert reply.status_code == expect["status"], reply.content
        if "body" in expect:
            assert reply.text == expect["body"]
        else:
            assert agrees(reply.json(), expect["json"], self.dialect), reply.json()


def _http(
    method: str,
    address: tuple[str, int],
    target: str,
    *,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        # Only the headers of the vector: requests would ask for "*/*".
        session.headers.clear()
        url = f"http://{address[0]}:{address[1]}{target}"
        return session.request(method, url, data=body, headers=headers, timeout=5)


def _v1_reply(peer: socket.socket) -> bytes:
    with peer.makefile("rb") as stream:
        return stream.read(int.from_bytes(stream.read(4)))
