"""Django in this process: databases with the outbox in them, and the environment of its tests."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import ModuleType
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.test.utils import override_settings, setup_test_environment, teardown_test_environment

from nsqsmart.testing.recording import Outbox, outbox
from tests.postgres import run_postgres, why_not


def sqlite(path: object) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": {"timeout": 20},
    }


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The host of a PostgreSQL, or "" where there is none."""
    with ExitStack() as stack:
        yield "" if why_not() else stack.enter_context(run_postgres())


@pytest.fixture(scope="session")
def _django(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("databases")
    # To start one takes seconds, which most runs of a single test can do without.
    kinds = {
        item.callspec.params.get("database")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    }
    postgres = request.getfixturevalue("postgres") if "postgres" in kinds else ""
    databases = {"default": sqlite(folder / "default"), "other": sqlite(folder / "other")}
    if postgres:
        databases["postgres"] = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": "postgres",
            "USER": "postgres",
            "HOST": postgres,
        }
    settings.configure(
        INSTALLED_APPS=["nsqsmart.contrib.django"],
        DATABASES=databases,
        USE_TZ=True,
        SECRET_KEY="tests",
        NSQSMART={"default": {"URL": "nsq://127.0.0.1:1"}, "audit": {"URL": "nsq://h:1"}},
    )
    django.setup()
    setup_test_environment()
    for name in databases:
        call_command("migrate", database=name, verbosity=0)
    yield
    teardown_test_environment()
    connections.close_all()


@pytest.fixture
def recorded(_django: None) -> Iterator[Outbox]:
    """What is published here, and no transaction left over."""
    outbox.clear()
    yield outbox
    for connection in connections.all(initialized_only=True):
        connection.close()
    gc.collect()


@pytest.fixture(params=["default", "postgres"])
def database(request: pytest.FixtureRequest, recorded: Outbox) -> Iterator[str]:
    """The name of a database, of each kind, with an empty outbox."""
    from nsqsmart.contrib.django.models import OutboxMessage

    reason = why_not()
    if request.param == "postgres" and reason:
        pytest.skip(reason)
    OutboxMessage.objects.using(request.param).all().delete()
    yield request.param
    OutboxMessage.objects.using(request.param).all().delete()


@pytest.fixture
def nsq_settings(recorded: Outbox) -> Iterator[Any]:
    """Call it with aliases: the setting NSQSMART until the end of the test."""
    with ExitStack() as stack:
        yield lambda **aliases: stack.enter_context(override_settings(NSQSMART=aliases))


@pytest.fixture
def models(database: str) -> ModuleType:
    """Where the rows of the outbox are."""
    from nsqsmart.contrib.django import models

    return models


@pytest.fixture
def make_relay(database: str) -> Callable[..., Any]:
    """A relay of that database."""
    from nsqsmart.contrib.django.relaying import Relay

    return partial(Relay, database)


@pytest.fixture
def rows(models: ModuleType, database: str) -> Callable[[], Any]:
    """What is in the outbox, in order."""
    return lambda: models.OutboxMessage.objects.using(database).order_by("pk")
