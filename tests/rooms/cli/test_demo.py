"""The demo judges itself, and its verdict is its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from nsqsmart.cli import main
from nsqsmart.cli.demo import story
from nsqsmart.cli.demo.story import Ledger
from tests.helpers import ROOT


def run_json(capsys, *arguments: str) -> tuple[int, dict]:
    code = main(["demo", "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_everything_is_published_and_consumed_over_a_move_and_a_kill(capsys):
    code, report = run_json(capsys, "--messages", "400")
    assert code == 0
    assert report["ok"] is True
    assert (report["published"], report["lost"], report["order_violations"]) == (500, 0, 0)
    assert report["consumed"] == 500
    assert report["leader_moves"] >= 1
    assert report["nsqds_killed"] >= 1
    assert report["requeued"] >= 1


def test_the_lines_of_a_file_go_through_whatever_they_hold(capsys, tmp_path):
    text = tmp_path / "lines.log"
    text.write_bytes(b"first\n\n\xff\xfe not text\r\nlast, no line end" + b"\nx" * 97)
    code, report = run_json(capsys, "--input", str(text))
    assert (code, report["lost"]) == (0, 0)
    assert report["published"] == 100 + 25


def test_a_lost_message_fails_the_demo(capsys, monkeypatch):
    consume = Ledger.consume
    monkeypatch.setattr(story, "_PATIENCE", 1.0)
    monkeypatch.setattr(
        Ledger,
        "consume",
        lambda self, trace_id: 0 if trace_id == 1_000_000_007 else consume(self, trace_id),
    )
    code, report = run_json(capsys, "--messages", "100")
    assert (code, report["ok"], report["lost"]) == (1, False, 1)


def test_a_message_out_of_order_fails_the_demo(capsys, monkeypatch):
    trace_id = Ledger.trace_id

    def swapped(self: Ledger, number: int) -> int:
        """Two messages of one key tell each other's number."""
        same = [n for n in range(len(self.keys)) if self.keys[n] == self.keys[0]]
        swap = {same[3]: same[4], same[4]: same[3]} if self.ordered else {}
        return trace_id(self, swap.get(number, number))

    monkeypatch.setattr(Ledger, "trace_id", swapped)
    code, report = run_json(capsys, "--messages", "400")
    assert (code, report["ok"], report["lost"]) == (1, False, 0)
    assert report["order_violations"] == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"\n\n", "no line"), (b"x" * (1 << 20) + b"x", "1048577 bytes")],
)
def test_a_file_that_cannot_be_published_is_refused_by_name(content, reason, tmp_path, capsys):
    file = tmp_path / "input.csv"
    if content is not None:
        file.write_bytes(content)
    assert main(["demo", "--input", str(file)]) == 1
    printed = capsys.readouterr().err
    assert reason in printed
    assert "input.csv" in printed


@pytest.mark.parametrize("arguments", [["--messages", "0"], ["--messages", "x"], ["--what"]])
def test_a_wrong_argument_is_a_usage_error(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["demo", *arguments])
    assert caught.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


def test_a_pipe_gets_the_story_in_plain_lines(capsys):
    assert main(["demo", "--messages", "40"]) == 0
    printed = capsys.readouterr().out
    assert "\r" not in printed
    assert "\x1b" not in printed
    for word in ("discover", "move", "kill", "publish", "consume", "all checks hold"):
        assert word in printed


def test_ctrl_c_ends_it_at_once_and_in_order():
    program = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "nsqsmart", "demo", "--keep", "--messages", "20"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    lines = iter(program.stdout.readline, "")
    assert any("NSQSMART_URL=nsq+lookupd://" in line for line in lines)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=20)
    assert program.returncode == 130
    assert "Traceback" not in errors
