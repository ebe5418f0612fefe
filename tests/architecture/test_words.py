"""Pages, help and errors use the usual words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.helpers import PACKAGE, ROOT

READ = sorted(
    (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(PACKAGE / "cli").rglob("*.py"),
        *(PACKAGE / "config").rglob("*.py"),
    )
)
UNUSUAL = {
    r"\b(whoever|nobody|somebody|anybody|everybody)\b": "name the subject: a caller, a consumer",
    r"\bis no (option|command|setting|flag)\b": "unknown option X",
    r"\b[Tt]he same, (which|who)\b": "say what it does",
}


def found(text: str) -> Iterator[str]:
    """What of *text* has a usual word, and which."""
    for pattern, better in UNUSUAL.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield f"{match.group()}: {better}"


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_usual_words(path) -> None:
    assert list(found(path.read_text())) == []


def test_unusual_ones_are_found() -> None:
    assert (
        len(list(found("Whoever asks. 'x' is no option. The same, which nobody is told of."))) == 4
    )
    assert list(found("The caller asks. unknown option 'x'")) == []
