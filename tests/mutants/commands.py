"""What the commands promise: what is given back when, and what they tell."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_GIVEN_BACK = "tests/rooms/cli/test_given_back.py"

COMMANDS: tuple[Mutant, ...] = (
    Mutant(
        "the-copier-asks-for-all",
        "nsqsmart/cli/copying.py",
        "max_in_flight=min(chosen.n, config.max_in_flight)",
        "max_in_flight=config.max_in_flight",
        "copy -n asks for no more than it is to copy",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "given-back-before-the-end",
        "nsqsmart/cli/ending.py",
        "        message.detach()",
        "        message.requeue(0.0, backoff=False)",
        "what a command did not want is given back once, when nothing more is asked for",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "a-failed-copy-has-no-successor",
        "nsqsmart/cli/copier.py",
        "chosen = self._choose([])",
        "chosen = []",
        "copy -n copies what it kept in the place of what failed",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "max-messages-given-back-at-once",
        "nsqsmart/contrib/shared/running.py",
        "                    message.detach()",
        "                    message.requeue(0.0, backoff=False)",
        "what --max-messages did not want is given back once, when nothing more is asked for",
        (_GIVEN_BACK,),
    ),
    Mutant(
        "a-drain-gives-back-under-an-open-rdy",
        "nsqsmart/client/engine.py",
        "        self.regulator.stop()\n        with self._beginning",
        "        self.draining = True\n        self.regulator.stop()\n        with self._beginning",
        "a drain asks for no more before anything is given back",
        ("tests/integration/test_drain_order.py",),
    ),
)
