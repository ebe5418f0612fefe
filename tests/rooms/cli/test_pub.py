"""``pub``: what is published, told, refused and left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from nsqsmart import Receipt
from nsqsmart.cli.commands import bench, pub
from nsqsmart.cli.commands.pub import Lines, Manner, Sender, read_delimiter
from nsqsmart.cli.common import ending
from nsqsmart.errors import ConfigError
from tests.helpers import eventually

ONE = pytest.mark.parametrize("cluster", ["redesigned"], indirect=True)


def test_words_are_stored_and_nothing_is_said(cluster, nsqsmart, bodies):
    assert nsqsmart("pub", "orders", "one", "two", "--url", cluster.url) == (0, "", "")
    assert sorted(bodies(cluster, "orders")) == [b"one", b"two"]


@ONE
def test_words_may_stand_between_flags(cluster, nsqsmart, bodies):
    code, _, err = nsqsmart("pub", "--url", cluster.url, "orders", "--rate", "1000", "one", "two")
    assert (code, err) == (0, "")
    assert len(bodies(cluster, "orders")) == 2


@ONE
def test_with_the_flag_every_word_is_a_message(cluster, nsqsmart, bodies):
    assert nsqsmart("pub", "-topic", "orders", "--url", cluster.url, "one")[0] == 0
    assert bodies(cluster, "orders") == [b"one"]


def test_lines_of_stdin_whatever_they_hold(cluster, nsqsmart, bodies):
    text = b"first\n\n\xff\xfe\r\n" + b"x" * 100_000 + b"\nlast, no line end"
    assert nsqsmart.run("pub", "orders", "--url", cluster.url, stdin=text) == (0, b"", "")
    assert bodies(cluster, "orders") == [each for each in text.split(b"\n") if each]


def test_a_file_with_another_delimiter(cluster, nsqsmart, bodies, tmp_path):
    file = tmp_path / "messages"
    file.write_bytes(b"a\nb\0c\0")
    code, *_ = nsqsmart("pub", "orders", "--url", cluster.url, "--file", file, "--delimiter", r"\0")
    assert code == 0
    assert bodies(cluster, "orders") == [b"a\nb", b"c"]


def test_receipts_in_the_order_of_the_messages(cluster, nsqsmart, tmp_path):
    file = tmp_path / "lines"
    file.write_text("a\n\nb\nc\n")
    found = nsqsmart.records("pub", "orders", "--url", cluster.url, "--file", file)
    assert [each["message"] for each in found] == [1, 3, 4]
    assert {each["nsqd"] for each in found} == {cluster.nsqds[0].name}


def test_a_traced_receipt_has_its_ids_as_text(redesigned, nsqsmart):
    (found,) = nsqsmart.records("pub", "orders", "x", "--trace", "--url", redesigned.url)
    assert isinstance(found["trace_id"], str)
    assert isinstance(found["internal_id"], str)


def test_a_key_field_chooses_the_partition(redesigned, nsqsmart, tmp_path):
    redesigned.create_topic("orders", partitions=4)
    redesigned.create_channel("orders", "c")
    file = tmp_path / "lines"
    lines = [json.dumps({"customer": {"id": f"c{n % 7}"}, "n": n}) for n in range(70)]
    file.write_text("\n".join(lines))
    arguments = ("pub", "orders", "--url", redesigned.url, "--file", file)
    found = nsqsmart.records(*arguments, "--key-field", "customer.id")
    places: dict[int, set[int]] = {}
    for number, each in enumerate(found):
        places.setdefault(number % 7, set()).add(each["partition"])
    assert all(len(partitions) == 1 for partitions in places.values())
    assert len({each["partition"] for each in found}) > 1
    for partition in range(4):
        numbers = [json.loads(m.body)["n"] for m in redesigned.stored("orders", partition)]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("body", "said"),
    [("x", "is no JSON"), ("{}", "no such field"), ('{"id": 1.5}', "1.5"), ('{"id": {}}', "{}")],
)
def test_a_message_without_a_key_ends_it_by_number(redesigned, nsqsmart, tmp_path, body, said):
    file = tmp_path / "lines"
    file.write_text(f'{{"id": 7}}\n{body}\n{{"id": 8}}\n')
    code, _, err = nsqsmart(
        "pub", "orders", "--url", redesigned.url, "--file", file, "--key-field", "id"
    )
    assert code == 1
    assert "message 2" in err
    assert said in err
    assert "1 stored, nothing sent after message 2" in err


def test_a_delay_on_an_original_server_and_none_on_a_redesigned(cluster, nsqsmart):
    code, _, err = nsqsmart("pub", "orders", "x", "--delay", "60", "--url", cluster.url)
    assert code == (0 if cluster.dialect == "original" else 1)
    assert ("delay" in err) == (cluster.dialect == "redesigned")


def test_an_oversize_message_ends_it_with_1(cluster, nsqsmart, tmp_path):
    file = tmp_path / "lines"
    file.write_bytes(b"ok\n" + b"x" * 1_100_000 + b"\n")
    code, out, err = nsqsmart("pub", "orders", "--url", cluster.url, "--file", file, "--json")
    assert code == 1
    assert "message 2 failed" in err
    failed = json.loads(out.splitlines()[-1])
    assert (failed["message"], failed["outcome"]) == (2, "rejected")


def test_a_server_that_is_away_is_worth_retrying(nsqsmart):
    code, _, err = nsqsmart(
        "pub", "orders", "x", "--url", "nsq+lookupd://127.0.0.1:1", "--publish-timeout", "100ms"
    )
    assert code == 75
    assert "127.0.0.1:1" in err
    assert err.count("\n") == 1


@ONE
def test_the_deadline_holds_for_stdin_that_never_ends(cluster, nsqsmart):
    program = nsqsmart.start("pub", "orders", "--url", cluster.url, "--deadline", "3")
    program.stdin.write(b"one\n")
    program.stdin.flush()
    assert program.wait(20) == 75
    assert b"the deadline of 3 s is over; 1 stored" in program.stderr.read()


@ONE
def test_the_rate_is_kept(cluster, nsqsmart):
    begun = time.monotonic()
    assert nsqsmart("pub", "orders", *"abcdef", "--rate", "20", "--url", cluster.url)[0] == 0
    assert time.monotonic() - begun >= 0.25


@ONE
def test_a_rate_that_takes_too_long_meets_the_deadline(cluster, nsqsmart):
    code, _, err = nsqsmart(
        "pub", "orders", *"abc", "--rate", "1", "--deadline", "1.9", "--url", cluster.url
    )
    assert code == 75
    assert "2 stored" in err


@ONE
def test_a_line_is_answered_before_the_next_one_is_typed(cluster, nsqsmart):
    program = nsqsmart.start("pub", "orders", "--url", cluster.url, "--json")
    program.stdin.write(b"one\n")
    program.stdin.flush()
    assert json.loads(program.stdout.readline())["message"] == 1
    program.stdin.close()
    assert program.wait(20) == 0


@ONE
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_says_what_was_left(cluster, nsqsmart, bodies, number):
    program = nsqsmart.start("pub", "orders", "--url", cluster.url)
    program.stdin.write(b"one\ntwo\n")
    program.stdin.flush()
    eventually(lambda: len(bodies(cluster, "orders")) == 2)
    program.send_signal(number)
    assert program.wait(20) == 130
    err = program.stderr.read().decode()
    assert "interrupted: 2 stored, nothing sent after message 2" in err
    assert "Traceback" not in err


def test_what_is_waited_for_behind_ctrl_c_is_less_than_two_seconds():
    """As docs/command-line.md says. On a busy machine no program can be held to it by a clock."""
    assert pub._PATIENCE + ending._HASTE < 2
    assert bench._HASTE + 2 * ending._HASTE < 2


def test_a_hung_server_does_not_hold_up_ctrl_c(redesigned, nsqsmart):
    nsqsmart("pub", "orders", "first", "--url", redesigned.url)
    for nsqd in redesigned.nsqds:
        redesigned.hang(nsqd)
    redesigned.log.clear()
    arguments = ("pub", "orders", "one", "--url", redesigned.url, "--close-timeout", "60")
    program = nsqsmart.start(*arguments, stdin=None)
    eventually(lambda: redesigned.log.of("GET /lookup", "orders"), what="it is being published")
    with pytest.raises(Exception, match="timed out"):
        program.wait(1.5)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130
    for nsqd in redesigned.nsqds:
        redesigned.wake(nsqd)


@ONE
def test_ctrl_c_while_nobody_reads_the_receipts(cluster, nsqsmart, bodies, tmp_path):
    file = tmp_path / "lines"
    file.write_bytes(b"x\n" * 3000)
    program = nsqsmart.start("pub", "orders", "--url", cluster.url, "--file", file, "--json")
    before = -1
    while before != len(bodies(cluster, "orders")) or before < 700:
        # Until the pipe is full, and nothing more is published.
        before = len(bodies(cluster, "orders"))
        with pytest.raises(Exception, match="timed out"):
            program.wait(0.3)
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130
    assert b"stored" in program.stderr.read()


@ONE
@pytest.mark.parametrize(("last", "code"), [(b"", 0), (b"x" * 1_100_000, 1)])
@pytest.mark.parametrize("told", [subprocess.PIPE, subprocess.STDOUT])
def test_a_reader_that_left_does_not_end_it(cluster, nsqsmart, bodies, tmp_path, last, code, told):
    file = tmp_path / "lines"
    file.write_bytes(b"x\n" * 3000 + last)
    read, write = os.pipe()
    os.close(read)
    program = nsqsmart.start(
        "pub", "orders", "--url", cluster.url, "--file", file, "--json", stdout=write, stderr=told
    )
    os.close(write)
    err = program.communicate(timeout=30)[1]
    assert program.returncode == code
    assert len(bodies(cluster, "orders")) == 3000
    if told == subprocess.PIPE:
        assert (b"3000 stored" in err) if last else (err == b"")


@pytest.mark.parametrize("told", [False, True])
def test_an_interrupt_takes_nothing_spooled_for_stored(capsys, monkeypatch, told):
    """Before anything was told, and while the first one is."""

    def interrupt(*_):
        raise KeyboardInterrupt

    def publish_async(_topic, body, **_):
        receipt = Receipt("orders", None, "", spooled=body == b"spooled")
        return SimpleNamespace(done=lambda: told, result=lambda _timeout=None: receipt)

    def take(_until):
        messages.number += 1
        return bodies.pop(0) if bodies else interrupt()

    bodies = [b"spooled"] if told else [b"spooled", b"stored", b"spooled"]
    messages = SimpleNamespace(number=0, taken=0, pauses=lambda: False, take=take)
    monkeypatch.setattr(Sender, "_tell", interrupt if told else Sender._tell)
    sender = Sender(
        SimpleNamespace(publish_async=publish_async), Manner("orders"), deadline=None, as_json=told
    )
    with pytest.raises(KeyboardInterrupt):
        sender.send_all(messages)
    kept = "0 stored, 1 spooled," if told else "1 stored, 2 spooled,"
    assert f"interrupted: {kept} nothing sent" in capsys.readouterr().err


class TestLines:
    """The reader by itself."""

    @pytest.fixture
    def pipe(self):
        ends = os.pipe()
        yield ends
        for end in ends:
            try:
                os.close(end)
            except OSError:
                continue

    def test_a_delimiter_in_two_parts(self, pipe):
        lines = Lines(pipe[0], b"\r\n", "test")
        os.write(pipe[1], b"a\r")
        with pytest.raises(TimeoutError):
            lines.take(time.monotonic() + 0.05)
        os.write(pipe[1], b"\nb")
        assert lines.take(None) == b"a"
        assert lines.pauses()
        os.close(pipe[1])
        assert lines.take(None) == b"b"
        assert lines.take(None) is None

    def test_a_message_without_end_is_refused(self, tmp_path):
        file = tmp_path / "endless"
        file.write_bytes(b"a\n" + b"x" * (17 << 20))
        with file.open("rb") as opened:
            lines = Lines(opened.fileno(), b"\n", "endless")
            assert lines.take(None) == b"a"
            with pytest.raises(ConfigError, match="endless: message 2 has more than"):
                lines.take(None)

    @pytest.mark.parametrize(
        ("text", "delimiter"),
        [(r"\n", b"\n"), (r"\0", b"\0"), (r"\x1e", b"\x1e"), ("é", b"\xc3\xa9")],
    )
    def test_escapes_of_a_delimiter(self, text, delimiter):
        assert read_delimiter(text) == delimiter

    @pytest.mark.parametrize("text", ["", "\\", r"\x"])
    def test_no_delimiter(self, text):
        with pytest.raises(ValueError, match=r"."):
            read_delimiter(text)
