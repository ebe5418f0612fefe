"""The commands of docs/cron.md and docs/operate.md run, and its systemd units can be read."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.helpers import ROOT
from tests.rooms.contrib.pages import walk

(UNITS,) = re.findall(r"```ini\n(.*?)```", (ROOT / "docs" / "cron.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("page", "commands"), [("cron.md", 2), ("operate.md", 1)])
def test_the_commands_of_a_page_run_in_an_empty_folder(page, commands, tmp_path):
    # The pages name their addresses themselves.
    assert walk(page, tmp_path, "nsq+lookupd://127.0.0.1:4161") >= commands


def test_the_service_of_systemd_does_its_work(tmp_path):
    units = configparser.ConfigParser(delimiters=("=",))
    units.optionxform = str
    units.read_string(UNITS)
    assert set(units) == {"DEFAULT", "Service", "Timer", "Install"}
    program, *arguments = shlex.split(units["Service"]["ExecStart"])
    assert program.endswith("/nsqsmart")
    spool = dict(pair.split("=") for pair in units["Service"]["Environment"].split())
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "nsqsmart", *arguments],
        env=os.environ
        | spool
        | {"NSQSMART_SPOOL": str(tmp_path / "spool"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
