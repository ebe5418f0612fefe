"""The publish benchmark: its drivers do what they are told, and no gate passes in silence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.helpers import ROOT


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/publish.py, imported as when it is run."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import publish

    yield publish
    for name in ("contest", "environments", "harness", "loops", "publish", "verdicts"):
        if name not in before:
            del sys.modules[name]


def rounds_of(publish: ModuleType, **p50s: list[float]) -> list[dict[str, object]]:
    """Rounds in which each contestant has these latencies."""
    sample = sys.modules["harness"].Sample
    names = {name.replace("_", " "): values for name, values in p50s.items()}
    return [
        {name: sample(1e6 / p50, 1.0, p50) for name, p50 in zip(names, turn, strict=True)}
        for turn in zip(*names.values(), strict=True)
    ]


@pytest.mark.parametrize(
    ("number", "rival", "verdict"),
    [
        (12, "bare loop", "HELD"),
        (11, "pynsq", "HELD"),
        (11, "gnsq", "MISSED"),
        (11, "go-nsq", "NOT_MEASURED"),
    ],
)
def test_a_gate_is_judged_by_the_middle_of_the_rounds(publish, number, rival, verdict) -> None:
    gates = publish.GATES_EMBEDDED + publish.GATES_NSQD
    (gate,) = (gate for gate in gates if gate.number == number and gate.rival == rival)
    rounds = rounds_of(
        publish,
        nsqsmart=[15.0, 15.0, 90.0],
        bare_loop=[10.0, 10.0, 10.0],
        pynsq=[95.0, 95.0, 95.0],
        gnsq=[45.0, 45.0, 900.0],
    )
    figure = publish.FIGURES["sync"]
    found, why = sys.modules["verdicts"].judge(
        gate, figure, rounds, {"go-nsq": "go is not on PATH"}
    )
    assert found.name == verdict
    assert why


def test_more_than_a_bound_from_above_is_missed(publish) -> None:
    gate = next(gate for gate in publish.GATES_EMBEDDED if gate.number == 12)
    rounds = rounds_of(publish, nsqsmart=[17.0], bare_loop=[10.0])
    found, why = sys.modules["verdicts"].judge(gate, publish.FIGURES["sync"], rounds, {})
    assert (found.name, why) == ("MISSED", "1.70 (1.70 .. 1.70)")


def test_the_reason_of_a_missed_gate_says_what_a_bare_loop_reaches(publish) -> None:
    rounds = rounds_of(publish, nsqsmart=[20.0], bare_loop=[10.0], gnsq=[40.0])
    gate = next(gate for gate in publish.GATES_NSQD if gate.rival == "gnsq")
    _, why = sys.modules["verdicts"].judge(gate, publish.FIGURES["sync"], rounds, {})
    assert why == "2.00 (2.00 .. 2.00); the bare loop 4.00 (4.00 .. 4.00)"


@pytest.mark.parametrize(
    ("verdict", "arguments", "code"),
    [
        ("HELD", [], 0),
        ("MISSED", [], 1),
        ("NOT_MEASURED", [], 1),
        ("NOT_MEASURED", ["--without-peers"], 0),
        ("MISSED", ["--without-peers"], 1),
    ],
)
def test_the_exit_code(publish, monkeypatch, verdict, arguments, code) -> None:
    monkeypatch.setattr(publish, "run", lambda chosen: [publish.Verdict[verdict]])
    assert publish.main(arguments) == code


def test_peers_that_are_not_to_be_had_are_named(publish, monkeypatch, capsys, tmp_path) -> None:
    def missing(name: str, cache: object) -> list[str]:
        if name == "go-nsq":
            raise publish.MissingPeer("go is not on PATH")
        return [sys.executable, "-c", "raise SystemExit('no such module')"]

    monkeypatch.setattr(publish, "command_of", missing)
    commands, found = publish.recruit(publish.options(["--cache", str(tmp_path)]))
    assert set(commands) == {"bare loop", "bare loop again", "nsqsmart"}
    assert found == {name: found[name] for name in publish.NAMES}
    assert found["go-nsq"] == "go is not on PATH"
    assert found["gnsq"] == "gnsq: no such module"
    assert "go-nsq is missing: go is not on PATH" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("player", "verb"),
    [
        ("bare", "sync"),
        ("bare", "threads"),
        ("bare", "mpub"),
        ("nsqsmart", "sync"),
        ("nsqsmart", "threads"),
        ("nsqsmart", "mpub"),
        ("nsqsmart", "async"),
    ],
)
def test_every_message_of_a_turn_is_stored(publish, player, verb) -> None:
    contest = sys.modules["contest"]
    command = [sys.executable, publish.script(player)]
    width = publish.FIGURES[verb].width
    with publish.running(None) as server, publish.Contestant(player, command) as contestant:
        entry = publish.Entry(contestant, verb)
        for _ in range(2):
            sample = contest.play(server, entry, 200, width)
            # A call that does not wait has no latency.
            assert sample.rate > 0
            assert (sample.p50 > 0) == (verb != "async")


def test_a_contestant_that_loses_messages_is_found_out(publish, tmp_path) -> None:
    liar = tmp_path / "liar.py"
    liar.write_text("""for line in iter(input, ""): print('{"rate": 1, "cpu": 1, "p50": 1}')""")
    with (
        publish.running(None) as server,
        publish.Contestant("liar", [sys.executable, "-u", str(liar)]) as contestant,
        pytest.raises(publish.ContestantFailed, match="liar, sync: 0 of 110 messages stored"),
    ):
        publish.play(server, publish.Entry(contestant, "sync"), 100, 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--messages", "7"], "must be 8 or more"),
        (["--rounds", "0"], "1 or more"),
        (["--nsqd", "/no/nsqd"], "--nsqd /no/nsqd: there is no such program"),
    ],
)
def test_what_cannot_be_run_is_refused_at_once(publish, capsys, arguments, reason) -> None:
    with pytest.raises(SystemExit):
        publish.options(arguments)
    assert reason in capsys.readouterr().err
