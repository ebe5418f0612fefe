"""The net of mutants is whole: each still applies, and the tests that it names exist."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.helpers import ROOT
from tests.mutants import MUTANTS, Mutant, __main__, copies
from tests.mutants.copies import Verdict

FEWEST = 40


@cache
def names_in(file: str) -> set[str]:
    """The functions and classes of a test file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_there_are_enough_of_them() -> None:
    assert len(MUTANTS) >= FEWEST


def test_no_two_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_still_applies(mutant: Mutant) -> None:
    assert mutant.file.startswith("nsqsmart/")
    broken = mutant.apply((ROOT / mutant.file).read_text())
    ast.parse(broken)  # one that does not even compile proves nothing
    assert mutant.tests, "no test has to notice it"
    for test in mutant.tests:
        file, *names = test.split("::")
        found = names_in(file)
        assert {name.partition("[")[0] for name in names} <= found, test


# What the runner says.

ONE = Mutant("name", "file", "b = 1", "b = 2", "nothing", ("test",))


@pytest.mark.parametrize("source", ["", "a = 1\n", "b = 1\nb = 1\n"])
def test_one_that_does_not_apply_once_is_noticed(source: str) -> None:
    with pytest.raises(ValueError, match="the old text stands"):
        ONE.apply(source)


@pytest.mark.parametrize(
    ("code", "hangs", "word", "good"),
    [
        (0, False, "SURVIVED", False),
        (1, False, "caught", True),
        (2, False, "NO TEST RAN", False),
        (4, False, "NO TEST RAN", False),
        (5, False, "NO TEST RAN", False),
        (None, False, "TIMED OUT", False),
        (None, True, "caught (timeout)", True),
    ],
)
def test_only_a_test_that_fails_has_caught_one(
    code: int | None, hangs: bool, word: str, good: bool
) -> None:
    found = copies._word(ONE._replace(hangs=hangs), code)
    assert (found, Verdict(ONE, found, 0.0).good) == (word, good)


@pytest.mark.parametrize(("word", "code"), [("caught", 0), ("SURVIVED", 1), ("DOES NOT APPLY", 1)])
def test_the_exit_code_says_whether_all_were_caught(
    word: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(__main__, "_try", lambda *_: [Verdict(ONE, word, 1.0)])
    assert __main__.main([]) == code


def test_the_name_of_none_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main(["absent"]) == 2
    assert "absent" in capsys.readouterr().err
