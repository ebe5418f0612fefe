"""Runs driving.py, and reads what it has written without Spark."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

import pyarrow.parquet as pq
import pytest

from tests.helpers import ROOT
from tests.rooms.spark.conftest import CHANNEL, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
LIMIT = 400
Point = tuple[str, int, str]
JVM = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:CICompilerCount=1 -Xshare:auto -Xmn256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""The other one starts a program, ``readlink``, for each file."""
CHEAP = {
    "spark_ui_enabled": "false",
    "spark_sql_shuffle_partitions": "2",
    "spark_sql_streaming_checkpointFileManagerClass": FILES,
    "spark_driver_extraJavaOptions": JVM,
    "spark_executor_extraJavaOptions": JVM,
}
"""What costs seconds of CPU in each JVM, and changes nothing that is tested."""
LOCAL = {"spark_master": "local[2,9]", **CHEAP}
INTERPRETED = {
    "spark_sql_codegen_wholeStage": "false",
    "spark_sql_codegen_factoryMode": "NO_CODEGEN",
}
"""No Java is made and compiled for a handful of rows; the submitted queries still do that."""


class Driver:
    """A query on *address* in a process of its own, run as often as a test likes."""

    def __init__(self, address: str, folder: Path, **options: object) -> None:
        self.folder = folder
        self.sink = "files"
        self.kill_at = -1
        self._planted = 0
        self.session: dict[str, str] = dict(LOCAL)
        self.environment = spark_environment(folder / "home")
        self.command = [sys.executable, str(HERE / "driving.py")]
        self.options: dict[str, Any] = {
            "address": address,
            "subscribe": TOPIC,
            "channel": CHANNEL,
            "spoolLocation": str(folder / "spool"),
            "idleTimeoutMs": "100",
            "chunkMessages": "50",
            "messageTimeoutMs": "2000",
            "maxMessagesPerTrigger": "300",
            **options,
        }

    def on_two_executors(self, **more: str) -> None:
        """Two executors with a core each, as processes of their own."""
        self.session = {
            "spark_master": "local-cluster[2,1,1024]",
            "spark_task_maxFailures": "9",
            "spark_executor_memory": "512m",
            **CHEAP,
            **more,
        }

    def run(self, *points: Point) -> int:
        """To its end, or until it is killed; the exit code.

        A worker outlives a JVM that is killed, for a moment: it knows no points but its own run's.
        """
        told = {
            "folder": str(self.folder),
            "sink": self.sink,
            "kill_at": self.kill_at,
            "session": self.session,
            "options": {name: str(value) for name, value in self.options.items()},
        }
        planted = json.dumps({"points": points, "first": self._planted, "folder": str(self.folder)})
        self._planted += len(points)
        path = [str(HERE / "planted"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "PLANTED": planted,
            **self.environment,
        }
        with (self.folder / "output").open("ab") as output:
            return run_group(
                [*self.command, json.dumps(told)],
                env=environment,
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )

    def finish(self) -> None:
        """Run it without trouble; fails with what Spark said."""
        if self.run():
            pytest.fail(self.output())

    def was_reached(self, number: int = 0) -> bool:
        """Whether that one of the points of the last runs was reached."""
        return (self.folder / f"reached-{number}").exists()

    def pullers(self) -> int:
        """Below how many JVMs messages were read."""
        return len(list(self.folder.glob("pulled-*")))

    def output(self) -> str:
        """The end of what was printed."""
        return (self.folder / "output").read_text(errors="replace")[-6000:]

    def rows(self) -> list[bytes]:
        """What the sink holds, sorted."""
        return sorted(body for file in self._files() for body in values(file))

    def column(self, name: str) -> list[Any]:
        """One column of all rows."""
        return [each for file in self._files() for each in values(file, name)]

    def _files(self) -> list[Path]:
        out = self.folder / "out"
        if self.sink != "files":
            return sorted(out.glob("batch=*/*.parquet"))
        # The file sink's log says which of the files count; a compacted one repeats the earlier.
        paths = {
            json.loads(line)["path"]
            for log in (out / "_spark_metadata").iterdir()
            if not log.name.startswith(".")
            for line in log.read_text().splitlines()[1:]
        }
        return [Path(urlparse(path).path) for path in sorted(paths)]


def run_group(command: list[str], **more: Any) -> int:
    """Run *command*; nothing of what it has started is left. The exit code."""
    with subprocess.Popen(command, start_new_session=True, **more) as process:
        try:
            return process.wait(LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def spark_environment(folder: Path) -> dict[str, str]:
    """What a Spark of the tests has in its environment; its home is made in *folder*."""
    return {"SPARK_HOME": str(spark_home(folder)), "SPARK_LOCAL_IP": "127.0.0.1"}


def spark_home(folder: Path) -> Path:
    """A SPARK_HOME of the installed package, in which executors may work.

    Without ``python/lib/pyspark.zip``: each Python worker would compile what it loads from it, a
    second of CPU. The workers find the installed package, which is compiled.
    """
    import pyspark

    folder.mkdir(exist_ok=True)
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "python":
            with contextlib.suppress(FileExistsError):
                (folder / each.name).symlink_to(each)
    return folder


def values(file: Path, name: str = "value") -> list[Any]:
    return pq.ParquetFile(file).read([name]).column(name).to_pylist()  # type: ignore[no-any-return]


@contextmanager
def local_session(master: str, warehouse: Path) -> Iterator[SparkSession]:
    """A session on this machine, or :func:`java_or_skip`."""
    java_or_skip()
    from nsqsmart.spark import session

    with pytest.MonkeyPatch.context() as patched:
        for name, value in spark_environment(warehouse / "home").items():
            patched.setenv(name, value)
        made = session(
            "tests",
            spark_master=master,
            spark_sql_warehouse_dir=str(warehouse),
            **CHEAP,
            **INTERPRETED,
        )
        made.sparkContext.setLogLevel("OFF")
        yield made
        made.stop()


def java_or_skip() -> None:
    """Skip, or fail if it is required, where there is no Spark."""
    from nsqsmart.errors import ConfigError
    from nsqsmart.spark.requirements import check_java, check_packages

    try:
        check_packages()
        check_java()
    except ConfigError as error:
        if "spark" in os.environ.get("NSQSMART_REQUIRE", ""):
            raise
        pytest.skip(str(error))
