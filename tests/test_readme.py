"""What the README and the documentation show is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [README, *(page.read_text() for page in sorted((ROOT / "docs").glob("*.md")))]
EXAMPLE = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
EXAMPLES = [found for page in PAGES for found in EXAMPLE.findall(page)]
# What is logged when a publish takes over a second, as it may on a busy machine.
BUSY = re.compile(r"publishing to topic \S+ (has failed for \d|works again)")


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_prints_what_the_page_says(code, printed, tmp_path):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    told = [line for line in run.stderr.splitlines() if not BUSY.match(line)]
    assert (run.returncode, told) == (0, [])
    assert run.stdout == printed


def test_the_two_commands_are_there():
    assert "pip install -e . && .venv/bin/python -m nsqsmart demo" in README
    assert "pip install -e '.[dev]' && .venv/bin/python -m pytest" in README
