"""Letters that wait for the commit of an SQLAlchemy session, and the signal for those that fail."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from blinker import Namespace

from nsqsmart.contrib.flask.state import AppState
from nsqsmart.contrib.shared.delivering import Parcel, deliver
from nsqsmart.contrib.shared.sending import Failure, Letter

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

log = logging.getLogger("nsqsmart")

publish_failed = Namespace().signal(
    "publish-failed",
    """A message that waited for a commit was not published, and will not be.

    Sent with the app, ``topic``, ``body``, ``arguments`` (those of publish(), a dict) and
    ``error``. What a receiver raises is logged.
    """,
)

_KEY = "nsqsmart"


class _Waiting(NamedTuple):
    """A letter, and the transaction or savepoint it was written in; None if none had begun."""

    state: AppState
    letter: Letter
    transaction: SessionTransaction | None


def wait_for_commit(session: Any, state: AppState, letter: Letter) -> None:
    """Send *letter* when *session* commits; a rollback, of a savepoint too, drops it."""
    # A scoped_session, as Flask-SQLAlchemy's, gives that of this request when it is called.
    own: Session = session() if callable(session) else session
    if _KEY not in own.info:
        own.info[_KEY] = []
        _listen(own)
    current = own.get_nested_transaction() or own.get_transaction()
    own.info[_KEY].append(_Waiting(state, letter, current))


def _listen(session: Session) -> None:
    from sqlalchemy import event  # noqa: PLC0415 - where there is a session it is installed

    event.listen(session, "after_transaction_create", _begun)
    event.listen(session, "after_commit", _committed)
    event.listen(session, "after_transaction_end", _ended)


def _begun(session: Session, transaction: SessionTransaction) -> None:
    """What was written before it is for this one."""
    if transaction.parent is None:
        _move(session, None, transaction)


def _committed(session: Session) -> None:
    """A savepoint: its letters are its parent's now. The whole: they are sent."""
    savepoint = session.get_nested_transaction()
    if savepoint is not None:
        _move(session, savepoint, savepoint.parent)
        return
    waiting: list[_Waiting] = session.info[_KEY]
    session.info[_KEY] = []
    groups: dict[AppState, list[Letter]] = {}
    for each in waiting:
        groups.setdefault(each.state, []).append(each.letter)
    deliver(
        Parcel(letters, state.find_producer, partial(_tell, state.app), state.tally)
        for state, letters in groups.items()
    )


def _ended(session: Session, transaction: SessionTransaction) -> None:
    """What is still its own was not committed."""
    session.info[_KEY] = [
        each for each in session.info[_KEY] if each.transaction is not transaction
    ]


def _move(session: Session, old: SessionTransaction | None, new: SessionTransaction | None) -> None:
    session.info[_KEY] = [
        each._replace(transaction=new) if each.transaction is old else each
        for each in session.info[_KEY]
    ]


def _tell(app: object, failure: Failure) -> None:
    """Send the signal."""
    letter, error = failure
    for receiver in publish_failed.receivers_for(app):
        try:
            receiver(
                app,
                topic=letter.topic,
                body=letter.body,
                arguments=dict(letter.arguments),
                error=error,
            )
        except Exception:
            log.exception("a receiver of publish_failed failed")
