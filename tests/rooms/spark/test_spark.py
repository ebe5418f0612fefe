"""The source and the sink under Spark itself, on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: pip install 'nsqsmart[spark]'")

import nsqsmart
from nsqsmart.embedded import Cluster
from tests.helpers import eventually
from tests.integration.consuming import channels
from tests.rooms.spark.conftest import CHANNEL, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

Publish = Callable[[int], list[bytes]]
AWAIT = 120
one_dialect = pytest.mark.parametrize("cluster", ["redesigned"], indirect=True)
"""Spark takes seconds for anything: only what differs is tried on both."""


class Query:
    """One query with a checkpoint, run as often as a test likes."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path, **options: str) -> None:
        self.spark = spark
        self.folder = folder
        self.options = {
            "address": cluster.url,
            "subscribe": TOPIC,
            "channel": CHANNEL,
            "spoolLocation": str(folder / "spool"),
            "idleTimeoutMs": "100",
            "chunkMessages": "100",
            **options,
        }

    def stream(self) -> DataFrame:
        return self.spark.readStream.format("nsq").options(**self.options).load()

    def run(self, frame: DataFrame | None = None) -> list[bytes]:
        """All there is, into files; what the files hold."""
        query = self.start(frame)
        assert query.awaitTermination(AWAIT)
        return self.rows()

    def start(self, frame: DataFrame | None = None) -> StreamingQuery:
        return (
            (frame or self.stream())
            .writeStream.format("parquet")
            .option("path", str(self.folder / "out"))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def rows(self) -> list[bytes]:
        found = self.spark.read.parquet(str(self.folder / "out")).select("value").collect()
        return sorted(bytes(row.value) for row in found)


@pytest.fixture
def query(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Query:
    return Query(spark, cluster, tmp_path)


def newest(folder: Path) -> str:
    """The name of the last batch in a log of Spark's."""
    return str(max(int(each.name) for each in folder.iterdir() if each.name.isdigit()))


def test_all_there_is_and_then_what_came_later(query: Query, publish: Publish) -> None:
    sent = publish(1000)
    assert query.run() == sent
    sent += publish(10)
    assert query.run() == sent


@one_dialect
def test_batches_are_as_large_as_asked_for(query: Query, publish: Publish) -> None:
    sent = publish(500)
    query.options["maxMessagesPerTrigger"] = "200"
    running = query.start()
    assert running.awaitTermination(AWAIT)
    assert query.rows() == sent
    sizes = [each.numInputRows for each in running.recentProgress]
    assert max(sizes) <= 200
    assert running.recentProgress[0].sources[0].latestOffset is not None


@one_dialect
def test_a_batch_that_was_not_committed_is_read_again(query: Query, publish: Publish) -> None:
    sent = publish(300)
    assert query.run() == sent
    # As if the driver had died behind the sink's commit and before its own.
    commits = query.folder / "checkpoint" / "commits"
    last = newest(commits)
    (commits / last).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    sent += publish(10)
    assert query.run() == sent


@one_dialect
def test_several_actions_see_the_same_rows(query: Query, publish: Publish) -> None:
    sent = publish(300)
    seen: list[list[bytes]] = []

    def look(frame: DataFrame, _batch: int) -> None:
        rows = [frame.select("value").collect() for _ in range(2)]
        seen.extend(sorted(bytes(row.value) for row in each) for each in rows)

    running = (
        query.stream()
        .writeStream.foreachBatch(look)
        .option("checkpointLocation", str(query.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert running.awaitTermination(AWAIT)
    assert [first for first in seen[::2] if first] == [again for again in seen[1::2] if again]
    assert sorted(body for rows in seen[::2] for body in rows) == sent


@one_dialect
def test_a_task_that_fails_is_tried_again(query: Query, publish: Publish) -> None:
    sent = publish(300)
    from pyspark.sql.functions import udf

    @udf("binary", useArrow=False)
    def fail_once(value: bytes) -> bytes:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0 and value.endswith(b"7"):
            raise RuntimeError("the first attempt")
        return value

    frame = query.stream()
    assert query.run(frame.withColumn("value", fail_once(frame.value))) == sent


@one_dialect
def test_a_secret_is_in_no_plan(query: Query) -> None:
    """Plans are logged, and shown in Spark's pages."""
    options = {**query.options, "mode": "peek", "nsq.auth_secret": "open-sesame-4711"}
    frame = query.spark.read.format("nsq").options(**options).load()
    plans = frame._jdf.queryExecution().toString()
    assert "nsq" in plans.lower()
    assert "open-sesame" not in plans + repr(frame)


@one_dialect
def test_a_limit_leaves_no_consumer_behind(
    query: Query, publish: Publish, cluster: Cluster
) -> None:
    """Spark ends a reader early when it has enough rows; its worker is used again."""
    publish(100)
    frame = query.spark.read.format("nsq").options(**{**query.options, "mode": "peek"}).load()
    for _ in range(3):
        assert len(frame.limit(3).collect()) == 3
    eventually(lambda: not any(one["client_num"] for one in channels(cluster, TOPIC, CHANNEL)))


@one_dialect
def test_a_table_in_sql(spark: SparkSession, query: Query, publish: Publish) -> None:
    sent = publish(100)
    told = ", ".join(f"{name} '{value}'" for name, value in query.options.items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW waiting USING nsq OPTIONS (mode 'peek', {told})")
    assert spark.sql("SELECT count(*) AS n FROM waiting").first().n == len(sent)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW drained USING nsq OPTIONS ({told})")
    for _ in range(2):  # every action sees the same
        found = spark.sql("SELECT value FROM drained").collect()
        assert sorted(bytes(row.value) for row in found) == sent


def test_rows_have_what_messages_have(query: Query, publish: Publish, cluster: Cluster) -> None:
    publish(10)
    options = {**query.options, "mode": "drain"}
    row = query.spark.read.format("nsq").options(**options).load().first()
    assert row.topic == TOPIC
    assert row.channel == CHANNEL
    assert row.attempts == 1
    assert row.timestamp_ns // 1_000_000_000 == int(row.timestamp.timestamp())
    assert row.nsqd in {
        f"{host}:{port}" for host, port in (each.tcp_address for each in cluster.nsqds)
    }
    redesigned = cluster.dialect == "redesigned"
    assert (row.partition is not None) == redesigned
    assert (row.internal_id is not None) == redesigned
    assert len(row.message_id) == (32 if redesigned else 16)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxMessagePerTrigger": "3"}, "did you mean maxMessagesPerTrigger"),
        ({"channel": "x#ephemeral"}, "ephemeral"),
        ({"spoolLocation": ""}, "spoolLocation"),
    ],
)
@one_dialect
def test_a_wrong_option_ends_the_query_and_is_named(
    query: Query, options: dict[str, str], said: str
) -> None:
    query.options |= options
    with pytest.raises(Exception, match=said):
        query.run()


@one_dialect
def test_a_deleted_spool_ends_the_query(query: Query, publish: Publish) -> None:
    publish(300)
    query.run()
    commits = query.folder / "checkpoint" / "commits"
    for each in commits.iterdir():
        each.unlink()
    # A file sink that has the batch does not ask for it again.
    shutil.rmtree(query.folder / "out")
    shutil.rmtree(query.folder / "spool")
    with pytest.raises(Exception, match="not in the spool"):
        query.run()


# ------------------------------------------------------------------------------------------- sink


def stored(cluster: Cluster, topic: str = TOPIC) -> list[bytes]:
    return sorted(each.body for each in cluster.stored(topic))


def save(frame: DataFrame, cluster: Cluster, **options: Any) -> None:
    given = {"address": cluster.url, "topic": TOPIC, **options}
    frame.write.format("nsq").options(**given).mode("append").save()


@one_dialect
def test_rows_become_messages(spark: SparkSession, cluster: Cluster) -> None:
    frame = spark.range(2500).selectExpr("cast(id AS string) AS value")
    save(frame, cluster)
    assert stored(cluster) == sorted(b"%d" % number for number in range(2500))


@one_dialect
def test_a_stream_is_published(query: Query, publish: Publish, cluster: Cluster) -> None:
    sent = publish(200)
    admin = nsqsmart.Admin(cluster.url)
    admin.create_topic("copy")
    admin.create_channel("copy", "all")
    running = (
        query.stream()
        .select("value")
        .writeStream.format("nsq")
        .options(address=cluster.url, topic="copy")
        .option("checkpointLocation", str(query.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert running.awaitTermination(AWAIT)
    assert stored(cluster, "copy") == sent


@one_dialect
def test_keys_keep_their_order(spark: SparkSession, cluster: Cluster) -> None:
    from nsqsmart.spark import for_ordered_publish

    frame = spark.range(1000).selectExpr(
        "cast(id AS string) AS value", "cast(id % 7 AS string) AS key", "id AS place"
    )
    ordered = for_ordered_publish(frame, "key", 2, order_by="place").drop("place")
    save(ordered, cluster)
    by_key: dict[int, list[int]] = {}
    places: dict[int, set[int]] = {}
    for each in cluster.stored(TOPIC):
        number = int(each.body)
        by_key.setdefault(number % 7, []).append(number)
        places.setdefault(number % 7, set()).add(each.partition)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sum(map(len, by_key.values())) == 1000
    assert all(len(found) == 1 for found in places.values())


@one_dialect
def test_partitions_and_trace_ids_are_kept(spark: SparkSession, cluster: Cluster) -> None:
    frame = spark.range(100).selectExpr(
        "cast(id AS string) AS value", "cast(id % 2 AS int) AS partition", "id + 1 AS trace_id"
    )
    save(frame, cluster)
    found = cluster.stored(TOPIC)
    assert len(found) == 100
    assert all(each.partition == int(each.body) % 2 for each in found)
    assert all(each.trace_id == int(each.body) + 1 for each in found)


@one_dialect
def test_stamped_rows_are_known_again(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create_topic("stamped", extend_support=True)
    cluster.create_channel("stamped", "all")
    frame = spark.range(20).selectExpr("cast(id AS string) AS value").coalesce(1)
    save(frame, cluster, topic="stamped", stampRows="true")
    with nsqsmart.PullSubscription(cluster.url, "stamped", "all") as source:
        rows: set[str] = set()
        while len(rows) < 20:
            messages = source.pull(20, timeout=10)
            assert messages, rows
            rows |= {each.headers["nsqsmart-row"] for each in messages}
            source.finish(messages)
    assert rows == {str(number) for number in range(20)}


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("cast(id AS string) AS valu", {}, "no column 'valu'"),
        ("cast(id AS string) AS value", {"topic": "a b"}, "a b"),
        ("cast(NULL AS string) AS value", {}, "value is null"),
        ("cast(id AS string) AS value", {"partitioner": "hash"}, "needs a column key"),
    ],
)
@one_dialect
def test_rows_that_cannot_be_published(
    spark: SparkSession, cluster: Cluster, columns: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=said):
        save(spark.range(3).selectExpr(columns), cluster, **options)


@one_dialect
def test_overwriting_is_refused(spark: SparkSession, cluster: Cluster) -> None:
    frame = spark.range(3).selectExpr("cast(id AS string) AS value")
    with pytest.raises(Exception, match="append"):
        frame.write.format("nsq").options(address=cluster.url, topic=TOPIC).mode("overwrite").save()


# ---------------------------------------------------------------------------------------- offsets


@one_dialect
def test_offsets_are_sparks_offsets(query: Query, publish: Publish) -> None:
    sent = publish(500)
    query.options |= {"readMode": "offsets", "startingOffsets": "earliest"}
    assert query.run() == sent
    sent += publish(100)
    assert query.run() == sent
    offsets = query.folder / "checkpoint" / "offsets"
    logged = (offsets / newest(offsets)).read_text().splitlines()[-1]
    assert json.loads(logged)["offsets"].keys() == {TOPIC}
    batch = {**query.options, "startingOffsets": "earliest"}
    assert query.spark.read.format("nsq").options(**batch).load().count() == 600
