"""Depths from the servers' figures: asked, printed, kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.rooms.spark.jobs.conftest import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Publish = Callable[[int], list[bytes]]


def test_what_waits_is_told_by_place_and_channel(
    run: Run, cluster: Cluster, publish: Publish
) -> None:
    publish(500)

    def seen() -> bool:
        return run("lag", "--address", cluster.url)[1]["unfinished"] == 500

    eventually(seen)
    arguments = ("--topic", "orders", "--samples", 2, "--every", "1ms")
    code, summary = run("lag", "--address", cluster.url, *arguments)
    assert (code, summary["unfinished"], summary["rows"]) == (0, 500, 4)
    assert sum(each["waiting"] for each in summary["channels"]) == 500
    redesigned = cluster.dialect == "redesigned"
    assert [each["partition"] for each in summary["channels"]] == (
        [0, 1] if redesigned else [None, None]
    )
    assert {each["channel"] for each in summary["channels"]} == {"archive"}


def test_what_is_not_there_is_an_error_and_who_does_not_answer_is_asked_later(
    run: Run, cluster: Cluster
) -> None:
    code, summary = run("lag", "--address", cluster.url, "--topic", "order")
    assert code == 1
    assert "knows topic 'order': did you mean orders?" in summary["error"]
    code, summary = run("lag", "--address", cluster.url, "--channel", "absent")
    assert code == 1
    cluster.kill(cluster.lookupds[0])
    code, summary = run("lag", "--address", cluster.url, "--client", "lookupd_request_timeout=0.5")
    assert code == 75


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_figures_are_kept_in_parquet(run: Run, spark: SparkSession, tmp_path: Path) -> None:
    with Cluster(nsqds=1) as cluster:
        nsqsmart.Admin(cluster.url).create_topic("orders", partitions=1)
        nsqsmart.Admin(cluster.url).create_channel("orders", "c")
        for _ in range(2):
            assert run("lag", "--address", cluster.url, "--out", tmp_path / "lag")[0] == 0
    rows = spark.read.parquet(str(tmp_path / "lag")).collect()
    assert [(row.topic, row.partition, row.channel) for row in rows] == [("orders", 0, "c")] * 2


def test_without_java_the_reason_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    code, summary = run("order-audit", tmp_path)
    assert code == 1
    assert "there is no java: install one, or set JAVA_HOME" in summary["error"]
