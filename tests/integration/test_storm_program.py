"""The storm program runs, its history is complete, and it says what came of it."""

from __future__ import annotations

import json

import pytest

from tests.storm import __main__ as program
from tests.storm.checker import Verdict
from tests.storm.faults import MOVE, choices, script
from tests.storm.table import table


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("dialect", ["redesigned", "original"])
def test_a_few_seconds_on_embedded_servers_are_good(dialect, tmp_path, capsys, monkeypatch):
    for name in ("NSQ", "YZ"):
        monkeypatch.delenv(f"NSQSMART_TEST_{name}_BIN", raising=False)
    kept = tmp_path / "storm"
    arguments = ["--seed", "1", "--minutes", "0.1", "--dialect", dialect, "--keep", str(kept)]
    code, said = program.main(arguments), capsys.readouterr().out
    assert code == 0, said
    files = kept.glob("history/*.jsonl")
    lines = [line for file in files for line in file.read_text().splitlines()]
    kinds = {json.loads(line)["kind"] for line in lines}
    assert kinds >= {"sent", "done", "got", "finished", "state", "leaders", "fault", "gone"}
    assert "lost" in said


def test_what_is_wrong_is_named_and_is_exit_code_1(monkeypatch, capsys, tmp_path):
    wrong = Verdict(acknowledged=2, lost=["producer0.1/plain/7;"])
    monkeypatch.setattr(program, "run_one", lambda *_: wrong)
    assert program.main(["--seed", "1"]) == 1
    said = capsys.readouterr().out
    assert "lost: producer0.1/plain/7;" in said
    monkeypatch.setattr(program, "run_one", lambda *_: Verdict(lost_by_servers=["x"]))
    assert program.main(["--seed", "1"]) == 0


def test_the_table_counts_everything():
    found = Verdict(acknowledged=3, outcomes={"stored": 3}, late=["a", "b"])
    text = "\n".join(table(found))
    for name in found.failures:
        assert name in text
    assert "calls beyond their deadline" in text
    assert "3 stored" in text


def test_a_seed_makes_the_same_storm_again():
    for dialect in ("original", "redesigned"):
        assert script(7, dialect, etcd=False) == script(7, dialect, etcd=False)
        assert script(7, dialect, etcd=False) != script(8, dialect, etcd=False)
    whole = choices("redesigned", etcd=True)
    blows = script(1, "redesigned", etcd=True)[: len(whole)]
    assert {(blow.kind, blow.action) for blow in blows} == set(whole)
    assert MOVE not in choices("original", etcd=False)
