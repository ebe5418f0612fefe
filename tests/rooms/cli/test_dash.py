"""The page about a cluster: what it is told, who may read it, and whose script draws it."""

from __future__ import annotations

import http.client
import json
import re
import signal
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from nsqsmart import Admin, Producer
from nsqsmart.cli.commands.dash import ClusterFigures
from nsqsmart.embedded import Cluster
from nsqsmart.errors import DiscoveryError
from tests.helpers import eventually
from tests.rooms.cli.conftest import Commands


@contextmanager
def dash(commands: Commands, *flags: object) -> Iterator[tuple[Any, int]]:
    """The command as a program, and its port."""
    program = commands.start("dash", *flags, "--interval", "50ms")
    line = program.stdout.readline().decode()
    found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
    assert found, (line, program.stderr.read())
    yield program, int(found[1])


def get(port: int, path: str, host: str = "127.0.0.1:1") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def figures(port: int) -> dict[str, Any]:
    return json.loads(get(port, "/figures.json")[2])


def test_it_shows_topics_channels_depths_rates_and_leaders(
    nsqsmart: Commands, cluster: Cluster
) -> None:
    with Producer(cluster.url) as producer:
        producer.publish("orders", b"one")
        Admin(cluster.url).create_channel("orders", "billing")
        producer.publish("orders", b"two")
        with dash(nsqsmart, "--url", cluster.url) as (program, port):
            found = eventually(lambda: (now := figures(port))["topics"] and now)
            (topic,) = found["topics"]
            (channel,) = topic["channels"]
            assert (topic["topic"], channel["channel"]) == ("orders", "billing")
            assert channel["depth"] >= 1
            (partition,) = topic["partitions"]
            assert (partition["nsqd"], partition["leader"]) == (cluster.nsqds[0].name, True)
            (node,) = found["nodes"]
            assert (node["leads"], node["reason"], found["error"]) == (1, None, None)
            producer.publish_many("orders", [b"more"] * 50)
            eventually(lambda: any(_rates(figures(port), "ingress")))
            depths = figures(port)["topics"][0]["channels"][0]["depths"]
            assert depths[0] < depths[-1]
            program.send_signal(signal.SIGINT)
            assert program.wait(10) == 130
            assert program.stderr.read().strip() == b"nsqsmart dash: ended"


def _rates(found: dict[str, Any], name: str) -> list[float]:
    return [topic[name] for topic in found["topics"] if topic[name]]


def test_only_its_own_script_runs_and_only_this_machine_reads_it(
    nsqsmart: Commands, cluster: Cluster
) -> None:
    with dash(nsqsmart, "--url", cluster.url) as (_, port):
        status, headers, body = get(port, "/", f"localhost:{port}")
        assert status == 200
        script = re.search(r"<script>(.*)</script>", body.decode(), re.DOTALL)
        assert script
        code = b64encode(sha256(script[1].encode()).digest()).decode()
        policy = headers["Content-Security-Policy"]
        assert f"script-src 'sha256-{code}'" in policy
        assert policy.startswith("default-src 'none'")
        # Names come from servers: nothing of them is ever HTML. And nothing comes from elsewhere.
        assert "innerHTML" not in script[1]
        assert not re.search(r"(src|href)=", body.decode())
        assert get(port, "/elsewhere")[0] == 404
        for path in ("/", "/figures.json"):
            assert get(port, path, f"evil.example:{port}")[0] == 403


def test_a_server_that_is_gone_is_named_and_what_was_known_stays(
    nsqsmart: Commands, redesigned: Cluster
) -> None:
    with Producer(redesigned.url) as producer:
        producer.publish("orders", b"one")
    with dash(nsqsmart, "--url", redesigned.url, "--admin-timeout", "2") as (_, port):
        eventually(lambda: figures(port)["topics"])
        redesigned.kill(redesigned.lookupds[0])
        found = eventually(lambda: (now := figures(port))["error"] and now, timeout=30)
        assert "nsqlookupd" in found["error"]
        assert [topic["topic"] for topic in found["topics"]] == ["orders"]


def test_a_port_that_is_taken_is_said(nsqsmart: Commands, cluster: Cluster) -> None:
    with dash(nsqsmart, "--url", cluster.url) as (_, port):
        code, _, err = nsqsmart("dash", "--url", cluster.url, "--port", port)
        assert code == 1
        assert f"--port {port}: Address already in use" in err
    assert nsqsmart("dash", "--port", "99999")[0] == 2


class Broken:
    """An Admin whose cluster does not answer."""

    def stats(self) -> None:
        self.asked = getattr(self, "asked", 0) + 1
        raise DiscoveryError("no nsqlookupd answers")


def test_many_who_look_are_one_question() -> None:
    admin = Broken()
    source = ClusterFigures(admin, 60.0)  # type: ignore[arg-type]
    assert (
        source.now()
        == source.now()
        == {
            "topics": [],
            "nodes": [],
            "error": "no nsqlookupd answers",
        }
    )
    assert admin.asked == 1
