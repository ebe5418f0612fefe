"""What a storm came to, in words."""

from __future__ import annotations

from collections.abc import Iterator

from tests.storm.checker import Verdict

_SHOWN = 5


def table(verdict: Verdict) -> Iterator[str]:
    """The summary, line by line."""
    rows: list[tuple[str, object]] = [
        ("acknowledged", verdict.acknowledged),
        ("delivered", f"{verdict.deliveries}, {verdict.copies} of them copies"),
        ("outcomes", _counts(verdict.outcomes)),
        ("faults", _counts(verdict.faults)),
        ("lost by the servers", len(verdict.lost_by_servers)),
    ]
    rows += [(name, len(found)) for name, found in verdict.failures.items()]
    width = max(len(name) for name, _ in rows)
    yield from (f"{name:<{width}} | {value}" for name, value in rows)
    for name, found in {"lost by the servers": verdict.lost_by_servers, **verdict.failures}.items():
        yield from (f"{name}: {each}" for each in found[:_SHOWN])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
