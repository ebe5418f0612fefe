"""An option that nothing reads is a promise that nothing keeps."""

from __future__ import annotations

import re

import pytest

from nsqsmart.config import KINDS, options_of
from tests.helpers import PACKAGE

READERS = "\n".join(
    path.read_text() for floor in ("net", "client") for path in (PACKAGE / floor).rglob("*.py")
)


@pytest.mark.parametrize("name", sorted({name for kind in KINDS for name in options_of(kind)}))
def test_every_option_is_read(name):
    assert re.search(rf"config\.{name}\b", READERS)
