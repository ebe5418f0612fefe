"""What has to be there before Spark is asked for anything; said plainly if it is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from nsqsmart.errors import ConfigError

_PYSPARK = (4, 2)
_JAVA = 17
_PATIENCE = 30
_INSTALL = "pip install 'nsqsmart[spark]'"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check_packages() -> None:
    """Raise ConfigError unless PySpark and pyarrow are there, and new enough."""
    found = _installed("pyspark")
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[:2])
    if numbers < _PYSPARK:
        raise ConfigError(
            f"PySpark {found} cannot read streams as nsqsmart does: it needs 4.2 or newer "
            f"({_INSTALL})"
        )
    _installed("pyarrow")


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise ConfigError(f"{package} is not installed: {_INSTALL}") from None


def check_java() -> None:
    """Raise ConfigError unless there is a Java that Spark can run on."""
    java = find_java()
    if java is None:
        raise ConfigError(
            "Spark needs Java 17 or newer, and there is no java: install one, or set JAVA_HOME"
        )
    found = java_version(java)
    if found < _JAVA:
        raise ConfigError(f"Spark needs Java 17 or newer, and {java} is Java {found}")


def find_java() -> str | None:
    """The java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if java.exists() else None
    return shutil.which("java")


@cache
def java_version(java: str) -> int:
    """Its major version; 0 if it does not say. Asked once in a process."""
    try:
        done = subprocess.run(  # noqa: S603 - found where Spark looks for it
            [java, "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found else 0
