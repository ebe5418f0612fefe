"""publish(): now, when the transaction commits, or by way of the outbox."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, Unpack, overload

from asgiref.sync import sync_to_async
from django.db import DEFAULT_DB_ALIAS, connections, transaction

from nsqsmart import PublishArguments, Receipt
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.django.conf import find_producer, producers
from nsqsmart.contrib.django.signals import tally, tell
from nsqsmart.contrib.shared.delivering import Counts, Parcel, deliver
from nsqsmart.contrib.shared.sending import Letter
from nsqsmart.errors import ConfigError


@overload
def publish(
    topic: str,
    body: bytes,
    *,
    when: Literal["now"],
    alias: str = "default",
    using: str | None = None,
    **arguments: Unpack[PublishArguments],
) -> Receipt: ...


@overload
def publish(
    topic: str,
    body: bytes,
    *,
    when: Literal["on_commit", "outbox"],
    alias: str = "default",
    using: str | None = None,
    **arguments: Unpack[PublishArguments],
) -> None: ...


@overload
def publish(
    topic: str,
    body: bytes,
    *,
    when: str | None = None,
    alias: str = "default",
    using: str | None = None,
    **arguments: Unpack[PublishArguments],
) -> Receipt | None: ...


def publish(
    topic: str,
    body: bytes,
    *,
    when: str | None = None,
    alias: str = "default",
    using: str | None = None,
    **arguments: Unpack[PublishArguments],
) -> Receipt | None:
    """Publish *body* to *topic*, by default when the transaction commits.

    The arguments are looked at, and the body is copied, at once.

    Args:
        topic, body: as for :meth:`nsqsmart.Producer.publish`.
        when: ``"on_commit"``: after the commit, all messages of the transaction together; at once
            where there is none. Nothing is raised if that fails: it is logged at ERROR and counted,
            and the signal ``publish_failed`` is sent. A rollback, of a savepoint too, drops it.
            ``"now"``: at once; what fails is raised. ``"outbox"``: a row of the transaction, which
            ``manage.py nsq_relay`` publishes. Default: PUBLISH of the alias, or ``"on_commit"``.
        alias: of the setting NSQSMART.
        using: the database whose transaction it belongs to. Default: the one with a transaction.
        **arguments: key, partition, trace, trace_id, headers, tag, delay and timeout of
            :meth:`nsqsmart.Producer.publish`.

    Returns:
        the Receipt with ``when="now"``, None otherwise.

    Raises:
        TypeError, ConfigError: an argument or the settings cannot be used; or transactions of
            several databases are open, and *using* does not say which.
        PublishError: with ``when="now"``, as :meth:`nsqsmart.Producer.publish`.
    """
    entry = conf.get_alias(alias)
    mode = entry.publish if when is None else conf.check_mode(when, "when=")
    letter = Letter.write(topic, body, alias, **arguments)
    if mode == "now":
        return producers[alias].publish(topic, letter.body, **letter.arguments)
    database = _find_transaction() if using is None else using
    if mode == "outbox":
        _keep(letter, database)
    else:
        _publish_at_commit(letter, database)
    return None


async def apublish(topic: str, body: bytes, **arguments: Any) -> Receipt | None:
    """Call :func:`publish` from an async view; outside of any transaction."""
    receipt: Receipt | None = await sync_to_async(publish)(topic, body, **arguments)
    return receipt


def counts() -> Counts:
    """Messages of this process that waited for a commit: published, and failed."""
    return tally.total()


def _find_transaction() -> str:
    """The database with an open transaction, or the default one; raises ConfigError for several."""
    found: list[str] = [
        connection.alias
        for connection in connections.all(initialized_only=True)
        # Those of a TestCase are open on every database, and are not the application's.
        if any(not block._from_testcase for block in connection.atomic_blocks)  # noqa: SLF001
    ]
    if len(found) > 1:
        raise ConfigError(
            f"transactions are open on {' and '.join(sorted(found))}: say which by using="
        )
    return found[0] if found else DEFAULT_DB_ALIAS


def _publish_at_commit(letter: Letter, database: str) -> None:
    connection = connections[database]
    if connection.connection is None and connection.settings_dict.get("AUTOCOMMIT", True):
        # This database was not asked for anything yet: no connection is made only for this.
        CommitBatch([letter])()
        return
    batch = _find_batch(connection)
    if batch is not None:
        batch.letters.append(letter)
        return
    transaction.on_commit(CommitBatch([letter], connection), using=database, robust=True)


def _keep(letter: Letter, database: str) -> None:
    try:
        from nsqsmart.contrib.django.models import OutboxMessage  # noqa: PLC0415 - needs the app
    except RuntimeError as error:
        raise ConfigError(
            'the outbox needs "nsqsmart.contrib.django" in INSTALLED_APPS, and manage.py migrate'
        ) from error
    OutboxMessage.keep(letter, database)


# ----------------------------------------------------------- all that one transaction publishes


class CommitBatch:
    """Letters that are sent when it is called; nothing that is an Exception comes out of it.

    *connection* is that of the transaction which calls it, None if there is none.
    """

    def __init__(self, letters: list[Letter], connection: Any = None) -> None:
        self.letters = letters
        self.transaction = None if connection is None else _transaction_of(connection)

    def __call__(self) -> None:
        """Send them, each alias with its producer, and account for every one."""
        letters, self.letters = self.letters, []
        groups: dict[str, list[Letter]] = {}
        for letter in letters:
            groups.setdefault(letter.alias, []).append(letter)
        deliver(
            Parcel(group, partial(find_producer, alias), tell, tally)
            for alias, group in groups.items()
        )


def _find_batch(connection: Any) -> CommitBatch | None:
    """The batch that a letter written now belongs to; None if a new one has to be registered.

    Django drops a callback when a savepoint is rolled back that it was registered in. So a letter
    may join a batch whose savepoints that still stand are the current ones; those which were
    released since can no more be rolled back alone. Batches that have become alike so are joined,
    or a loop with a savepoint for each row would have one for each row.
    """
    current = {each for each in connection.savepoint_ids if each is not None}
    mine = _transaction_of(connection)
    hooks = connection.run_on_commit
    own = [
        (number, hook[0] & current, hook[1])
        for number, hook in enumerate(hooks)
        if isinstance(hook[1], CommitBatch) and hook[1].transaction == mine
    ]
    if len(own) > 1 and own[-1][1] == own[-2][1]:
        number, _, last = own.pop()
        own[-1][2].letters += last.letters
        del hooks[number]
    if own and own[-1][1] == current:
        return own[-1][2]
    return None


def _transaction_of(connection: Any) -> object:
    """What tells one transaction from the next on *connection*.

    After a commit Django forgets its callbacks, so those that are there are of one transaction. In
    a TestCase nothing is committed: there a transaction of the application is a savepoint.
    """
    tests = sum(block._from_testcase for block in connection.atomic_blocks)  # noqa: SLF001
    if not tests:
        return None
    own = [each for each in connection.savepoint_ids[tests - 1 :] if each is not None]
    # Without one, the application would have no transaction, and publish each at once.
    return own[0] if own else object()
