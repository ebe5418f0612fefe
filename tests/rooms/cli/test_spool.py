"""``pub --spool`` and ``spool``: down, then up, and what a cron job is told."""

from __future__ import annotations

import json

NOWHERE = "nsq://127.0.0.1:1"


def test_down_then_up(nsqsmart, cluster, tmp_path, bodies):
    folder = tmp_path / "spool"
    down = ("--url", NOWHERE, "--spool", folder, "--publish-timeout", "0.05")
    assert nsqsmart("pub", "orders", "one", "two", *down) == (0, "", "")
    code, out, err = nsqsmart("spool", "status", "--spool", folder)
    assert (code, err) == (75, "")
    assert out.splitlines()[1].split()[:3] == ["orders", "2", "6"]
    code, out, err = nsqsmart("spool", "flush", *down)
    assert (code, out) == (75, "")
    assert "still wait" in err
    assert nsqsmart("pub", "orders", "three", "--url", cluster.url, "--spool", folder)[0] == 0
    assert bodies(cluster, "orders") == [b"one", b"two", b"three"]
    assert nsqsmart("spool", "status", "--spool", folder) == (0, "nothing waits\n", "")


def test_flush_sends_and_is_silent(nsqsmart, cluster, tmp_path, bodies, monkeypatch):
    monkeypatch.setenv("NSQSMART_SPOOL", str(tmp_path / "spool"))
    (receipt,) = nsqsmart.records("pub", "t", "x", "--url", NOWHERE, "--publish-timeout", "0.05")
    assert receipt["spooled"] is True
    assert "nsqd" not in receipt
    assert nsqsmart("spool", "flush", "--url", cluster.url) == (0, "", "")
    assert bodies(cluster, "t") == [b"x"]


def test_what_is_refused_is_told(nsqsmart, cluster, tmp_path):
    folder = tmp_path / "spool"
    file = tmp_path / "lines"
    file.write_bytes(b"x" * 2_000_000)
    arguments = ("--spool", folder, "--publish-timeout", "0.05")
    assert nsqsmart("pub", "t", "--file", file, "--url", NOWHERE, *arguments)[0] == 0
    code, out, err = nsqsmart("spool", "flush", "--json", "--url", cluster.url, "--spool", folder)
    assert code == 1
    assert json.loads(out)["topics"][0]["refused"] == 1
    assert "set aside" in err
    code, out, _ = nsqsmart("spool", "status", "--json", "--spool", folder)
    assert code == 1
    assert json.loads(out)["topics"][0]["refused"] == 1


def test_no_spool_and_no_folder(nsqsmart, tmp_path):
    assert "--spool DIR" in nsqsmart("spool", "status")[2]
    code, _, err = nsqsmart("spool", "status", "--spool", tmp_path / "missing")
    assert code == 1
    assert "No such file" in err
    assert nsqsmart("spool", "look")[0] == 2
