"""One Spark session for all jobs, and a way to run one and read its summary."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that jobs find and use; skipped, or failed if required, without Java."""
    from nsqsmart.errors import ConfigError
    from nsqsmart.spark import session

    try:
        made = session(
            "tests",
            spark_master="local[2]",
            spark_ui_enabled="false",
            spark_sql_shuffle_partitions="2",
            spark_sql_warehouse_dir=str(tmp_path_factory.mktemp("warehouse")),
        )
    except ConfigError as error:
        if "spark" in os.environ.get("NSQSMART_REQUIRE", ""):
            raise
        pytest.skip(str(error))
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a job with ``--json``; its exit code and its summary, or what it said on stderr."""
    from nsqsmart.spark.jobs import main

    def run_job(job: str, *arguments: object) -> tuple[int, dict[str, Any]]:
        code = main([job, *map(str, arguments), "--json"])
        printed = capsys.readouterr()
        lines = printed.out.splitlines()
        return code, json.loads(lines[-1]) if lines else {"error": printed.err}

    return run_job
