"""A page of the documentation, walked through in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.helpers import ROOT

_BLOCK = re.compile(r"```(py|console)\n(.*?)```", re.DOTALL)
_FILE = re.compile(r"# ([\w/]+\.py)(, at the end)?\n")
_ADDRESS = "127.0.0.1:4161"


def walk(page: str, folder: Path, url: str) -> int:
    """Write the files of docs/*page* and run its commands; returns how many.

    A block ``py`` that begins with ``# a/file.py`` is that file. In a block ``console``, what
    follows a command has to be in its output, ``...`` being anything.
    """
    address = url.removeprefix("nsq+lookupd://")
    text = (ROOT / "docs" / page).read_text().replace(_ADDRESS, address)
    commands = 0
    for kind, content in _BLOCK.findall(text):
        if kind == "py":
            _write(folder, content)
            continue
        for command, wanted in _commands(content):
            _check(command, wanted, folder)
            commands += 1
    return commands


def _write(folder: Path, content: str) -> None:
    named = _FILE.match(content)
    if named is None:
        compile(content, "<page>", "exec")
        return
    path = folder / named[1]
    assert path.parent.is_dir(), f"the page has no folder {path.parent} yet"
    with path.open("a" if named[2] else "w") as file:
        file.write(content)


def _commands(content: str) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in content.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def _check(command: str, wanted: list[str], folder: Path) -> None:
    programs = str(Path(sys.executable).parent)
    result = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "default",
        },
        capture_output=True,
        text=True,
        timeout=50,
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, f"{command}\n{output}"
    assert "Warning" not in output, f"{command}\n{output}"
    for line in wanted:
        pattern = ".*".join(map(re.escape, line.split("...")))
        assert re.search(f"^{pattern}$", output, re.MULTILINE), (
            f"{command}\n{line}\nnot in\n{output}"
        )
