"""Pages, docstrings, comments, log lines and errors use the usual words."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.helpers import PACKAGE, ROOT

TESTS = ROOT / "tests"
NOT_READ = (
    PACKAGE / "spark",
    TESTS / "rooms" / "spark",
    TESTS / "rooms" / "cli",
    TESTS / "mutants",  # they have wrong words on purpose
    Path(__file__),
)
READ = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *PACKAGE.rglob("*.py"),
        *TESTS.rglob("*.py"),
    )
    if not any(path.is_relative_to(room) for room in NOT_READ)
)
LIBRARY = [
    path
    for path in READ
    if path.is_relative_to(PACKAGE) and not path.is_relative_to(PACKAGE / "cli")
]
UNUSUAL = {
    r"\b(whoever|nobody|somebody|anybody|everybody)\b": "name the subject: a caller, a consumer",
    r"\bis no (option|command|setting|flag)\b": "unknown option X",
    r"\b[Tt]he same, (which|who)\b": "say what it does",
}
OLD_NAMES = {
    r"\"\"\"(the same( (by|for|from|of|with|without|where)\b|[,.])|as above|likewise)": (
        "say what it does"
    ),
    r"\bcrews?\b": "WorkerPool",
    r"\bthe (boss|staff)\b": "ConsumerRuntime, Dispatcher",
    r"\b(keeper|housekeeper)\b": "subscription supervisor",
    r"\b(regulator|levelling)\b": "RDY controller",
    r"\b(the|an) intake\b": "pull reader",
    r"\berrands?\b": "operation, request",
    r"\b(last|newest|old|newer|good|a|no) picture\b": "topology or snapshot",
}


def prose(path: Path) -> str:
    """The comments and texts of a module, without names of one word; a page is read whole."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    kinds = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join(each.string for each in tokens if each.type in kinds and " " in each.string)


def found(text: str, words: dict[str, str] = UNUSUAL) -> Iterator[str]:
    """The unusual *words* in *text*, each with a better one."""
    for pattern, better in words.items():
        for match in re.finditer(pattern, text, re.IGNORECASE):
            yield f"{match.group()}: {better}"


def complaints(paths: Iterable[Path], words: dict[str, str]) -> list[str]:
    """What is found in *paths*; only a file with such a word anywhere is taken apart."""
    return [
        f"{path.relative_to(ROOT)}: {each}"
        for path in paths
        if any(found(path.read_text(), words))
        for each in found(prose(path), words)
    ]


def test_the_usual_words() -> None:
    assert complaints(READ, UNUSUAL) == []


def test_no_old_names_and_no_leaning_docstrings() -> None:
    assert complaints(LIBRARY, OLD_NAMES) == []


def test_unusual_ones_are_found() -> None:
    assert (
        len(list(found("Whoever asks. 'x' is no option. The same, which nobody is told of."))) == 4
    )
    assert list(found("The caller asks. unknown option 'x'")) == []
    assert len(list(found('"""The same, later."""', OLD_NAMES))) == 1


def test_old_names_are_found() -> None:
    assert len(list(found("The crew, the keeper and the last picture.", OLD_NAMES))) == 3
    assert list(found("A worker pool and its topology.", OLD_NAMES)) == []


def test_names_of_one_word_are_not_prose(tmp_path) -> None:
    module = tmp_path / "module.py"
    module.write_text('nobody = "nobody"  # a topic\nwhoever = "sent by nobody"\n')
    assert prose(module) == '# a topic\n"sent by nobody"'
