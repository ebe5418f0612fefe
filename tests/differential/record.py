"""Writes down what the real programs do: python -m tests.differential.record DIALECT [SCENARIO...]

The folder of the programs is in NSQSMART_TEST_NSQ_BIN or NSQSMART_TEST_YZ_BIN. Each scenario is
played twice, and kept only if the server did the same both times.
"""

from __future__ import annotations

import sys

from tests.differential.programs import nsqd
from tests.differential.transcripts import SCENARIOS, load, play, save


def main(dialect: str, names: list[str]) -> int:
    kept = load(dialect)
    unsteady = []
    with nsqd(dialect, real=True) as program:
        for name in names or SCENARIOS[dialect]:
            first = play(program, dialect, name, "first")
            if first == play(program, dialect, name, "second"):
                kept[name] = first
            else:
                unsteady.append(name)
    save(dialect, {name: kept[name] for name in SCENARIOS[dialect] if name in kept})
    print(f"{len(kept)} kept; not the same twice: {unsteady}")  # noqa: T201 - a program prints
    return 1 if unsteady else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
