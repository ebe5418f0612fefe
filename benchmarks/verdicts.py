"""Tables of a contest, and gates held, missed or not measured."""

from __future__ import annotations

from enum import Enum
from statistics import median
from typing import NamedTuple

from harness import Sample

Rounds = list[dict[str, Sample]]
LIMIT = "bare loop"
LIMIT_AGAIN = "bare loop again"
"""Another process of the same: how far it is from the first is what noise there is."""


class Spread(NamedTuple):
    """A ratio in each round."""

    least: float
    middle: float
    most: float

    def __str__(self) -> str:
        return f"{self.middle:.2f} ({self.least:.2f} .. {self.most:.2f})"


class Figure(NamedTuple):
    """What is measured, and by what it is compared: calls by their p50, or messages by rate."""

    title: str
    ours: str
    """Whose ratios to the others are shown and judged."""
    by_latency: bool = False
    by_cpu: bool = False
    """By the processor time a message costs the client."""
    width: int = 1
    """Callers at a time, or messages a batch."""
    share: int = 1
    """Messages a turn, as a multiple of --messages."""
    one_core: bool = True
    """Server and client take turns anyway, so one core does for both (harness.confined)."""

    def quickness(self, sample: Sample) -> float:
        """More is better."""
        if self.by_cpu:
            return 1e6 / sample.cpu
        return 1e6 / sample.p50 if self.by_latency else sample.rate

    def ratio(self, rounds: Rounds, name: str, base: str) -> Spread:
        """How many times as quick as *base* *name* is, within a round."""
        found = sorted(self.quickness(turn[name]) / self.quickness(turn[base]) for turn in rounds)
        return Spread(found[0], median(found), found[-1])


class Gate(NamedTuple):
    """A line of the table of decisions#82."""

    number: int
    figure: str
    rival: str
    bound: float
    at_most: bool = False
    """The bound is on our p50 as a multiple of the rival's; else on how many times as quick."""
    goal: float | None = None

    def __str__(self) -> str:
        bound = f"at {'most' if self.at_most else 'least'} {self.bound:g}"
        goal = "" if self.goal is None else f" (goal {self.goal:g})"
        return f"gate {self.number}, {self.figure} against {self.rival}, {bound}{goal}"


class Verdict(Enum):
    """What became of a gate."""

    HELD = "held"
    MISSED = "MISSED"
    NOT_MEASURED = "NOT MEASURED"


def show(figure: Figure, rounds: Rounds, server: str, cores: str) -> None:
    """Print a table."""
    by = "CPU" if figure.by_cpu else "p50" if figure.by_latency else "rate"
    print(f"\n{figure.title}, on {server}: {len(rounds)} interleaved rounds, {cores}")
    print(
        f"  {'':<18}{'p50 us':>10}{'per second':>12}{'CPU s/M':>9}{'source':>8}   "
        f"how many times as quick {figure.ours} is, by {by} (min .. max)"
    )
    for name in rounds[0]:
        samples = [turn[name] for turn in rounds]
        ratio = "" if name == figure.ours else str(figure.ratio(rounds, figure.ours, name))
        print(
            f"  {name:<18}{_middle(samples, 'p50'):>10,.1f}{_middle(samples, 'rate'):>12,.0f}"
            f"{_middle(samples, 'cpu'):>9.2f}{_source(samples):>8}   {ratio}"
        )
    if LIMIT_AGAIN in rounds[0]:
        print(f"  noise: the bare loop beside itself {figure.ratio(rounds, LIMIT_AGAIN, LIMIT)}")


def _source(samples: list[Sample]) -> str:
    source = _middle(samples, "source")
    return f"{source:.2f}" if source else ""


def _middle(samples: list[Sample], field: str) -> float:
    return median(getattr(sample, field) for sample in samples)


def judge(
    gate: Gate, figure: Figure, rounds: Rounds, missing: dict[str, str]
) -> tuple[Verdict, str]:
    """What became of *gate*, and why."""
    if gate.rival in missing:
        return Verdict.NOT_MEASURED, missing[gate.rival]
    # How much a source could send bounds no latency.
    for name in () if figure.by_latency else (figure.ours, gate.rival):
        if busier := _busier_source(rounds, name):
            return Verdict.NOT_MEASURED, busier
    if gate.at_most:
        found = figure.ratio(rounds, gate.rival, figure.ours)
        held = found.middle <= gate.bound
    else:
        found = figure.ratio(rounds, figure.ours, gate.rival)
        held = found.middle >= gate.bound
    why = str(found)
    if not held and not gate.at_most and LIMIT in rounds[0]:
        why += f"; the bare loop {figure.ratio(rounds, LIMIT, gate.rival)}"
    return (Verdict.HELD if held else Verdict.MISSED), why


def _busier_source(rounds: Rounds, name: str) -> str:
    """What the source cost, if that was more than *name* cost: then it is what was measured."""
    samples = [turn[name] for turn in rounds]
    source, cpu = _middle(samples, "source"), _middle(samples, "cpu")
    if source <= cpu:
        return ""
    return f"the source was busier than {name}, {source:.2f} to {cpu:.2f} CPU s/M"


def pass_judgement(
    gates: tuple[Gate, ...],
    figures: dict[str, Figure],
    found: dict[str, Rounds],
    missing: dict[str, str],
    title: str,
) -> list[Verdict]:
    """Print what became of each gate whose figure was measured."""
    print(f"\ngates on {title}")
    verdicts = []
    for gate in gates:
        if gate.figure in found:
            verdict, why = judge(gate, figures[gate.figure], found[gate.figure], missing)
            print(f"  {verdict.value:<12} {gate}: {why}")
            verdicts.append(verdict)
    return verdicts
