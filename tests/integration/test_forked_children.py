"""What a child that is forked beside a message may do: nothing that its parent's servers see."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import channels, publish
from tests.scripts import Program, programs

HEAD = """
import warnings
# CPython 3.12 and later warn of every fork beside threads.
warnings.simplefilter("ignore", DeprecationWarning)
def tried(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__
def in_a_child(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


@pytest.fixture(params=["original", "redesigned"])
def cluster(request) -> Iterator[Cluster]:
    with Cluster(dialect=request.param, nsqds=1, lookupds=1) as made:
        made.create_topic("t", partitions=1)
        made.create_channel("t", "c")
        yield made


@pytest.fixture
def program(cluster) -> Iterator[Callable[[str], Program]]:
    with programs(cluster.url) as begin:
        yield lambda code: begin(HEAD + code)


def said(cluster: Cluster) -> list[str]:
    """The commands that answer messages, or end a subscription."""
    names = ("FIN", "REQ", "TOUCH", "CLS")
    found = [(each.serial, each.command) for name in names for each in cluster.log.of(name)]
    return [name for _, name in sorted(found)]


def test_a_child_of_a_handler_answers_nothing(cluster, program):
    """Its FIN would lose a message whose handler then fails in the parent."""
    publish(cluster, b"x")
    script = program("""
def work():
    calls = (message.finish, message.requeue, message.touch, message.detach, message.skip)
    print(message.body, {tried(call) for call in (*calls, consumer.close, consumer.stats)})
def handler(given):
    global message
    message = given
    if message.attempts == 1:
        print(in_a_child(work))
        raise nsqsmart.Requeue(0, backoff=False)
    print("again", flush=True)
    threading.Event().wait()
consumer = nsqsmart.Consumer("t", "c", handler, address=url).start()
threading.Event().wait()
""")
    assert [script.line() for _ in range(3)] == ["b'x' {'UsedAfterFork'}", "7", "again"]
    assert said(cluster) == ["REQ"]


@pytest.mark.parametrize("cluster", ["original"], indirect=True)
@pytest.mark.parametrize("how", ["handler", "handler, workers=0", "batch_handler=handler"])
def test_a_child_ends_where_its_handler_ends(cluster, program, how):
    """It would go on as a second worker, with the messages that its parent has."""
    publish(cluster, *[b"x"] * 6)
    script = program(f"""
ends = [None, SystemExit(), SystemExit(3), SystemExit("no"), ValueError(), KeyboardInterrupt()]
def handler(_):
    end = ends.pop()
    child = os.fork()
    if child:
        os.write(1, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif end is not None:
        raise end
    if not ends:
        done.set()
done = threading.Event()
more = dict(rdy_mode="level", batch_max_messages=1, address=url)
with nsqsmart.Consumer("t", "c", {how}, **more):
    done.wait()
""")
    code, out, err = script.ends()
    assert (code, sorted(out.split())) == (0, ["0", "0", "1", "1", "130", "3"])
    assert err.count("ValueError") == 1
    assert said(cluster).count("FIN") == len(said(cluster)) - 1 == 6


CONSUMED = """
with nsqsmart.Consumer("t", "c", address=url) as source:
    pulled = iter(source)
    message = next(pulled)
    calls = (source.poll, source.close, lambda: next(pulled))
    {work}
"""
PULLED = """
with nsqsmart.PullSubscription(url, "t", "c") as source:
    (message,) = source.pull()
    of_lists = [lambda call=call: call([message]) for call in (source.finish, source.requeue)]
    calls = (source.pull, source.close, source.drain, *of_lists)
    {work}
"""
REFUSED = """
    def work():
        mine = (message.finish, message.requeue, message.touch, message.skip, message.__enter__)
        print({tried(call) for call in (*calls, *mine)})
    in_a_child(work)
    print(message.finish())
"""
LEFT = """
    with message:
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("code", [CONSUMED, PULLED])
@pytest.mark.parametrize(("work", "out"), [(REFUSED, "{'UsedAfterFork'}\nTrue\n"), (LEFT, "3\n")])
def test_a_child_of_who_pulls_answers_nothing(cluster, program, code, work, out):
    """Neither by the end of its blocks, which let through what ends it."""
    publish(cluster, b"x")
    assert program(code.replace("    {work}", work)).ends() == (0, out, "")
    assert said(cluster) == ["FIN", "CLS"]


def test_a_child_keeps_no_connection_of_its_parent_open(cluster, program):
    """The server would wait for a dead parent's answers until they time out."""
    publish(cluster, b"x")
    script = program("""
def handler(message):
    if os.fork() == 0:
        print("child")
        threading.Event().wait()
    os._exit(0)
consumer = nsqsmart.Consumer("t", "c", handler, address=url).start()
threading.Event().wait()
""")
    assert script.line() == "child"
    (count,) = {"client_num", "client_count"} & set(channels(cluster)[0])
    eventually(lambda: [each[count] for each in channels(cluster)] == [0])
