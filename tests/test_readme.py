"""What the README shows is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.helpers import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", README, re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_prints_what_the_readme_says(code, printed, tmp_path):
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
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == printed


def test_the_two_commands_are_there():
    assert "pip install -e . && .venv/bin/python -m nsqsmart demo" in README
    assert "pip install -e '.[dev]' && .venv/bin/python -m pytest" in README
