"""The same scenarios on the stand-ins and on the real servers: the same frames.

The transcripts were written down from the real programs (record.py); where those are at hand, they
are played again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.differential.programs import BINARIES, Program, nsqd, real_folder
from tests.differential.transcripts import SCENARIOS, load, play

DIALECTS = list(SCENARIOS)
TRANSCRIPTS = {dialect: load(dialect) for dialect in DIALECTS}
CASES = [(dialect, name) for dialect in DIALECTS for name in SCENARIOS[dialect]]


@pytest.fixture(scope="module")
def stand_ins() -> Iterator[dict[str, Program]]:
    with nsqd("original", real=False) as one, nsqd("redesigned", real=False) as other:
        yield {"original": one, "redesigned": other}


@pytest.fixture(scope="module", params=DIALECTS)
def real(request) -> Iterator[tuple[str, Program]]:
    if real_folder(request.param) is None:
        pytest.skip(f"{BINARIES[request.param]} does not name a folder with nsqd")
    with nsqd(request.param, real=True) as program:
        yield request.param, program


@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_the_stand_in_answers_as_the_real_server_did(stand_ins, dialect, name):
    answered = play(stand_ins[dialect], dialect, name, "embedded")
    assert answered == TRANSCRIPTS[dialect][name]


@pytest.mark.real
@pytest.mark.timeout(300)
def test_the_real_server_still_answers_so(real):
    dialect, program = real
    for name in SCENARIOS[dialect]:
        assert play(program, dialect, name, "again") == TRANSCRIPTS[dialect][name], name
