"""What docs/command-line.md shows is what happens, from its first command to its last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nsqsmart.cli import _COMMANDS
from nsqsmart.embedded import Cluster
from tests.helpers import ROOT

PAGE = (ROOT / "docs" / "command-line.md").read_text()
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)


def steps(block):
    """Each command and what the page says it prints."""
    _, *parts = COMMAND.split(block)
    return list(zip(parts[::2], parts[1::2], strict=True))


def masked(text):
    """Figures, ids and widths of columns differ from run to run."""
    text = re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r"(?<![A-Za-z_-])[\d,.]*\d", "N", text)
    return re.sub(r"(?m)[ -]+(?=\S)|[ ]+$", " ", text).strip()


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The server of the page, and the command on the PATH."""
    home = tmp_path_factory.mktemp("page")
    folder = home / "bin"
    folder.mkdir()
    # No link: what Python finds depends on where its program seems to be.
    for name, options in {"nsqsmart": "-W error -m nsqsmart ", "python": ""}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {options}"$@"\n')
        (folder / name).chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    with Cluster(partitions=2, auto_create=True) as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic, 2, ordered=True)
        kept = {"PATH": path, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8", "HOME": str(home)}
        yield kept | {"NSQSMART_URL": cluster.url}


def test_every_command_prints_what_the_page_says(environment, tmp_path):
    pytest.importorskip("shtab")
    said = []
    for block in BLOCKS:
        for command, printed in steps(block):
            result = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment, timeout=30,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            said.append((command, masked(result.stdout)))
            assert said[-1] == (command, masked(printed)), result.stdout


@pytest.mark.parametrize("command", _COMMANDS)
def test_every_command_is_on_the_page(command):
    assert f"| `{command}` |" in PAGE
    assert command == "demo" or f"\n## {command}\n" in PAGE


def test_the_mask_hides_no_words():
    assert masked("a  127.0.0.1:4150 1,234 0.5") == "a ADDRESS N N"
    assert masked('"2026-11-22T10:39:50.157Z"') == masked('"1999-01-02T00:00:00.1Z"') == '"TIME"'
    assert masked("one-by-one 7 stored") != masked("one 7 stored") == "one N stored"
    assert Path(ROOT / "docs" / "command-line.md").exists()
