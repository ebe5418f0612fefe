"""Publishing where processes fork, signals arrive, files run out, and the interpreter ends."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from nsqsmart.embedded import Cluster, faults
from tests.helpers import eventually
from tests.integration.publishing import bodies
from tests.peers import Peer, Talk
from tests.scripts import Program, programs


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(nsqds=2, lookupds=1) as made:
        made.create_topic("t", partitions=2)
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def program(cluster) -> Iterator[Callable[[str], Program]]:
    with programs(cluster.url) as begin:
        yield begin


# ------------------------------------------------------------------------------------ processes


def test_parent_child_and_grandchild_go_on_at_once(cluster, program):
    """Each answer comes back to its caller, and each connection has one owner."""
    script = program("""
        producer = nsqsmart.Producer(url, pool_size=1)
        def work(first):
            for trace_id in range(first, first + 100):
                body = str(os.getpid()).encode()
                found = producer.publish("t", body, partition=0, trace_id=trace_id, timeout=10)
                assert found.trace_id == trace_id, found
        work(1)
        child = os.fork()
        if child == 0:
            producer.publish("t", str(os.getpid()).encode(), partition=0)
            grandchild = os.fork()
            work(1000 if grandchild else 2000)
            if grandchild:
                assert os.waitpid(grandchild, 0)[1] == 0
            producer.close()
            os._exit(0)
        work(3000)
        assert os.waitpid(child, 0)[1] == 0
        work(4000)
        producer.close()
    """)
    assert script.ends() == (0, "", "")
    assert sorted(bodies(cluster).values()) == [100, 101, 300]
    assert len({entry.connection for entry in cluster.log.of("PUB_TRACE")}) == 3


PREFORK = """
    producer = nsqsmart.Producer(url)
    partitions = {partitions}
    def place(number):
        return number % partitions if partitions else None
    producer.publish("t", b"master first", partition=place(0))

    def work(number):
        for turn in range(25):
            body = b"%d %d %d" % (os.getpid(), number, turn)
            producer.publish("t", body, partition=place(turn), timeout=15)

    def serve():
        start = threading.Barrier(2)
        def run(number):
            start.wait()
            work(number)
            done.append(number)
        done = []
        threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        return len(done) == 2

    workers = []
    for _ in range(8):
        worker = os.fork()
        if worker == 0:
            code = 1
            try:
                code = 0 if serve() else 1
            finally:
                os._exit(code)
        workers.append(worker)
    print([os.waitpid(worker, 0)[1] for worker in workers])
    producer.publish("t", b"master last", partition=place(0))
    producer.close()
"""


@pytest.mark.parametrize("dialect", ["original", "redesigned"])
def test_workers_that_are_forked_after_the_first_publish(dialect):
    """As gunicorn does it: the module of the application is loaded, and used, in the master."""
    partitions = 2 if dialect == "redesigned" else 0
    with Cluster(dialect=dialect, nsqds=2 if partitions else 1, lookupds=1) as cluster:
        if partitions:
            cluster.create_topic("t", partitions=partitions)
        cluster.create_channel("t", "c")
        with programs(cluster.url) as begin:
            ended = begin(PREFORK.replace("{partitions}", str(partitions))).ends()
        assert ended == (0, f"{[0] * 8}\n", "")
        found = bodies(cluster)
        assert set(found.values()) == {1}
        by_process = Counter(body.split()[0] for body in found)
        assert by_process.pop(b"master") == 2
        assert list(by_process.values()) == [50] * 8
        # The master's connection is the master's: its first publish and its last.
        entries = cluster.log.of("PUB")
        assert entries[0].connection == entries[-1].connection
        assert len({entry.connection for entry in entries}) >= 9


def test_nothing_is_imported_while_it_publishes(program):
    """A child that is forked meanwhile would wait for the lock of that import for ever."""
    script = program("""
        for options in ({}, {"snappy": True}, {"deflate": True}):
            producer = nsqsmart.Producer(url, **options)
            before = set(sys.modules)
            producer.publish("t", b"x")
            producer.publish("t", b"x", key="ż", trace=True)
            producer.publish_many("t", [b"x"], key=7)
            producer.publish_json("t", {"a": 1})
            try:
                producer.publish("absent", b"x", timeout=0.2)
            except nsqsmart.PublishError:
                pass
            producer.close()
            print(sorted(set(sys.modules) - before))
    """)
    code, out, _ = script.ends()
    assert (code, out) == (0, "[]\n" * 3)


def test_nothing_is_imported_to_reach_an_nsqd_that_is_named(cluster, program):
    script = program(f"""
        producer = nsqsmart.Producer("nsq://{cluster.nsqds[0].name}")
        before = set(sys.modules)
        producer.publish("t", b"x", timeout=10)
        print(sorted(set(sys.modules) - before))
        producer.close()
    """)
    assert script.ends() == (0, "[]\n", "")


def test_who_only_publishes_has_no_thread(program):
    script = program("""
        def start(thread):
            raise AssertionError(thread.name)
        threading.Thread.start = start
        producer = nsqsmart.Producer(url)
        for _ in range(10):
            producer.publish("t", b"x", key="k", trace=True)
            producer.publish_many("t", [b"x", b"y"])
        print(len(threading.enumerate()), len(os.listdir("/proc/self/task")))
        producer.close()
        print(len(threading.enumerate()), len(os.listdir("/proc/self/task")))
    """)
    assert script.ends() == (0, "1 1\n1 1\n", "")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_publishing_at_exit(cluster, program, host):
    script = program(f"""
        import atexit
        url = url.replace("127.0.0.1", "{host}")
        used, fresh = nsqsmart.Producer(url), nsqsmart.Producer(url)
        used.publish("t", b"before")
        def last(producer, body):
            nsqsmart.net.resolving._known.clear()
            print(producer.publish("t", body, timeout=10).attempts)
        def start(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        atexit.register(last, used, b"used")
        atexit.register(last, fresh, b"fresh")
        # As Python has it from 3.12 on; what is registered last runs first.
        atexit.register(setattr, threading.Thread, "start", start)
    """)
    assert script.ends() == (0, "1\n1\n", "")
    assert bodies(cluster) == {b"before": 1, b"used": 1, b"fresh": 1}


# -------------------------------------------------------------------------------------- signals


STORM = """
    signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
"""


def test_a_storm_of_signals_changes_no_result(cluster, program):
    script = program(
        STORM
        + """
    producer = nsqsmart.Producer(url, pool_size=1)
    for trace_id in range(1, 301):
        found = producer.publish("t", b"%d" % trace_id, key="k", trace_id=trace_id, timeout=10)
        assert (found.trace_id, found.attempts) == (trace_id, 1), found
    producer.publish("t", b"x" * 1_000_000, timeout=10)
    producer.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    """
    )
    assert script.ends() == (0, "", "")
    assert [stored.body for stored in cluster.stored("t") if len(stored.body) < 9] == [
        b"%d" % number for number in range(1, 301)
    ]


@pytest.mark.parametrize(
    "fault",
    [faults.on("PUB").stall(), faults.on("/lookup").stall()],
    ids=["the answer never comes", "the lookup never answers"],
)
def test_a_storm_of_signals_prolongs_no_deadline(cluster, program, fault):
    cluster.faults.add(fault)
    script = program(
        STORM
        + """
    producer = nsqsmart.Producer(url)
    began = time.monotonic()
    try:
        producer.publish("t", b"x", key="k", timeout=0.6)
    except nsqsmart.PublishError as error:
        print(error.outcome)
    print(time.monotonic() - began < 1.1)
    print(producer.publish("t", b"y", key="k", timeout=10).count)
    producer.close()
    signal.setitimer(signal.ITIMER_REAL, 0)
    """
    )
    outcome = "uncertain" if fault.match.command == "PUB" else "not_sent"
    assert script.ends()[:2] == (0, f"{outcome}\nTrue\n1\n")


def test_real_interrupts_leave_a_producer_that_works(program):
    """SIGINT at any moment: no answer is taken for another's, and nothing is held for ever."""
    script = program("""
        import random
        chance = random.Random(7)
        main = threading.get_ident()
        producer = nsqsmart.Producer(url, pool_size=1, lookupd_poll_interval=0.01,
                                     lookupd_min_refresh_interval=0.01)
        producer.publish("t", b"warm", key="k")
        go, interrupted = threading.Semaphore(0), 0
        def disturb():
            while True:
                go.acquire()
                time.sleep(chance.random() * 0.002)
                signal.pthread_kill(main, signal.SIGINT)
        threading.Thread(target=disturb, daemon=True).start()
        for turn in range(300):
            go.release()
            try:
                while True:
                    producer.publish("t", b"x", key="k")
            except KeyboardInterrupt:
                interrupted += 1
            began = time.monotonic()
            found = producer.publish("t", b"y", key="k", trace_id=turn + 1, timeout=3)
            assert found.trace_id == turn + 1, found
            assert time.monotonic() - began < 3
        print(interrupted)
        producer.close()
    """)
    code, out, err = script.ends(timeout=50)
    assert (code, out) == (0, "300\n"), err


@pytest.mark.parametrize("where", ["counting", "waiting"])
def test_a_signal_handler_may_close_what_it_interrupts(cluster, program, where):
    """The locks of the call that it stands on are taken, and its connection is lent."""
    if where == "waiting":
        cluster.faults.add(faults.on("PUB").delay(0.5))
    script = program(f"""
        from nsqsmart.net import pool
        producer = nsqsmart.Producer(url)
        def handler(number, frame):
            began = time.monotonic()
            producer.close()
            print("closed", time.monotonic() - began < 0.4)
        signal.signal(signal.SIGTERM, handler)
        count = pool.HostPool.count
        def counting(place):
            signal.raise_signal(signal.SIGTERM)
            return count(place)
        if {where == "counting"}:
            pool.HostPool.count = counting
        print("ready")
        try:
            print(producer.publish("t", b"x", timeout=10).attempts)
        except nsqsmart.PublishError as error:
            print(error.outcome, repr(error.__cause__))
        def sockets():
            for each in os.listdir("/proc/self/fd"):
                try:
                    yield os.readlink("/proc/self/fd/" + each).startswith("socket:")
                except FileNotFoundError:  # that of the listing itself
                    pass
        print(sum(sockets()))
        pool.HostPool.count = count
        producer.close()
    """)
    assert script.line() == "ready"
    if where == "waiting":
        eventually(lambda: cluster.log.of("PUB"))
        script.signal(15)
    ending = "1" if where == "waiting" else "not_sent ClientClosed('the client was closed')"
    assert script.ends() == (0, f"closed True\n{ending}\n0\n", "")


def test_a_default_sigpipe_does_not_end_the_process(program):
    """Common in command-line tools; a write to a peer that is gone would kill them."""

    def gone(talk: Talk) -> None:
        talk.greet()
        talk.line()
        # Behind an end in order a reset is a broken pipe.
        talk.sock.shutdown(socket.SHUT_WR)
        talk.reset()

    with Peer(gone) as peer:
        script = program(f"""
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            producer = nsqsmart.Producer("{peer.url}", publish_attempts=1)
            try:
                producer.publish("t", b"x" * 20_000_000, timeout=10)
            except nsqsmart.PublishError as error:
                print(error.outcome, error.code)
            producer.close()
        """)
        assert script.ends() == (0, "uncertain ConnectionLost\n", "")


# ---------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("direct", [True, False], ids=["nsqd", "lookup"])
def test_without_a_free_descriptor_nothing_is_sent_and_nothing_is_harmed(program, direct):
    with Cluster(dialect="original", lookupds=0 if direct else 1) as cluster:
        cluster.create_topic("t")
        script = program(f"""
            import resource
            url = "{cluster.url}"
            warm, cold = nsqsmart.Producer(url), nsqsmart.Producer(url)
            warm.publish("t", b"warm")
            before = resource.getrlimit(resource.RLIMIT_NOFILE)
            highest = max(map(int, os.listdir("/proc/self/fd")))
            filler = [os.dup(0) for _ in range(highest)]
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(filler) + 1, before[1]))
            for producer in (cold, warm):
                began, cpu = time.monotonic(), time.process_time()
                try:
                    print(producer.publish("t", b"x", timeout=0.8).attempts)
                except nsqsmart.PublishError as error:
                    print(error.outcome, "Too many open files" in str(error))
                    print(len(error.attempts) < 20, time.process_time() - cpu < 0.5)
                print(time.monotonic() - began < 1.3)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            for each in filler: os.close(each)
            print(cold.publish("t", b"y", timeout=10).attempts)
            warm.close()
            cold.close()
            print(max(map(int, os.listdir("/proc/self/fd"))) <= highest)
        """)
        code, out, _ = script.ends()
        assert (code, out.split("\n")) == (
            0,
            ["not_sent True", "True True", "True", "1", "True", "1", "True", ""],
        )
        assert bodies(cluster) == {b"warm": 1, b"x": 1, b"y": 1}
