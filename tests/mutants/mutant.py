"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One break of the product, which the named tests must notice.

    ``old`` stands exactly once in ``file`` (a path from the root of the checkout) and is replaced
    by ``new``. ``breaks`` is the promise that then no longer holds. ``tests`` are arguments of
    pytest, as narrow as can be: files or node ids. ``hangs`` says that a test which never ends is
    how this one is noticed; otherwise that is an error.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    hangs: bool = False

    @property
    def test_files(self) -> set[str]:
        """The files of the tests, without what is chosen in them."""
        return {test.partition("::")[0] for test in self.tests}

    def apply(self, source: str) -> str:
        """The broken *source*; raises ValueError unless the old text stands in it exactly once."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: the old text stands {count} times in {self.file}")
        return source.replace(self.old, self.new)
