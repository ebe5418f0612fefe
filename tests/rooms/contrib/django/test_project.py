"""A whole project: from startproject to a consumed message, and under gunicorn with trouble."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, cycle
from pathlib import Path

import pytest

from nsqsmart.embedded import Cluster
from tests.helpers import SOAK, eventually
from tests.postgres import why_not
from tests.rooms.contrib.django.project import Project, ask, ask_all

pytestmark = pytest.mark.timeout(180)  # processes, on machines that have others

TOPIC = "orders"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=3, lookupds=1) as made:
        made.create_topic(TOPIC, partitions=2, replicas=2)
        made.create_channel(TOPIC, "billing")
        yield made


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("template") / "project"


@pytest.fixture
def make_project(
    tmp_path: Path, template: Path, cluster: Cluster, postgres: str
) -> Callable[[str], Project]:
    folder = tmp_path / "project"

    def make(kind: str) -> Project:
        if kind == "sqlite":
            return Project(folder, template, cluster.url)
        if not postgres:
            pytest.skip(str(why_not()))
        import psycopg

        name = f"shop{abs(hash(tmp_path)) % 10**9}"
        with psycopg.connect(host=postgres, user="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return Project(folder, template, cluster.url, postgres, name)

    return make


def stored(cluster: Cluster) -> list[int]:
    return [int(each.body) for part in range(2) for each in cluster.stored(TOPIC, part)]


# ---------------------------------------------------------------------------------- nsq_consume


def test_from_startproject_to_a_consumed_message(make_project, cluster):
    project = make_project("sqlite")
    project.manage(
        "shell", "-c", "from nsqsmart.contrib.django import publish as p; p('orders', b'1')"
    )
    out = project.manage("nsq_consume", "--max-messages", "1", "--exit-when-idle", "20")
    assert project.lines("billed") == ["1"]
    assert "orders/billing: shop.nsq.bill" in out
    assert "orders/billing: 1 finished, 0 requeued, 0 failed" in out
    # It is signalled to drain what runs, and ends well.
    with project.running("manage.py", "nsq_consume") as process:
        eventually(lambda: "consuming" in "".join(project.lines("output")))
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert "0 finished" in "".join(project.lines("output"))


@pytest.mark.long
def test_a_change_of_the_code_starts_it_again_and_gives_back_what_it_had(make_project, cluster):
    import nsqsmart

    project = make_project("sqlite")
    # The reloader looks once a second for files whose time has changed.
    with (
        nsqsmart.Producer(cluster.url) as producer,
        project.running("manage.py", "nsq_consume", "--autoreload") as process,
    ):
        eventually(lambda: project.lines("output").count(CONSUMING) == 1, 30)
        producer.publish(TOPIC, b"slow")
        eventually(lambda: project.lines("billed") == ["slow"], 30)
        nsq = project.folder / "shop" / "nsq.py"
        changed = count(int(nsq.stat().st_mtime) + 5, 5)

        def change() -> bool:
            # Again and again: it may not have looked at the file for the first time yet.
            os.utime(nsq, (0, next(changed)))
            return project.lines("output").count(CONSUMING) >= 2

        eventually(change, 30, "a second start", 0.5)
        # Long before msg_timeout, which is 60 s.
        eventually(lambda: project.lines("billed")[:2] == ["slow", "slow"], 20)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) in (0, -signal.SIGTERM)


CONSUMING = "consuming; SIGINT or SIGTERM ends it"


def test_nothing_is_opened_by_loading_the_project(make_project, cluster):
    project = make_project("sqlite")
    cluster.log.clear()
    code = (
        "import os, threading; os.environ['DJANGO_SETTINGS_MODULE'] = 'site_.settings';"
        "import django; from django.core.management import call_command; django.setup();"
        "call_command('check'); call_command('showmigrations');"
        "print([each.name for each in threading.enumerate()])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env=project.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "no issues" in result.stdout
    assert "nsqsmart" in result.stdout
    assert result.stdout.splitlines()[-1] == "['MainThread']"
    assert list(cluster.log) == []


# -------------------------------------------------------------------------------------- gunicorn


@contextmanager
def trouble(cluster: Cluster, every: float) -> Iterator[list[int]]:
    """A leader moves *every* so many seconds; once, no partition takes writes for a while."""
    over = threading.Event()
    moves: list[int] = []

    def make() -> None:
        for partition in cycle(range(2)):
            if over.wait(every):
                return
            cluster.move_leader(TOPIC, partition)
            moves.append(partition)
            if len(moves) == 2:
                for each in range(2):
                    cluster.set_writable(TOPIC, each, False)
                over.wait(1.5 if every < 1 else 4)
                for each in range(2):
                    cluster.set_writable(TOPIC, each, True)

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield moves
    finally:
        over.set()
        thread.join()


def paths(when: str, number_of: int) -> list[str]:
    """Every tenth request is rolled back."""
    return [
        f"/order?when={when}&number={number}{'&fail=1' if number % 10 == 0 else ''}"
        for number in range(number_of)
    ]


def check_statuses(statuses: list[int]) -> None:
    """A message that was lost is no reason for a 500: its order is committed."""
    refused = len(statuses) // 10
    assert Counter(statuses) == {200: len(statuses) - refused, 500: refused}


SERVERS = {"plain": (), "preload": ("--preload", "--worker-class", "gthread", "--threads", "2")}


def check_on_commit(
    project: Project, cluster: Cluster, flags: tuple[str, ...], requests: int, every: float
) -> int:
    with project.served(*flags) as port, trouble(cluster, every) as moves:
        check_statuses(ask_all(port, paths("on_commit", requests)))
    assert len(moves) >= 2
    committed, arrived = project.orders(), stored(cluster)
    assert committed == {number for number in range(requests) if number % 10}
    assert not set(arrived) - committed, "a row was rolled back, and its message arrived"
    signalled = [line.split() for line in project.lines("signals")]
    lost = committed - set(arrived)
    assert lost <= {int(body) for _, _, body in signalled}
    # Those that were uncertain may have arrived all the same.
    log = [line for line in project.lines("lost.log") if line.startswith("ERROR orders customer-")]
    assert len(log) == len(signalled)
    counted: dict[str, int] = {}
    for process, number, _ in signalled:
        # Two threads of a worker may write what they have read in the other order.
        counted[process] = max(counted.get(process, 0), int(number))
    assert sum(counted.values()) == len(signalled)
    return len(lost)


def check_outbox(
    project: Project, cluster: Cluster, flags: tuple[str, ...], requests: int, every: float
) -> None:
    relays = [("manage.py", "nsq_relay", "--interval", "0.2", "--page", "50")] * 2
    with ExitStack() as stack:
        running = [stack.enter_context(project.running(*relay)) for relay in relays]
        with project.served(*flags) as port, trouble(cluster, every) as moves:
            check_statuses(ask_all(port, paths("outbox", requests)))
        assert len(moves) >= 2
        committed = {number for number in range(requests) if number % 10}
        eventually(lambda: set(stored(cluster)) >= committed, 120, "all messages", 0.2)
        eventually(lambda: "".join(project.lines("output")).count("relaying;") == 2, 30)
        for process in running:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(30) for process in running] == [0, 0]
    assert project.orders() == committed
    assert set(stored(cluster)) == committed
    assert project.lines("signals") == []


def test_under_gunicorn_what_is_committed_arrives_or_is_told(make_project, cluster):
    check_on_commit(make_project("sqlite"), cluster, SERVERS["preload"], 100, every=0.2)


def test_under_gunicorn_the_outbox_loses_nothing(make_project, cluster):
    check_outbox(
        make_project("postgres" if not why_not() else "sqlite"),
        cluster,
        SERVERS["preload"],
        100,
        every=0.2,
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("when", "kind", "server", "requests"),
    [
        ("on_commit", "sqlite", "preload", 10_000),
        ("on_commit", "sqlite", "plain", 2_000),
        ("on_commit", "postgres", "preload", 2_000),
        ("outbox", "postgres", "preload", 10_000),
        ("outbox", "sqlite", "plain", 2_000),
    ],
)
def test_thousands_of_requests_while_leaders_move(
    make_project, cluster, when, kind, server, requests
):
    project = make_project(kind)
    # The outage comes behind two moves: what is asked for has to last longer.
    requests, every = (requests, 1.0) if SOAK else (min(requests // 10, 400), 0.1)
    if when == "outbox":
        check_outbox(project, cluster, SERVERS[server], requests, every)
    else:
        lost = check_on_commit(project, cluster, SERVERS[server], requests, every)
        assert lost, "the outage was too short to lose anything"


@pytest.mark.long
def test_a_worker_that_is_told_to_end_tells_what_it_leaves(make_project, cluster):
    project = make_project("sqlite")
    with project.served("--graceful-timeout", "1", "--timeout", "2") as port:
        for each in range(2):
            cluster.set_writable(TOPIC, each, False)
        assert ask(port, "/order?when=on_commit&number=1") == 200
    assert project.orders() == {1}
    assert [line.split()[2] for line in project.lines("signals")] == ["1"]
