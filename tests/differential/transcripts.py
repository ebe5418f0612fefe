"""The scenarios, and what real servers answered to them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.differential import scenarios_original, scenarios_redesigned
from tests.differential.player import Player
from tests.differential.programs import Program

SCENARIOS = {
    "original": scenarios_original.SCENARIOS,
    "redesigned": scenarios_redesigned.SCENARIOS,
}
_FOLDER = Path(__file__).parent / "transcripts"


def play(program: Program, dialect: str, name: str, run: str) -> list[str]:
    """The transcript of a scenario, on a topic of its own."""
    player = Player(program, f"{name[:50]}_{run}"[:64])
    try:
        SCENARIOS[dialect][name](player)
    finally:
        player.close()
    return [line.replace(player.topic, "@T@") for line in player.transcript]


def load(dialect: str) -> dict[str, list[str]]:
    """What the real server of *dialect* answered, by scenario."""
    path = _FOLDER / f"{dialect}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def save(dialect: str, transcripts: dict[str, list[str]]) -> None:
    """Keep them."""
    text = json.dumps(transcripts, indent=1, ensure_ascii=True)
    (_FOLDER / f"{dialect}.json").write_text(text + "\n")
