"""A way to run a job, which finds the one Spark session, and to read its summary."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., tuple[int, dict[str, Any]]]


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
