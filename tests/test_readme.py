"""What the README and the documentation show is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from nsqsmart.cli import main
from nsqsmart.embedded import Cluster
from nsqsmart.errors import NotSupported, OrderingNotSupported
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


def _ten_lines(address, capsys, *changes):
    """The first example of the README with another address, and what it prints."""
    code = EXAMPLE.search(README)[1]
    for old, new in [('"nsq+embedded://shop?partitions=2"', repr(address)), *changes]:
        assert old in code
        code = code.replace(old, new)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    return capsys.readouterr().out


@pytest.mark.parametrize("direct", [False, True])
def test_the_ten_lines_on_an_original_nsqd_without_what_it_refuses(direct, capsys):
    with Cluster(dialect="original") as cluster:
        address = f"nsq://{cluster.nsqds[0].name}" if direct else cluster.url
        with pytest.raises(OrderingNotSupported):
            _ten_lines(address, capsys)
        with pytest.raises(NotSupported):
            _ten_lines(address, capsys, (', key="customer-7"', ""))
        kept = (', key="customer-7", trace=True', "")
        out = _ten_lines(address, capsys, kept)
    assert out.splitlines() == [
        "stored in partition None at offset None",
        "got two apples from partition None",
    ]
    assert "leave out `key=` and `trace=True`" in README


def test_the_ten_lines_on_a_redesigned_cluster_behind_the_two_commands(capsys):
    commands = re.findall(r"^nsqsmart (.*) --url \S+$", README, re.MULTILINE)
    assert len(commands) == 2
    with Cluster() as cluster:
        for command in commands:
            assert main([*command.split(), "--url", cluster.url]) == 0
        capsys.readouterr()
        out = _ten_lines(cluster.url, capsys)
    assert out == EXAMPLE.search(README)[2]


def test_the_two_commands_are_there():
    assert "pip install -e . && .venv/bin/python -m nsqsmart demo" in README
    assert "pip install -e '.[dev]' && .venv/bin/python -m pytest" in README
