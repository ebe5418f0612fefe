"""What pytest's users find: each test here is a pytest run of its own, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from importlib.metadata import entry_points

import pytest

from tests.helpers import ROOT

PLUGIN = "nsqsmart.testing.plugin"


@pytest.fixture
def run(tmp_path):
    """Runs pytest on *code*; returns what it printed."""

    def run(code, *arguments, conftest="", passes=True, autoload=False):
        (tmp_path / "test_it.py").write_text(textwrap.dedent(code))
        (tmp_path / "conftest.py").write_text(textwrap.dedent(conftest))
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        found = autoload and entry_points(group="pytest11", name="nsqsmart")
        named = [] if found else ["-p", PLUGIN]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        if not autoload:
            # The plugins of others cost more than a second to load.
            environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-p",
            "no:cacheprovider",
        ]
        result = subprocess.run(
            [*command, *named, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=55,
        )
        assert (result.returncode == 0) is passes, result.stdout + result.stderr
        return result.stdout

    return run


PAGE = (ROOT / "docs" / "testing.md").read_text()
SHOWN = [
    code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def test_" in code
]


@pytest.mark.parametrize("code", SHOWN)
def test_what_the_page_shows_passes(run, code):
    assert " passed" in run(code)


def test_the_entry_point_is_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"nsqsmart": PLUGIN}


def test_a_run_that_asks_for_nothing_loads_nothing(run):
    conftest = """
        import sys

        def pytest_sessionfinish(session):
            heavy = ("requests", "urllib3", "snappy", "asyncio", "nsqsmart.client", "nsqsmart.net",
                     "nsqsmart.config", "nsqsmart.embedded", "nsqsmart.errors")
            print("LOADED", [name for name in heavy if name in sys.modules], PLUGIN in sys.modules)

        PLUGIN = "nsqsmart.testing.plugin"
    """
    out = run("def test_nothing():\n    pass\n", "-s", conftest=conftest, autoload=True)
    assert "LOADED [] True" in out


def test_a_cluster_a_topic_a_producer_and_consumers(run):
    out = run(
        """
        import queue
        import pytest

        topics = set()

        @pytest.mark.parametrize("number", [1, 2, 3])
        def test_there_and_back(nsq_cluster, nsq_topic, nsq_producer, nsq_consumer_factory, number):
            topics.add(nsq_topic)
            assert len(topics) == number
            nsq_producer.publish(nsq_topic, b"two apples")
            assert [each.body for each in nsq_cluster.stored(nsq_topic)] == [b"two apples"]
            handled = queue.SimpleQueue()
            nsq_consumer_factory(lambda message: handled.put(message.body))
            assert handled.get(timeout=10) == b"two apples"

        @pytest.mark.nsq(partitions=4, ordered=True)
        class TestOrdered:
            def test_shape(self, nsq_cluster, nsq_topic, nsq_producer):
                nsq_producer.publish(nsq_topic, b"x", partition=3)
                (stored,) = nsq_cluster.stored(nsq_topic)
                assert stored.partition == 3

            @pytest.mark.nsq(partitions=2)
            def test_the_nearest_mark_decides(self, nsq_cluster, nsq_topic):
                nsq_cluster.leader(nsq_topic, 1)
                with pytest.raises(LookupError):
                    nsq_cluster.leader(nsq_topic, 2)

        def test_pulled(nsq_topic, nsq_producer, nsq_consumer_factory):
            nsq_producer.publish(nsq_topic, b"x")
            (message,) = nsq_consumer_factory(workers=1).poll(timeout=10)
            message.finish()

        @pytest.mark.parametrize("odd", ["äöü /" * 30])
        def test_a_name_that_no_topic_can_have(nsq_topic, odd):
            assert len(nsq_topic) <= 64
        """
    )
    assert "7 passed" in out


def test_faults_by_name_end_with_the_test(run):
    out = run(
        """
        import pytest
        import nsqsmart

        def test_a_fault(nsq_faults, nsq_topic, nsq_producer):
            fault = nsq_faults("PUB", "reply", "E_FAILED_ON_NOT_LEADER", topic=nsq_topic)
            assert nsq_producer.publish(nsq_topic, b"x").attempts == 2
            assert fault.acted == 1
            nsq_faults("PUB", "store_then_reset", times=1000)

        @pytest.mark.nsq(replicas=2)
        def test_a_leader_moves_and_dies(nsq_faults, nsq_cluster, nsq_topic, nsq_producer):
            nsq_producer.publish(nsq_topic, b"x")
            before = nsq_cluster.leader(nsq_topic)
            nsq_faults.move_leader(nsq_topic)
            assert nsq_cluster.leader(nsq_topic) is not before
            nsq_cluster.kill(nsq_cluster.nsqds[0])
            nsq_cluster.hang(nsq_cluster.nsqds[1])
            nsq_cluster.kill(nsq_cluster.lookupds[0])

        def test_all_is_as_it_was(nsq_cluster, nsq_topic, nsq_producer):
            assert all(each.listening for each in nsq_cluster.nsqds + nsq_cluster.lookupds)
            for _ in range(10):
                assert nsq_producer.publish(nsq_topic, b"x").attempts == 1

        def test_wrong_names(nsq_faults):
            with pytest.raises(ValueError, match="did you mean 'store_then_reset'"):
                nsq_faults("PUB", "store_and_reset")
            with pytest.raises(ValueError, match="did you mean 'PUB'"):
                nsq_faults("PUBS", "reset")
        """
    )
    assert "4 passed" in out


def test_an_outbox_needs_no_server(run):
    out = run(
        """
        import socket
        import nsqsmart
        from nsqsmart.testing.recording import RecordingProducer, assert_published, outbox

        def application(order):
            nsqsmart.publish("orders", b"order %d" % order, key="customer-7")

        def test_somebody_records_without_the_fixture():
            RecordingProducer(outbox).publish("orders", b"order 5", key="customer-7")

        def test_first(nsq_outbox, monkeypatch):
            monkeypatch.setattr(socket, "socket", None)
            application(5)
            assert_published(nsq_outbox, "orders", contains="order 5", key="customer-7", times=1)

        def test_second_begins_empty(nsq_outbox):
            assert nsq_outbox == [] and nsq_outbox is outbox
            RecordingProducer(nsq_outbox).publish("orders", b"x")
            assert nsq_outbox.bodies("orders") == [b"x"]

        def test_without_it_nothing_is_recorded():
            assert outbox == []
            assert nsqsmart.publish.__module__ == "nsqsmart.client.producer.default"
        """
    )
    assert "4 passed" in out


def test_the_cluster_can_be_chosen(run):
    conftest = """
        import pytest

        @pytest.fixture(scope="session")
        def nsq_cluster_options():
            return {"dialect": "original", "nsqds": 1}
    """
    code = """
        def test_original(nsq_cluster, nsq_topic, nsq_producer):
            assert (nsq_cluster.dialect, len(nsq_cluster.nsqds)) == ("original", 1)
            assert nsq_producer.publish(nsq_topic, b"x").partition is None
    """
    assert "1 passed" in run(code, conftest=conftest)


@pytest.mark.parametrize(
    ("mark", "said"),
    [("nsq(partition=4)", "did you mean partitions?"), ("nsq(4)", "nsq(partitions=4)")],
)
def test_a_wrong_mark_is_named(run, mark, said):
    code = f"import pytest\n\n@pytest.mark.{mark}\ndef test_it(nsq_topic):\n    pass\n"
    assert said in run(code, passes=False)
