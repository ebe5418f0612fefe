"""The consume benchmark: its drivers do what they are told, and no gate passes in silence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.helpers import ROOT

_MODULES = ("consume", "contest", "environments", "feast", "harness", "loops", "source", "verdicts")


@pytest.fixture
def consume(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """benchmarks/consume.py, imported as when it is run."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import consume

    yield consume
    for name in _MODULES:
        if name not in before:
            sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("player", "verb", "width"),
    [
        ("bare", "consume", 1),
        ("bare", "one", 1),
        ("nsqsmart", "consume", 4),
        ("nsqsmart", "inline", 1),
        ("nsqsmart", "batch", 4),
        ("nsqsmart", "pull", 1),
        ("nsqsmart", "block", 16),
        ("nsqsmart", "one", 1),
        ("nsqsmart", "many", 3),
    ],
)
def test_a_turn_at_the_source(consume, player, verb, width) -> None:
    command = [sys.executable, consume.script(player, "eat")]
    with consume.source(width) as load, consume.Contestant(player, command) as contestant:
        entry = consume.Entry(contestant, verb)
        for _ in range(2):
            assert consume.Table(load).play(entry, 500, width).rate > 0


def test_what_holding_a_message_costs(consume) -> None:
    command = [sys.executable, consume.script("nsqsmart", "eat")]
    with consume.source() as load, consume.Contestant("ours", command) as contestant:
        sample = consume.Table(load).play(consume.Entry(contestant, "memory"), 2, 1)
    assert 200 < sample.p50 < 2000


@pytest.mark.parametrize("verb", ["latency", "buffered", "unbuffered"])
def test_latencies_on_an_nsqd(consume, verb) -> None:
    command = [sys.executable, consume.script("nsqsmart", "eat")]
    with consume.running(None) as server, consume.Contestant("ours", command) as contestant:
        table = consume.Table(server)
        assert table.play(consume.Entry(contestant, verb), 20, 4).p50 > 0


def test_a_trickle_comes_at_its_rate(consume) -> None:
    command = [sys.executable, consume.script("nsqsmart", "eat")]
    with consume.source(rate=200) as load, consume.Contestant("ours", command) as contestant:
        sample = consume.Table(load).play(consume.Entry(contestant, "latency"), 40, 4)
    assert sample.p50 > 0
    assert sample.rate < 300


def test_a_source_that_was_busier_is_what_was_measured(consume) -> None:
    from harness import Sample
    from verdicts import judge

    gate, figure = consume.Gate(1, "consume", "peer", 2), consume.FIGURES["consume"]
    ours, slow = Sample(100.0, cpu=2.0, source=1.0), Sample(10.0, cpu=9.0, source=8.0)
    rounds = [{consume.OURS: ours, "peer": slow}]
    assert judge(gate, figure, rounds, {})[0] is consume.Verdict.HELD
    for busy in ({"peer": slow._replace(source=9.5)}, {consume.OURS: ours._replace(source=2.5)}):
        verdict, why = judge(gate, figure, [rounds[0] | busy], {})
        assert verdict is consume.Verdict.NOT_MEASURED
        assert "source was busier" in why


def test_what_a_turn_costs_the_source_is_known(consume) -> None:
    command = [sys.executable, consume.script("bare", "eat")]
    with consume.source() as load, consume.Contestant("bare", command) as contestant:
        sample = consume.Table(load).play(consume.Entry(contestant, "consume"), 20_000, 1)
    assert 0 < sample.source < 100


def test_every_gate_has_its_figure(consume) -> None:
    for gate in consume.GATES_SOURCE + consume.GATES_NSQD:
        assert gate.figure in consume.FIGURES
    numbers = {gate.number for gate in consume.GATES_SOURCE + consume.GATES_NSQD}
    assert numbers == {*range(1, 11), 16, 17, 18, 19}


def test_a_contestant_that_fails_breaks_it_off(consume, tmp_path) -> None:
    liar = tmp_path / "liar.py"
    liar.write_text("raise SystemExit('no such client')")
    with (
        consume.source() as load,
        consume.Contestant("liar", [sys.executable, str(liar)]) as contestant,
        pytest.raises(consume.ContestantFailed, match="no such client"),
    ):
        consume.Table(load).play(consume.Entry(contestant, "consume"), 100, 1)
