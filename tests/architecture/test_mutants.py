"""The net of mutants is whole: each still applies, and the tests that it names exist."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.helpers import ROOT
from tests.mutants import MUTANTS, Mutant

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


@pytest.mark.parametrize("source", ["", "a = 1\n", "b = 1\nb = 1\n"])
def test_one_that_does_not_apply_once_is_noticed(source: str) -> None:
    mutant = Mutant("name", "file", "b = 1", "b = 2", "nothing", ("test",))
    with pytest.raises(ValueError, match="the old text stands"):
        mutant.apply(source)
