"""The peers, each in an environment of its own below a cache folder.

pip and go fetch from wherever this machine has them fetch from. What could not be had is missing
with its reason; it is asked for again in the next run.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

PEERS = Path(__file__).parent / "peers"
CACHE = Path(__file__).parent.parent / ".benchmarks"
GO = "go-nsq"
"""Its versions are in peers/go_nsq/go.mod."""
PINS = {
    "pynsq": ("pynsq==0.9.1", "tornado==6.6.1"),
    "gnsq": (
        "gnsq==1.0.2",
        "blinker==1.9.0",
        "gevent==26.9.0",
        "greenlet==3.5.6",
        "six==1.17.0",
        "urllib3==2.8.0",
        "zope.event==6.2",
        "zope.interface==8.7",
    ),
    "nsq-py": (
        "nsq-py==0.1.12",
        "certifi==2026.10.18",
        "charset-normalizer==3.5.2",
        "decorator==5.3.1",
        "idna==3.20",
        "requests==2.34.2",
        "six==1.17.0",
        "statsd==4.0.1",
        "urllib3==2.8.0",
    ),
}
"""All that goes into an environment: nothing else is fetched."""
NAMES = (*PINS, GO)
_FETCH_SECONDS = 600.0


class MissingPeer(Exception):
    """Why a peer cannot take part."""


def script(name: str, part: str = "play") -> str:
    """The driver of a Python contestant: ``play`` publishes, ``eat`` consumes."""
    return str(PEERS / f"{part}_{name.replace('-', '')}.py")


def command_of(name: str, cache: Path, part: str = "play") -> list[str]:
    """What starts the driver of a peer; makes its environment first if it is not there."""
    return _go_command(cache) if name == GO else _python_command(name, cache, part)


def _python_command(name: str, cache: Path, part: str) -> list[str]:
    # Another pin, or another Python, is another environment.
    digest = hashlib.sha256("\n".join((sys.version, *PINS[name])).encode()).hexdigest()
    folder = cache / f"{name}-{digest[:12]}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(f"installing {PINS[name][0]} into {folder}", flush=True)
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]
        _run([*install, *PINS[name]], folder)
        complete.touch()
    # -E: what PYTHONPATH holds is meant for this interpreter, not for that one.
    return [str(python), "-E", script(name, part)]


def _go_command(cache: Path) -> list[str]:
    go = shutil.which("go")
    if go is None:
        raise MissingPeer("go is not on PATH")
    program = cache / "go_nsq"
    cache.mkdir(parents=True, exist_ok=True)
    # go sees for itself whether there is anything to do.
    _run([go, "build", "-buildvcs=false", "-o", str(program), "."], PEERS / "go_nsq")
    return [str(program)]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise MissingPeer(f"{command[0]} took longer than {_FETCH_SECONDS:.0f} s") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
        raise MissingPeer(said.splitlines()[-1])
