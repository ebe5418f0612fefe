"""Kills processes of Spark at named points. Tests put this folder first on PYTHONPATH.

Every Python of Spark's imports it at its start; the package knows nothing of it. ``PLANTED`` is
JSON: ``points`` is a list of points, each used once and in this order: [step, nth, victim], where
each process counts, and uses it at the nth time or later. The victim is ``worker`` (this process),
``jvm`` (the one above it, executor or driver; this one lives on, as it would), ``both``, or
``none``. The number of the first point is ``first``; ``folder`` is where it is noted that a point
was reached, and below which JVMs messages were read.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_SEEN: Counter[str] = Counter()


def reached(step: str) -> None:
    """Kill whom this point is meant for, if it is the turn of this point."""
    told = json.loads(os.environ["PLANTED"])
    if step == "after FIN":
        Path(told["folder"], f"pulled-{_jvm()}").touch()
    _SEEN[step] += 1
    for number, (wanted, nth, victim) in enumerate(told["points"], told.get("first", 0)):
        note = Path(told["folder"], f"reached-{number}")
        if note.exists():
            continue
        if wanted != step or _SEEN[step] < nth:
            return
        try:
            note.open("x").close()
        except FileExistsError:  # another task was there first
            return
        _kill(victim)
        return


def _kill(victim: str) -> None:
    if victim in ("jvm", "both"):
        os.kill(_jvm(), signal.SIGKILL)
    if victim in ("worker", "both"):
        os.kill(os.getpid(), signal.SIGKILL)


def _jvm() -> int:
    """The Java above this process: a worker has a daemon between, a source's process has not."""
    above = os.getpid()
    while "java" not in Path(f"/proc/{above}/comm").read_text():
        above = int(Path(f"/proc/{above}/stat").read_text().rpartition(")")[2].split()[1])
        if above <= 1:
            raise RuntimeError("no Java above this process")
    return above


def _plant_filling(module: ModuleType) -> None:
    made: Any = module.Reading

    def planted(*given: Any) -> Any:
        return dataclasses.replace(made(*given), watch=reached)

    module.Reading = planted  # type: ignore[attr-defined]


def _plant_spooling(module: ModuleType) -> None:
    source: Any = module.SpoolSource
    latest, write = source.latest_offset, source._write

    def latest_offset(self: Any, start: Any, most: Any) -> Any:
        if start["epoch"]:
            reached(f"after commit {start['epoch']}")
        return latest(self, start, most)

    def write_plan(self: Any, name: str, plan: Any) -> None:
        reached(f"before plan {plan.epoch}")
        write(self, name, plan)
        reached(f"before offset {plan.epoch}")

    source.latest_offset, source._write = latest_offset, write_plan


def _plant_ranges(module: ModuleType) -> None:
    take = module.Walk.take

    def planted(self: Any, messages: Any) -> Any:
        if messages:
            reached("in a range")
        return take(self, messages)

    module.Walk.take = planted


class _Planting(Loader):
    def __init__(self, loader: Any, plant: Callable[[ModuleType], None]) -> None:
        self._loader, self._plant = loader, plant

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._plant(module)


_PLACES = {
    "nsqsmart.spark.source.filling": _plant_filling,
    "nsqsmart.spark.source.spooling": _plant_spooling,
    "nsqsmart.spark.source.ranges": _plant_ranges,
}


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self._places = dict(_PLACES)

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> ModuleSpec | None:
        plant = self._places.pop(name, None)
        if plant is None:
            return None
        spec = importlib.util.find_spec(name)  # not found here again: it was taken out
        if spec is not None:
            spec.loader = _Planting(spec.loader, plant)
        return spec


if "PLANTED" in os.environ:
    sys.meta_path.insert(0, _Finder())
