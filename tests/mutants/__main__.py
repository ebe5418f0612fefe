"""Try the mutants: ``python -m tests.mutants [ID...] [-j N] [--list]``."""

from __future__ import annotations

import argparse
import queue
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import monotonic

from tests.mutants import MUTANTS, Mutant
from tests.mutants.copies import Copy, Verdict

_LIMIT = 120.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every mutant was noticed, 1 if not, 2 for an id that there is none of."""
    flags = _parse(arguments)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := sorted(set(flags.ids) - set(known)):
        print(f"no such mutant: {', '.join(unknown)}; see --list", file=sys.stderr)
        return 2
    chosen = [known[name] for name in flags.ids] or list(MUTANTS)
    if flags.list:
        for mutant in chosen:
            print(f"{mutant.name:<40}{mutant.breaks}")
        return 0
    began = monotonic()
    verdicts = []
    for verdict in _try(chosen, flags.jobs, flags.limit):
        verdicts.append(verdict)
        _report(verdict)
    bad = [verdict.mutant.name for verdict in verdicts if not verdict.good]
    print(f"{len(verdicts) - len(bad)} of {len(verdicts)} caught in {monotonic() - began:.0f} s")
    if bad:
        print(f"not caught: {' '.join(sorted(bad))}")
    return 1 if bad else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these; all without")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    parser.add_argument("-j", dest="jobs", type=int, default=1, metavar="N", help="at a time")
    parser.add_argument(
        "--limit", type=float, default=_LIMIT, metavar="SECONDS", help="for one mutant"
    )
    return parser.parse_args(arguments)


def _try(mutants: Sequence[Mutant], jobs: int, limit: float) -> Iterator[Verdict]:
    """The verdicts, as they come; each job has a copy of its own."""
    jobs = max(1, min(jobs, len(mutants)))
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        copies = [Copy(Path(folder) / str(number)) for number in range(jobs)]
        free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for copy in copies:
            free.put(copy)

        def judge(mutant: Mutant) -> Verdict:
            copy = free.get()
            try:
                return copy.judge(mutant, limit)
            finally:
                free.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                for future in as_completed([pool.submit(judge, mutant) for mutant in mutants]):
                    yield future.result()
            finally:
                # Nothing is left to end, unless by Ctrl-C.
                pool.shutdown(wait=False, cancel_futures=True)
                for copy in copies:
                    copy.end()


def _report(verdict: Verdict) -> None:
    mutant = verdict.mutant
    print(f"{verdict.word:<16} {verdict.seconds:5.1f} s  {mutant.name}", flush=True)
    if not verdict.good:
        print(f"    breaks: {mutant.breaks}")
        print(f"    {mutant.file}: {mutant.old.strip()!r} -> {mutant.new.strip()!r}")
        print(f"    tests: {' '.join(mutant.tests)}")
    for line in verdict.detail.splitlines()[-20:]:
        print(f"    | {line}")


if __name__ == "__main__":
    sys.exit(main())
