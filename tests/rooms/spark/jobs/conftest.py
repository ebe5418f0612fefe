"""One Spark session for all jobs, and a way to run one and read its summary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session that jobs find and use; skipped, or failed if required, without Java."""
    from tests.rooms.spark.submitted import local_session

    with local_session("local[2]", tmp_path_factory.mktemp("warehouse")) as made:
        yield made


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
