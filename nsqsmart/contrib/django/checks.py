"""System checks: what is wrong with the settings, before anything is published."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.core.checks import Error, Info, Warning, register  # noqa: A004 - as Django calls them

from nsqsmart import NsqError
from nsqsmart.contrib.django import conf
from nsqsmart.contrib.django.handlers import MODULE, discover
from nsqsmart.contrib.shared.declaring import find_twice
from nsqsmart.contrib.shared.fitting import describe_dialects, find_dialects, find_misfits
from nsqsmart.errors import ConfigError

_TAG = "nsqsmart"
_PATIENCE = 2.0


def _check_fit(name: str) -> Iterator[Any]:
    alias = conf.get_alias(name)
    dialects = find_dialects(alias, _PATIENCE)
    for wrong in find_misfits(dialects, alias, discover(name)):
        yield Warning(f"alias {name!r}: {wrong}", hint="manage.py nsq_ping", id="nsqsmart.W005")
    if alias.dialect is None:
        for line in describe_dialects(dialects, alias):
            dialect = line.partition(" ")[0]
            yield Info(
                f"alias {name!r}: {line}",
                hint=f"Say 'DIALECT': {dialect!r}, and tests refuse the same.",
                id="nsqsmart.I001",
            )


def register_all() -> None:
    """Have Django run them; those that open a connection only with ``check --deploy``."""
    register(check_settings, _TAG)
    register(check_handlers, _TAG)
    register(check_servers, _TAG, deploy=True)


def check_settings(**_given: Any) -> list[Any]:
    """E001 an address, E002 an option, E004 a cluster in the process, W001 publishing too early."""
    try:
        aliases = conf.read_aliases()
    except ConfigError as error:
        return [Error(str(error), id="nsqsmart.E002")]
    found: list[Any] = []
    for alias in aliases.values():
        found += _check_alias(alias)
    return found


def _check_alias(alias: conf.Alias) -> Iterator[Any]:
    try:
        endpoint, _ = alias.target()
    except ConfigError as error:
        about_options = _is_about_options(alias)
        yield Error(str(error), id="nsqsmart.E002" if about_options else "nsqsmart.E001")
        return
    if endpoint.embedded and not settings.DEBUG and not conf.in_tests():
        yield Error(
            f"settings.NSQSMART[{alias.name!r}]['URL'] is {endpoint}, a cluster inside each "
            "process, and DEBUG is off",
            hint="Give the address of your nsqlookupd, as nsq+lookupd://HOST:4161.",
            id="nsqsmart.E004",
        )
    requests = [name for name, each in settings.DATABASES.items() if each.get("ATOMIC_REQUESTS")]
    if alias.publish == "now" and requests:
        yield Warning(
            f"settings.NSQSMART[{alias.name!r}] publishes now, and database {requests[0]!r} has "
            "ATOMIC_REQUESTS: messages go out of requests that are rolled back later",
            hint="Set PUBLISH to on_commit or outbox, and say when='now' where it is meant.",
            id="nsqsmart.W001",
        )


def _is_about_options(alias: conf.Alias) -> bool:
    """Whether the address alone could be used."""
    try:
        replace(alias, options={}).target()
    except ConfigError:
        return False
    return True


def check_handlers(**_given: Any) -> list[Any]:
    """E003 two handlers on a channel, W002 an nsq.py without any, W003 threads that cannot run."""
    try:
        handlers = discover()
    except ConfigError as error:
        return [Error(str(error), id="nsqsmart.E002")]
    found: list[Any] = [Error(wrong, id="nsqsmart.E003") for wrong in find_twice(handlers)]
    modules = [name for name in sorted(sys.modules) if _is_handlers_module(name)]
    if modules and not handlers:
        found.append(
            Warning(
                f"{modules[0]} declares no handler",
                hint="Decorate a function with nsqsmart.contrib.django.handler(topic, channel).",
                id="nsqsmart.W002",
            )
        )
    uwsgi = sys.modules.get("uwsgi")
    if (
        handlers
        and uwsgi is not None
        and not {"enable-threads", "threads"} & {*getattr(uwsgi, "opt", {})}
    ):
        found.append(
            Warning(
                "uWSGI runs without threads, and a consumer needs them",
                hint="Run manage.py nsq_consume beside it, or give uWSGI --enable-threads.",
                id="nsqsmart.W003",
            )
        )
    return found


def _is_handlers_module(name: str) -> bool:
    from django.apps import apps  # noqa: PLC0415 - read when they are ready

    package, _, last = name.rpartition(".")
    return last == MODULE and any(package == app.name for app in apps.get_app_configs())


def check_servers(**_given: Any) -> list[Any]:
    """W004 servers that do not answer, W005 servers that cannot do what is declared, I001 which
    servers these are where the settings do not say it.

    With ``check --deploy`` alone, for it asks them.
    """
    found: list[Any] = []
    try:
        names = list(conf.read_aliases())
    except ConfigError:
        return []  # check_settings says so
    for name in names:
        try:
            with conf.get_alias(name).make_producer() as producer:
                producer.ping(_PATIENCE)
            found += _check_fit(name)
        except ConfigError:
            continue
        except NsqError as error:
            found.append(
                Warning(f"alias {name!r}: {error}", hint="manage.py nsq_ping", id="nsqsmart.W004")
            )
    return found
