"""One-line breaks of the product, each of which a test must notice.

``python -m tests.mutants`` applies each to a copy of the checkout, runs the tests that it names
and fails if one survives. The lists are by area; ``tests/architecture/test_mutants.py`` checks that
every one still applies.
"""

from tests.mutants.answers import ANSWERS
from tests.mutants.commands import COMMANDS
from tests.mutants.consuming import CONSUMING
from tests.mutants.locks import LOCKS
from tests.mutants.mutant import Mutant
from tests.mutants.odd import ODD
from tests.mutants.publishing import PUBLISHING
from tests.mutants.rooms import ROOMS
from tests.mutants.security import SECURITY
from tests.mutants.spool import SPOOL
from tests.mutants.wire import WIRE

MUTANTS: tuple[Mutant, ...] = (
    *PUBLISHING,
    *ANSWERS,
    *CONSUMING,
    *WIRE,
    *SECURITY,
    *SPOOL,
    *ROOMS,
    *COMMANDS,
    *ODD,
    *LOCKS,
)
