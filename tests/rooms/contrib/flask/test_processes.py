"""A Flask app factory as it is run: by the flask command, and by gunicorn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from itertools import count
from pathlib import Path

import pytest

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import ROOT, eventually
from tests.programs import free_ports

pytestmark = pytest.mark.timeout(180)  # processes, on machines that have others

CONSUMING = "consuming; SIGINT or SIGTERM ends it"

SHOP = """
import os
import time
from pathlib import Path

from flask import Flask, current_app

from nsqsmart.contrib.flask import NSQ

nsq = NSQ()


def create_app():
    app = Flask(__name__)
    app.config["NSQSMART_URL"] = os.environ["SHOP_NSQ"]
    nsq.init_app(app)

    @app.get("/order/<int:number>")
    def order(number):
        nsq.publish("orders", b"%d" % number, key=f"customer-{number % 10}")
        return "ok"

    if "SHOP_PING" in os.environ:
        with app.app_context():
            nsq.producer.ping()
    return app


@nsq.handler("orders", "billing", workers=2)
def bill(message):
    with Path("billed").open("ab") as file:
        file.write(message.body + b"\\n")
    if message.body.startswith(b"slow") and message.attempts == 1:
        time.sleep(60)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("orders", partitions=2)
        made.create_channel("orders", "billing")
        yield made


class Shop:
    """The app in a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "SHOP_NSQ": url}

    @contextmanager
    def running(self, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-u", *arguments],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdout=output,
                stderr=output,
            )
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def shop(tmp_path: Path, cluster: Cluster) -> Shop:
    return Shop(tmp_path, cluster.url)


@pytest.fixture
def publish(cluster: Cluster) -> Iterator[Callable[..., None]]:
    with nsqsmart.Producer(cluster.url) as producer:

        def send(*bodies: bytes) -> None:
            for each in bodies:
                producer.publish("orders", each)

        yield send


FLASK = ("-m", "flask", "--app", "shop", "nsq")


def test_consume_drains_at_a_signal(shop, publish):
    publish(b"1", b"2")
    with shop.running(*FLASK, "consume") as process:
        eventually(lambda: sorted(shop.lines("billed")) == ["1", "2"], 30)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert "orders/billing: 2 finished, 0 requeued, 0 failed" in shop.lines("output")


def test_tail_into_head_ends_quietly(shop, publish):
    publish(*(b"%d" % number for number in range(200)))
    process = subprocess.Popen(
        [sys.executable, *FLASK, "tail", "orders", "--channel", "billing"],
        cwd=shop.folder,
        env=shop.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stderr:
        assert process.stdout.readline().strip().isdigit()
        process.stdout.close()
        publish(*(b"%d" % number for number in range(200)))
        assert process.wait(20) == 0
        assert process.stderr.read() == b""


@pytest.mark.long
def test_a_change_of_the_code_starts_it_again_and_gives_back_what_it_had(shop, publish):
    with shop.running(*FLASK, "consume", "--reload") as process:
        eventually(lambda: shop.lines("output").count(CONSUMING) == 1, 30)
        publish(b"slow")
        eventually(lambda: shop.lines("billed") == ["slow"], 30)
        source = shop.folder / "shop.py"
        changed = count(int(source.stat().st_mtime) + 5, 5)

        def change() -> bool:
            # Again and again: it may not have looked at the file for the first time yet.
            os.utime(source, (0, next(changed)))
            return shop.lines("output").count(CONSUMING) >= 2

        eventually(change, 30, "a second start", 0.5)
        eventually(lambda: shop.lines("billed")[:2] == ["slow", "slow"], 20)
        process.send_signal(signal.SIGINT)
        process.wait(20)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((), id="plain", marks=pytest.mark.long),
        pytest.param(("--preload",), id="preload"),
    ],
)
def test_under_gunicorn(shop, cluster, flags):
    (port,) = free_ports(1)
    arguments = ("-m", "gunicorn", "-b", f"127.0.0.1:{port}", "-w", "4", *flags)
    with shop.running(*arguments, "shop:create_app()", SHOP_PING="1"):
        eventually(lambda: ask(port, "/order/0") == 200, 30, "gunicorn", 0.1)
        for number in range(1, 40):
            if number % 10 == 0:
                cluster.move_leader("orders", number // 10 % 2)
            assert ask(port, f"/order/{number}") == 200
    found = [int(each.body) for part in range(2) for each in cluster.stored("orders", part)]
    assert set(found) == set(range(40))


def ask(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return 0
    finally:
        connection.close()
